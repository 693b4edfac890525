"""Running both networks on the same numbers: in float64 where that can be, else in float32, and never not at all.

Attempts follow one another until one is conclusive: equal, or not. An attempt is inconclusive if the masked network
does not run so, if what it gives is not finite, or if it is the same everywhere.
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

from ranp.running.calling import at_least_two, call, first_line, is_floating, tensors_in, written_out
from ranp.running.copies import sharing
from ranp.running.guard import Guard
from ranp.slimming.masking import Derandomised, MaskedRun
from ranp.slimming.numeric.sizes import affordable
from ranp.slimming.numeric.values import CAREFUL, DRAWN, OWN, REDRAWN, inputs_for, networks, shaken, with_rows
from ranp.tracing.cuts import Mask, keeps_of
from ranp.tracing.cutting import cut_tensor
from ranp.tracing.labels import LabelSpace
from ranp.tracing.ledger import Ledger, OpRecord, places_of
from ranp.tracing.probing import Failure, MisalignedError, trains_alike
from ranp.tracing.running import give_birth, run_labelled
from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

SAMPLES, FEW = 4, 2
"""Batch in train mode: statistics over two values scale rounding up, so two are taken only where more cost too much.

There, a network that runs the same operators in both modes is compared in eval mode alone.
"""


@dataclass(frozen=True, slots=True)
class Precision:
    """In which type numbers are compared, and what its rounding explains.

    Attributes:
        double: True for float64, False for float32.
        tolerance: Largest difference of outputs, relative to the largest one, that is taken for rounding.
        amplified: Up to here, a difference may be rounding that many norms scaled up: how far they do is measured.
    """

    name: str
    double: bool
    tolerance: float
    amplified: float


FLOAT64 = Precision("float64", True, 1e-9, 1e-4)
FLOAT32 = Precision("float32", False, 1e-4, 1e-2)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of a slim network found.

    Attributes:
        agrees: Whether it agrees with the full one; None if that is not known.
        note: What differs, why it is not known, or how it was compared.
        failure: The first operator at which the networks part, if they do.
        error: Largest difference of outputs, relative to the largest one; NaN if there is none.
    """

    agrees: bool | None
    note: str = ""
    failure: Failure | None = None
    error: float = math.nan


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to compare: inputs, type, values."""

    inputs: Any
    precision: Precision
    values: str
    seed: int
    rows: int
    note: str


class _InconclusiveError(Exception):
    """An attempt that neither shows that the networks agree nor that they differ."""


def compare_numbers(
    tracer: Tracer, slim: nn.Module, keep: Mask, budget: float | None, *, sparing: bool = False
) -> Finding:
    """Runs the slim and the masked network in both modes, beyond ``budget`` FLOPs at a smaller size if there is one.

    With ``sparing``, where memory is refused, or where no size is cheap, both networks run in float32, and share the
    weights that are not drawn.
    """
    reasons: dict[str, None] = {}
    impossible: set[tuple[Precision, int]] = set()
    for attempt in _attempts(tracer, budget, sparing):
        way = (attempt.precision, id(attempt.inputs))
        if way in impossible:
            continue
        try:
            return _compare(attempt, tracer, slim, keep)
        except _InconclusiveError as problem:
            logger.info("the numeric check is inconclusive with %s values: %s", attempt.values, problem)
            reasons[f"with {attempt.values} values, {problem}"] = None
        except Exception as problem:  # the masked network does not run so, whatever its values
            logger.info("no numeric check in %s: %s", attempt.precision.name, problem)
            impossible.add(way)
            reasons[f"in {attempt.precision.name} it does not run ({first_line(problem, 160)})"] = None
    return Finding(None, f"the numbers could not be compared: {'; '.join(reasons)}"[:400])


def _attempts(tracer: Tracer, budget: float | None, sparing: bool) -> Iterator[_Attempt]:
    """Ways to compare, the most conclusive first, the user's own example as it is last."""
    smaller, note, cheap = affordable(tracer, budget)
    in_single = sparing or not cheap  # float64 takes many times the memory and time of float32 in some kernels
    sizes = [(smaller, note, SAMPLES if cheap else FEW)]
    sizes += [] if smaller is tracer.example else [(tracer.example, "", FEW)]
    has_data = all(t.device.type != "meta" for t in (*tensors_in(tracer.example), *tracer.model.parameters()))
    for inputs, note, rows in sizes:
        for precision in (FLOAT32, FLOAT64) if in_single else (FLOAT64, FLOAT32):
            for seed, values in enumerate((DRAWN, CAREFUL, *([OWN] if has_data else []), REDRAWN, REDRAWN, REDRAWN)):
                yield _Attempt(inputs, precision, values, seed, rows, note)


