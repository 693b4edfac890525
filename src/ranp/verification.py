"""The guard at the end: a slim network must be the full one with its removed channels silenced, or it is refused.

Two checks that catch different mistakes. The *certificate* runs the slim network with the full network's labels and
compares every operator: the same operators must read the same channels in the same order, and every tensor must be cut
exactly as the classes say. The *numeric* check runs both networks in float64 on the same input, with norm parameters
and statistics drawn at random so that a misplaced one shows, and compares their outputs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from ranp.errors import PlanMismatchError
from ranp.masking import Derandomised, MaskedRun
from ranp.plan import Plan
from ranp.slimming import removed_classes
from ranp.slimming import slim as make_slim
from ranp.tracing.cutting import cut_copy, cut_tensor, sizes_of
from ranp.tracing.labels import Classes, LabelSpace
from ranp.tracing.probing import Mask, MisalignedError, keeps_of, widened
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
    unwrap,
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
class Verification:
    """What the checks found.

    Attributes:
        ok: True if nothing failed.
        max_error: Largest difference between slim and masked outputs, relative to the largest output; NaN if left out.
        certificate: True if the slim network runs the same operators on the kept channels, in order.
        numeric: True if outputs agree in float64, None if the check was left out.
        where: What failed first, or why the numeric check was left out or made smaller. Empty if all is well.
    """

    ok: bool
    max_error: float
    certificate: bool
    numeric: bool | None
    where: str = ""


def verify(model: nn.Module, plan: Plan, example: Any, *, slim: nn.Module | None = None) -> Verification:
    """Compares a slim network with the full one whose removed channels are silenced at their consumers, in float64.

    Args:
        model: The full network.
        plan: What was removed.
        example: Inputs of one call; the numeric check runs at this size.
        slim: The slim network, if it is not ``ranp.slim(model, plan)``. It must still hold the copied weights: a
            network that was trained or re-initialised since is another function.
    """
    network = unwrap(model)
    tracer = Tracer(network, example)
    tracer.start()
    return check(tracer, plan, slim)


def check(tracer: Tracer, plan: Plan, slim: nn.Module | None = None, *, budget: float | None = None) -> Verification:
    """``verify`` for a network that is traced already; a numeric check beyond ``budget`` FLOPs is made smaller."""
    certified = certify(tracer, plan, slim)
    if certified and not tracer.settled:
        tracer.settle()  # code that assumes sizes may need views read the other way round, or attributes cut too
        certified = certify(tracer, plan, slim)
    if certified:
        return Verification(False, math.nan, False, None, certified)
    network = slim if slim is not None else make_slim(tracer.model, plan, example=tracer.example)
    strange = _strange_weights(tracer.model, network, plan) if slim is not None else ""
    if strange:
        return Verification(False, math.nan, True, False, strange)
    return _numeric(tracer, network, removed_labels(tracer, tracer.space.resolve(), plan), budget)


def removed_labels(tracer: Tracer, classes: Classes, plan: Plan) -> Mask:
    """Of every label whether it stays, from the plan's decisions by layer; pinned labels always stay."""
    stays = np.ones(len(classes.ids), bool)
    stays[sorted(removed_classes(tracer.assembled(classes), plan))] = False
    kept: Mask = stays[classes.ids]
    return kept


