"""The numeric check: the slim network against the full one with its removed channels silenced, in float64.

It knows nothing of the rules, so it catches what they get wrong. Norm parameters and statistics are drawn at random, so
that a misplaced one shows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from ranp.masking import Derandomised, MaskedRun
from ranp.replica import Guard
from ranp.tracing.cutting import cut_tensor
from ranp.tracing.labels import LabelSpace
from ranp.tracing.probing import Mask, MisalignedError, keeps_of
from ranp.tracing.recording import OpRecorder
from ranp.tracing.running import Ledger, OpRecord, give_birth, run_labelled
from ranp.tracing.stage import (
    MetaMode,
    at_least_two,
    call,
    copy_model,
    in_double,
    is_floating,
    named_tensors,
    tensors_in,
    to_meta,
    untouched_rng,
    written_out,
)
from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

TOLERANCE = 1e-9
"""Largest difference of the outputs, relative to the largest output, that float64 rounding explains."""
SAMPLES = 4
"""Batch of the numeric check in train mode: statistics over two values would scale rounding up too much."""
ROUNDING = 1e-4
"""Differences up to here may be rounding that a hundred norms in train mode scaled up; beyond it they never are."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the comparison found.

    Attributes:
        agree: True if the outputs agree, None if they could not be compared.
        error: Largest difference, relative to the largest output; NaN if there is none to tell.
        note: What differs, why it was left out, or at which smaller size it was made.
    """

    agree: bool | None
    error: float
    note: str


def compare_numbers(tracer: Tracer, slim: nn.Module, keep: Mask, budget: float | None) -> Numbers:
    """Runs the slim and the masked network in float64, in both modes, beyond ``budget`` FLOPs at a smaller size.

    If they differ, the tracer is told the first operator that reads other values.
    """
    inputs, note = _affordable(tracer, budget)
    if inputs is None:
        return Numbers(None, math.nan, note)
    worst = 0.0
    generator = torch.Generator().manual_seed(0)
    full = _randomised(tracer.model, generator)
    keeps = keeps_of(tracer.births, keep)
    thin = copy_model(slim, meta=False)
    thin = in_double(thin.to_empty(device="cpu") if _on_meta(thin) else thin)
    _load(thin, full, keeps)
    for train, run in tracer.runs.items():
        if run.failed:
            continue
        mode = f"{'train' if train else 'eval'} mode"
        drawn = _drawn(inputs, generator)
        for samples in (SAMPLES, 4 * SAMPLES) if train else (0,):
            pair = _Pair(tracer, full, thin, _distinct(_enough(drawn, samples)) if train else drawn, keep, train)
            try:
                expected = pair.run_masked()
            except Exception as problem:  # code that cannot run in float64
                logger.info("numeric check left out: %s", problem)
                text = f"numeric check left out: not in float64 ({problem})"[:300]
                return Numbers(None, math.nan, text)
            try:
                error = _difference(expected, pair.run_slim())
            except Exception as problem:
                text = f"the slim network does not run in {mode} where the masked one does ({problem})"[:300]
                return Numbers(False, math.nan, text)
            if error <= TOLERANCE or error > ROUNDING:
                break  # otherwise statistics over too few values may have scaled rounding up: take more
        worst = max(worst, error)
        if error <= TOLERANCE:
            continue
        noise = _difference(expected, pair.shaken().run_masked()) if train and error <= ROUNDING else 0.0
        if error > 100 * noise:
            tracer.failure = pair.departure()
            return Numbers(False, error, f"slim and masked outputs differ by {error:.2e} in {mode}")
        note = f"{mode} scales rounding of the input up to {noise:.1e}, and so the difference to {error:.1e}"
    return Numbers(True, worst, note)


def _difference(expected: Any, got: Any) -> float:
    """Largest difference of two outputs relative to the largest value; infinite if their shapes differ."""
    worst = 0.0
    for a, b in zip(tensors_in(expected), tensors_in(got), strict=True):
        if a.shape != b.shape:
            return math.inf
        if a.numel() and is_floating(a):
            difference, scale = (a - b).abs().max().item(), a.abs().max().item()
            worst = max(worst, difference / scale if scale else difference, key=lambda v: math.inf if v != v else v)
    return worst


@dataclass(frozen=True, slots=True)
class _Pair:
    """The masked and the slim network, ready to run on the same inputs in one mode."""

    tracer: Tracer
    full: nn.Module
    thin: nn.Module
    inputs: Any
    keep: Mask
    train: bool

    def run_masked(self, before: Callable[[int, OpRecord, list[torch.Tensor]], None] | None = None) -> Any:
        """Runs the full network with its removed channels silenced; ``before`` sees what every operator reads."""
        tracer = self.tracer
        masked = _sharing(self.full)
        space = LabelSpace(size=tracer.space.size)
        give_birth(masked, space, tracer.births)
        outermost = frozenset(index for mode, index in tracer.lessons.outermost if mode is self.train)
        options: dict[str, Any] = {"run": MaskedRun(self.keep), "outermost": outermost, "before": before}
        with _unwritten(masked):
            return run_labelled(
                masked, self.inputs, space, Ledger(), tracer.births, tracer.layers, train=self.train, **options
            )

    def run_slim(self, before: Callable[[int, list[torch.Tensor]], None] | None = None) -> Any:
        """Runs the slim network."""
        thin = _sharing(self.thin).train(self.train)
        with untouched_rng(), written_out(), torch.no_grad(), _unwritten(thin), Derandomised(before):
            return call(thin, self.inputs)

    def shaken(self) -> _Pair:
        """The same with inputs that are off by a rounding error."""

        def shake(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or not is_floating(x):
                return x
            noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype).to(x.device)
            return x * (1 + 1e-15 * noise)

        return replace(self, inputs=tree_map(shake, self.inputs))

    def departure(self) -> tuple[bool, int, str] | None:
        """The first operator that reads other values in the slim network than in the masked one.

        Both run the same operators, so sums over what each reads of the kept channels tell.
        """
        sums: list[list[float]] = []

        def note(index: int, record: OpRecord, tensors: list[torch.Tensor]) -> None:
            sums.append([_weight(kept) for kept in _restricted(record, tensors, self.keep)])

        def compare(index: int, tensors: list[torch.Tensor]) -> None:
            theirs = sums[index] if index < len(sums) else []
            mine = [_weight(tensor) for tensor in tensors]
            if len(mine) != len(theirs) or not np.allclose(mine, theirs, rtol=1e-8, atol=1e-10, equal_nan=True):
                raise MisalignedError(index, "code around it computes with the number of channels, or their places")

        self.run_masked(note)
        try:
            self.run_slim(compare)
        except MisalignedError as error:
            return self.train, error.index, error.detail
        return None


def _sharing(model: nn.Module) -> nn.Module:
    """A copy whose parameters share their storage, since a second one in float64 is half of what the check holds."""
    return copy_model(
        model, meta=False, twins={id(p): nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    )


@contextmanager
def _unwritten(model: nn.Module) -> Iterator[None]:
    """Puts back what a network writes to its parameters while it runs."""
    guard = Guard(model.parameters())
    with guard.batch(()), guard:
        yield


def _weight(tensor: torch.Tensor) -> float:
    """A sum in which no element can stand for another's absence; counts for tensors that hold no reals."""
    if not tensor.is_floating_point():
        return float(tensor.numel())
    return float(tensor.double().abs().sum())