def _compare(attempt: _Attempt, tracer: Tracer, slim: nn.Module, keep: Mask) -> Finding:
    """One attempt in both modes.

    Raises:
        _InconclusiveError: It shows neither that the networks agree nor that they differ.
    """
    precision, generator = attempt.precision, torch.Generator().manual_seed(attempt.seed)
    options: dict[str, Any] = {"values": attempt.values, "double": precision.double, "generator": generator}
    full, thin = networks(tracer.model, slim, keeps_of(tracer.births, keep), **options)
    worst, notes = 0.0, [attempt.note, "" if precision.double else f"compared in {precision.name}"]
    alike = attempt.rows == FEW and not tracer.runs[True].failed and trains_alike(tracer)
    if alike:
        notes.append("compared in eval mode: train mode runs the same operators")
    for train, run in tracer.runs.items():
        if run.failed or (train and alike):
            continue
        mode = f"{'train' if train else 'eval'} mode"
        given = _Pair(tracer, full, thin, inputs_for(attempt.inputs, **options), keep, train, precision)
        for rows in (attempt.rows, 4 * attempt.rows) if train else (0,):
            expected, pair = given.with_rows(rows, attempt.values) if train else (given.run_masked(), given)
            error = pair.difference(expected)
            if error <= precision.tolerance or error > precision.amplified:
                break  # otherwise statistics over too few values may have scaled rounding up: take more
        worst = max(worst, error)
        if error <= precision.tolerance:
            continue
        noise = 0.0
        if error <= precision.amplified:
            noise = _difference(expected, replace(pair, inputs=shaken(pair.inputs)).run_masked())
        if error > 100 * noise:
            note = f"slim and masked outputs differ by {error:.2e} in {mode}"
            return Finding(False, note, pair.departure(), error)
        notes.append(f"{mode} scales rounding of the input up to {noise:.1e}, and so the difference to {error:.1e}")
    return Finding(True, "; ".join(filter(None, notes)), error=worst)


def _difference(expected: Any, got: Any) -> float:
    """Largest difference of two outputs relative to the largest value of each; infinite if shapes or kinds differ.

    Raises:
        _InconclusiveError: What is expected is not finite, or is the same everywhere, so that equality means nothing.
    """
    pairs = list(zip(tensors_in(expected), tensors_in(got), strict=True))
    reals = [(a, b) for a, b in pairs if is_floating(a) and a.numel()]
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    if not all(bool(torch.isfinite(a).all()) for a, _ in reals):
        raise _InconclusiveError("the outputs of the full network are not finite")
    if not any(_varies(a) for a, _ in pairs):
        raise _InconclusiveError("the outputs of the full network are the same everywhere")
    if not all(bool(torch.isfinite(b).all()) for _, b in reals):
        return math.inf
    if not reals and not all(torch.equal(a, b) for a, b in pairs):
        return math.inf
    return max((float((a - b).abs().max() / a.abs().max().clamp(min=1e-300)) for a, b in reals), default=0.0)


def _varies(tensor: torch.Tensor) -> bool:
    """True if equality of a tensor means something: a single number that is not zero does, equal ones do not."""
    if tensor.numel() < 2:
        return bool(tensor.any()) if tensor.numel() else False
    return bool((tensor != tensor.flatten()[0]).any())