def certify(tracer: Tracer, plan: Plan, slim: nn.Module | None) -> str:
    """What is wrong with a slim network's structure; empty if nothing is."""
    classes = tracer.space.resolve()
    try:
        keep = removed_labels(tracer, classes, plan)
    except PlanMismatchError as error:
        return str(error)
    expected = keeps_of({**tracer.births, **tracer.attributes}, keep)
    same_size = all(
        sizes_of(tracer.model, [name]).get(name, (0,) * 9)[dim] == cut.size
        for name, cuts in plan.cuts.items()
        for dim, cut in cuts.items()
    )
    if same_size:
        wrong = _wrong_cut(plan, expected)
        if wrong:
            return wrong
    network = slim if slim is not None else make_slim(tracer.model, plan, example=tracer.example)
    for name, shape in sizes_of(network, []).items():
        full = dict(named_tensors(tracer.model)).get(name)
        by_dim = expected.get(name, {})
        should = None if full is None else tuple(len(by_dim.get(d, range(n))) for d, n in enumerate(full.shape))
        if shape != should:
            return f"{name!r} has shape {shape}, the plan asks for {should}"
    twin = widened(keep, classes, tracer.births)
    for train, run in tracer.runs.items():
        if run.failed:
            continue
        if np.array_equal(twin, keep):
            copy = copy_model(network, meta=tracer.meta)
        else:  # a single channel has no order to compare: certify the same cut with two, and see that this one runs
            wide = keeps_of({**tracer.births, **tracer.attributes}, twin)
            copy = cut_copy(tracer.model, wide, meta=tracer.meta)
            problem = tracer.shapes_differ(copy_model(network, meta=tracer.meta), train)
            if problem:
                return f"in {'train' if train else 'eval'} mode, {problem}"
        failure = tracer.compare(copy, classes, twin, train)
        if failure is not None:
            return f"in {'train' if train else 'eval'} mode, {failure[1]}"
    return ""


def _wrong_cut(plan: Plan, expected: dict[str, dict[int, Any]]) -> str:
    for name in {**plan.cuts, **expected}:
        mine, theirs = plan.cuts.get(name, {}), expected.get(name, {})
        for dim in {**mine, **theirs}:
            kept = tuple(mine[dim].keep) if dim in mine else None
            right = theirs.get(dim)
            if kept != right:
                return f"dimension {dim} of {name!r} is not cut as the channels it holds are"
    return ""


def _strange_weights(model: nn.Module, slim: nn.Module, plan: Plan) -> str:
    """Names a tensor of the slim network that is not the kept part of the full one's."""
    full = dict(named_tensors(model))
    for name, tensor in named_tensors(slim):
        if tensor.device.type == "meta" or full[name].device.type == "meta":
            continue
        by_dim = {dim: cut.keep for dim, cut in plan.cuts.get(name, {}).items()}
        kept = cut_tensor(full[name], by_dim).to(tensor.device)
        if tensor.shape != kept.shape or not torch.equal(tensor.detach().to(kept.dtype), kept):
            return f"{name!r} does not hold the kept weights of the full network (trained or drawn anew since?)"
    return ""


def _numeric(tracer: Tracer, slim: nn.Module, keep: Mask, budget: float | None) -> Verification:
    inputs, note = _affordable(tracer, budget)
    if inputs is None:
        return Verification(True, math.nan, True, None, note)
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
                return Verification(True, math.nan, True, None, text)
            try:
                error = _difference(expected, pair.run_slim())
            except Exception as problem:
                text = f"the slim network does not run in {mode} where the masked one does ({problem})"[:300]
                return Verification(False, math.nan, True, False, text)
            if error <= TOLERANCE or error > ROUNDING:
                break  # otherwise statistics over too few values may have scaled rounding up: take more
        worst = max(worst, error)
        if error <= TOLERANCE:
            continue
        noise = _difference(expected, pair.shaken().run_masked()) if train and error <= ROUNDING else 0.0
        if error > 100 * noise:
            tracer.failure = pair.departure()
            return Verification(False, error, True, False, f"slim and masked outputs differ by {error:.2e} in {mode}")
        note = f"{mode} scales rounding of the input up to {noise:.1e}, and so the difference to {error:.1e}"
    return Verification(True, worst, True, True, note)


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
        masked = copy_model(self.full, meta=False)
        space = LabelSpace(size=tracer.space.size)
        give_birth(masked, space, tracer.births)
        outermost = frozenset(index for mode, index in tracer.outermost if mode is self.train)
        options: dict[str, Any] = {"run": MaskedRun(self.keep), "outermost": outermost, "before": before}
        return run_labelled(
            masked, self.inputs, space, Ledger(), tracer.births, tracer.layers, train=self.train, **options
        )

    def run_slim(self, before: Callable[[int, list[torch.Tensor]], None] | None = None) -> Any:
        """Runs the slim network."""
        with untouched_rng(), written_out(), torch.no_grad(), Derandomised(before):
            return call(copy_model(self.thin, meta=False).train(self.train), self.inputs)

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