def _restricted(record: OpRecord, tensors: list[torch.Tensor], keep: Mask) -> Iterator[torch.Tensor]:
    """What an operator reads, without the removed channels."""
    by_tensor: dict[int, dict[int, Any]] = {}
    for number, dim, labels in record.inputs:
        by_tensor.setdefault(number, {})[dim] = np.flatnonzero(keep[labels])
    for number, tensor in enumerate(tensors):
        yield cut_tensor(tensor, by_tensor.get(number, {}))


def _randomised(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A float64 copy in which no two channels look alike: one-dimensional tensors and constants are drawn at random."""
    copy = copy_model(model, meta=False)
    fresh = _on_meta(copy)
    copy = in_double(copy.to_empty(device="cpu") if fresh else copy)
    with torch.no_grad():
        for name, tensor in named_tensors(copy):
            if not is_floating(tensor):
                continue
            noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype).to(tensor.device)
            if name.endswith("running_var") or (tensor.dim() == 1 and name.endswith("weight")):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.device))
            elif tensor.dim() <= 1:
                tensor.copy_(0.3 * noise)
            elif fresh or bool((tensor == tensor.flatten()[:1]).all()):
                tensor.copy_(noise / max(1, tensor[0].numel()) ** 0.5)
    return copy


def _on_meta(model: nn.Module) -> bool:
    return any(tensor.device.type == "meta" for _, tensor in named_tensors(model))


def _load(thin: nn.Module, full: nn.Module, keeps: dict[str, dict[int, Any]]) -> None:
    source = dict(named_tensors(full))
    with torch.no_grad():
        for name, tensor in named_tensors(thin):
            tensor.copy_(cut_tensor(source[name], keeps.get(name, {})))


def _drawn(inputs: Any, generator: torch.Generator) -> Any:
    """Inputs in float64; what holds no data, or the same value everywhere, is drawn at random."""

    def draw(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not is_floating(x):
            return x
        if x.device.type == "meta" or not x.numel() or bool((x == x.flatten()[0]).all()):
            return torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return x.detach().to(torch.float64)

    return tree_map(draw, inputs)


def _enough(inputs: Any, samples: int) -> Any:
    """Inputs with at least so many samples, the given ones repeated."""
    sizes = {int(t.shape[0]) for t in tensors_in(inputs) if t.dim() > 1}
    if len(sizes) != 1:  # not every first dimension is a batch
        return at_least_two(inputs, samples)
    batch = sizes.pop()
    times = math.ceil(samples / max(1, batch))

    def repeat(x: Any) -> Any:  # vectors too: labels, lengths, time steps
        if not isinstance(x, torch.Tensor) or x.dim() < 1 or x.shape[0] != batch:
            return x
        return x.repeat(times, *[1] * (x.dim() - 1))

    return tree_map(repeat, inputs)


def _distinct(inputs: Any) -> Any:
    """Samples that differ: a batch of equal ones leaves train-mode norms nothing but rounding noise to scale up."""

    def shake(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not is_floating(x) or x.dim() < 2:
            return x
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype).to(x.device)
        return x + 0.5 * x.std() * noise

    return tree_map(shake, inputs)


def _affordable(tracer: Tracer, budget: float | None) -> tuple[Any, str]:
    """The example, made smaller if the check would cost more than the budget; None if it cannot be."""
    flops = float(sum(op.flops for op in tracer.ops.values()))
    if budget is None or flops <= budget:
        return tracer.example, ""
    inputs = tree_map(lambda x: x[:1] if isinstance(x, torch.Tensor) and x.dim() > 1 else x, tracer.example)
    best, cost = None, math.inf
    for factor in (2, 4, 8, 16):
        smaller = tree_map(lambda x, factor=factor: _shrunk(x, factor), inputs)
        found = _cost(tracer.model, smaller)
        if found is not None and found < cost:
            best, cost = smaller, found
        if cost <= budget:
            sizes = [tuple(t.shape) for t in tensors_in(best)]
            return best, f"compared at the smaller size {sizes}"
    reason = "cannot be run smaller" if best is None else "is too large even at its smallest size"
    return None, f"numeric check left out: the network {reason} (call ranp.verify with a small example)"


def _shrunk(x: Any, factor: int) -> Any:
    if not isinstance(x, torch.Tensor) or x.dim() < 3:
        return x
    for dim in range(2, x.dim()):
        x = x.narrow(dim, 0, max(1, x.shape[dim] // factor))
    return x


def _cost(model: nn.Module, inputs: Any) -> float | None:
    """FLOPs of a run at another size without data, None if the network does not run there in both modes."""
    copy = copy_model(model, meta=True)
    try:
        with torch.no_grad(), untouched_rng(), MetaMode(), OpRecorder() as counter:
            call(copy.eval(), to_meta(inputs))
            call(copy.train(), at_least_two(to_meta(inputs)))
    except Exception as error:
        logger.debug("not at this size: %s", error)
        return None
    return float(sum(op.flops for op in counter.ops))