@dataclass(frozen=True, slots=True)
class _Pair:
    """The masked and the slim network, ready to run on the same inputs in one mode."""

    tracer: Tracer
    full: nn.Module
    thin: nn.Module
    inputs: Any
    keep: Mask
    train: bool
    precision: Precision

    def with_rows(self, rows: int, values: str) -> tuple[Any, _Pair]:
        """The masked outputs of so many samples, or of fewer where the network takes no more; and the pair for them."""
        pair = replace(self, inputs=with_rows(self.inputs, rows, values=values))
        try:
            return pair.run_masked(), pair
        except Exception as problem:
            logger.info("not with %d samples: %s", rows, problem)
            pair = replace(self, inputs=at_least_two(self.inputs))
            return pair.run_masked(), pair

    def run_masked(
        self, before: Callable[[int, OpRecord, list[torch.Tensor]], None] | None = None, ledger: Ledger | None = None
    ) -> Any:
        """Runs the full network with its removed channels silenced; ``before`` sees what every operator reads."""
        tracer = self.tracer
        masked = sharing(self.full)  # a second one in float64 is half of what the check holds
        space = LabelSpace(size=tracer.space.size)
        give_birth(masked, space, tracer.births)
        # At another size there may be more operators, or fewer.
        places = places_of(tracer.runs[self.train].ledger.records)
        turned = {places[i]: part for (mode, i), part in tracer.lessons.carriers.items() if mode is self.train}
        run = MaskedRun(self.keep, double=self.precision.double)
        options: dict[str, Any] = {"run": run, "carriers_at": turned, "before": before, "watches": False}
        options["head_size"] = run.head_size
        ledger = Ledger() if ledger is None else ledger
        with _unwritten(masked):
            return run_labelled(
                masked, self.inputs, space, ledger, tracer.births, tracer.layers, train=self.train, **options
            )

    def run_slim(self, before: Callable[[int, list[torch.Tensor]], None] | None = None) -> Any:
        """Runs the slim network."""
        thin = sharing(self.thin).train(self.train)
        double = self.precision.double
        with written_out(), torch.no_grad(), _unwritten(thin), Derandomised(before, double=double):
            return call(thin, self.inputs)

    def difference(self, expected: Any) -> float:
        """How far the slim network is from what is expected; infinite where it does not run though the masked one does.

        Raises:
            _InconclusiveError: Memory was refused, or what is expected says nothing.
        """
        try:
            got = self.run_slim()
        except Exception as problem:
            if isinstance(problem, MemoryError) or "memory" in str(problem):
                raise _InconclusiveError(f"memory was refused ({first_line(problem, 160)})") from problem
            logger.info("the slim network does not run where the masked one does: %s", problem)
            return math.inf
        return _difference(expected, got)

    def departure(self) -> Failure:
        """The first operator that reads other values in the slim network than in the masked one, or the last of all.

        Both run the same operators, so sums over what each reads of the kept channels show it.
        """
        sums: list[list[float]] = []
        ledger = Ledger()
        close = {"rtol": 10 * self.precision.tolerance, "atol": 0.1 * self.precision.tolerance}

        def note(index: int, record: OpRecord, tensors: list[torch.Tensor]) -> None:
            sums.append([_weight(kept) for kept in _restricted(record, tensors, self.keep)])

        def compare(index: int, tensors: list[torch.Tensor]) -> None:
            theirs = sums[index] if index < len(sums) else []
            mine = [_weight(tensor) for tensor in tensors]
            if len(mine) != len(theirs) or not np.allclose(mine, theirs, equal_nan=True, **close):
                raise MisalignedError(index, "code computes with the number of channels, or their places")

        self.run_masked(note, ledger)
        try:
            self.run_slim(compare)
        except MisalignedError as error:
            return Failure(self.train, self._in_trace(ledger, error.index), str(error), str(error))
        except Exception as error:
            logger.info("the slim network does not run: %s", error)
        last, reason = self._in_trace(ledger, len(ledger.records) - 1), "code gives other outputs when channels go"
        return Failure(self.train, last, reason, reason)

    def _in_trace(self, ledger: Ledger, index: int) -> int:
        """The number that an operator of a run at this size has in the trace."""
        place = places_of(ledger.records)[min(index, len(ledger.records) - 1)]
        places = places_of(self.tracer.runs[self.train].ledger.records)
        return places.index(place) if place in places else min(index, len(places) - 1)


@contextmanager
def _unwritten(model: nn.Module) -> Iterator[None]:
    """Puts back what a network writes to its parameters while it runs."""
    guard = Guard(model.parameters())
    with guard.batch(()), guard:
        yield


def _weight(tensor: torch.Tensor) -> float:
    """A sum in which no element can stand for another, nor at its place; counts for tensors that hold no reals."""
    if not tensor.is_floating_point():
        return float(tensor.numel())
    places = torch.arange(tensor.numel(), dtype=torch.float64, device=tensor.device).reshape(tensor.shape)
    return float((tensor.double().abs() * (1.5 + places.sin())).sum())


def _restricted(record: OpRecord, tensors: list[torch.Tensor], keep: Mask) -> Iterator[torch.Tensor]:
    """What an operator reads, without the removed channels."""
    by_tensor: dict[int, dict[int, Any]] = {}
    for number, dim, labels in record.inputs:
        by_tensor.setdefault(number, {})[dim] = np.flatnonzero(keep[labels])
    for number, tensor in enumerate(tensors):
        yield cut_tensor(tensor, by_tensor.get(number, {}))
