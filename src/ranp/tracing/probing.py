"""The probe: run a cut copy beside the full network's records, operator by operator, up to the first that departs.

The rules know what operators do, not what Python code around them assumes: a size baked into ``x.view(b, 64, -1)``, a
loop over channels, a slice by a number. A slim copy that dies, or whose channels are not the full network's channels
in the same order at some operator, shows where. The same comparison is the certificate of a finished slim network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from ranp.running.calling import first_line, tensors_in
from ranp.running.copies import holdings
from ranp.tracing.asking import asks_for_mode
from ranp.tracing.constants import Values
from ranp.tracing.cuts import Mask, keeps_of
from ranp.tracing.cutting import cut_copy
from ranp.tracing.labels import FILLER, RIGID, Classes, LabelSpace, Vector, has_filler
from ranp.tracing.ledger import Ledger, OpRecord
from ranp.tracing.running import give_birth

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer

MOVING = frozenset(
    "view _unsafe_view reshape _reshape_alias expand clone contiguous squeeze unsqueeze permute transpose t alias "
    "detach as_strided".split()
)
"""Operators that move data and compute nothing; whether they run may depend on sizes alone."""
PATH = "code takes another path, or other channels, when channels go"
"""Why channels stay where a cut network departs from the full one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Where a slim network departs from the full one.

    Attributes:
        train: Mode of the run.
        index: Number of the operator in the full network's records of that mode.
        detail: What differs there.
        reason: What that says of the code: why channels must stay there.
    """

    train: bool
    index: int
    detail: str
    reason: str


class MisalignedError(Exception):
    """The slim run departed from the full one at an operator.

    Attributes:
        index: Number of the operator.
        reason: What that says of the code: why channels must stay there.
    """

    def __init__(self, index: int, detail: str, reason: str = PATH) -> None:
        super().__init__(detail)
        self.index, self.reason = index, reason

    @classmethod
    def around(cls, index: int, full: OpRecord, what: str) -> MisalignedError:
        """For code around an operator that does something else when channels go."""
        return cls(index, f"code around {full.name} in {full.where!r} {what}", f"code {what}")


@dataclass(slots=True)
class Comparison:
    """Compares a slim run with the full one, operator by operator, while the slim one runs.

    Attributes:
        expected: What the full network ran.
        roots: Class of each label.
        keep: Labels that stay.
        numbers: False where plain numbers may come from the data, and are not compared.
    """

    expected: Sequence[OpRecord]
    roots: Vector
    keep: Mask
    numbers: bool = True
    _left: dict[int, tuple[Vector, Vector]] = field(default_factory=dict)

    def left(self, vector: Vector) -> Vector:
        """What stays of labels of the full network: the same array every time, so that most need no comparison."""
        known = self._left.get(id(vector))
        if known is None:
            known = self._left[id(vector)] = (vector, vector[self.keep[vector]])
            known[1].flags.writeable = vector.flags.writeable  # without fillers there are none left
        return known[1]

    def __call__(self, index: int, record: OpRecord, tensors: object = None) -> None:
        """Raises at the first operator that is another one, or reads other channels."""
        if index >= len(self.expected):
            raise MisalignedError(index - 1, f"the slim network runs {record.name} where the full one had ended")
        if self.expected[index].name != record.name:
            full = self.expected[index]
            raise MisalignedError(index, f"the slim network runs {record.name} where the full one runs {full.name}")
        self.compare(index, record)

    def finish(self, count: int) -> None:
        """Raises if the slim run ended before the full one."""
        if count < len(self.expected):
            missing = self.expected[count]
            raise MisalignedError(count, f"the slim network ended before {missing.name} in {missing.where!r}")

    def compare(self, index: int, record: OpRecord) -> None:
        """Raises if an operator does not read what is left of what the full network's operator of that number reads."""
        full = self.expected[index]
        if self.numbers:
            if full.numbers != record.numbers and not np.array_equal(full.numbers, record.numbers, equal_nan=True):
                raise MisalignedError.around(index, full, "computes a number from the count of channels")
            self._compare_constants(index, full, record)
        self._compare_shapes(index, full, record)
        self._compare_labels(index, full, {(i, d): v for i, d, v in record.inputs})

    def _compare_labels(self, index: int, full: OpRecord, mine: dict[tuple[int, int], Vector]) -> None:
        """Every operator must read the channels that stay, in their order."""
        for i, d, vector in full.inputs:
            stays = self.left(vector)
            slim = mine.pop((i, d), None)
            if slim is stays:
                continue
            if self._single(stays):  # one channel carries no labels, however often it lies there
                if slim is None or self._single(slim[slim != FILLER]):
                    continue
                raise MisalignedError(index, f"{full.name} in {full.where!r} reads more channels than are kept")
            if slim is None:
                raise MisalignedError(index, f"{full.name} in {full.where!r} lost track of its channels")
            if not self._same(stays, slim):
                raise MisalignedError(
                    index, f"{full.name} in {full.where!r} reads other channels than the full network"
                )
        if not all(self._single(vector) for vector in mine.values()):
            raise MisalignedError(index, f"{full.name} in {full.where!r} reads channels the full network does not")

    def _compare_constants(self, index: int, full: OpRecord, slim: OpRecord) -> None:
        """Every constant must hold, for the channels that stay, the numbers it held in the full network."""
        if not full.constants:
            return
        mine = {constant.number: constant.values for constant in slim.constants}
        for constant in full.constants:
            values = constant.values
            for dim, vector in enumerate(constant.labels):
                if vector is not None and values.shape[dim] == len(vector):
                    values = values.take(np.flatnonzero(self.keep[vector]), axis=dim)
            found = mine.get(constant.number)
            if found is None or found.ndim != values.ndim or not _alike(found, values):
                raise MisalignedError.around(index, full, "makes a constant that depends on the channels")

    def _compare_shapes(self, index: int, full: OpRecord, slim: OpRecord) -> None:
        """Every tensor must be as large as what stays of the full network's."""
        wanted = list(full.shapes)
        for i, d, vector in full.inputs:
            shape = wanted[i]
            if shape is not None:
                left = (
                    len(self.left(vector)) * shape[d] // max(len(vector), 1)
                )  # of each group, if numbered through all
                size = -1 if has_filler(vector) else left
                wanted[i] = (*shape[:d], size, *shape[d + 1 :])
        for want, found in zip(wanted, slim.shapes, strict=False):
            if want == found or want is None or found is None:
                continue
            if not self.fits(want, found):
                raise MisalignedError.around(index, full, f"regroups channels: {tuple(found)}, and not {tuple(want)}")

    def fits(self, want: Sequence[int], found: Sequence[int]) -> bool:
        """True for the same shape; -1 is any size."""
        return len(want) == len(found) and all(w in (-1, f) for w, f in zip(want, found, strict=True))

    def _single(self, vector: Vector) -> bool:
        """True if all labels are of one class."""
        if len(vector) < 2:
            return True
        roots = self.roots[vector]
        return bool((roots == roots[0]).all())

    def _same(self, full: Vector, slim: Vector) -> bool:
        full, slim = full[full != FILLER], slim[slim != FILLER]
        if len(full) != len(slim):  # a filler of size one has no labels, and looks rigid when it is joined to others
            full, slim = full[full != RIGID], slim[slim != RIGID]
        if len(full) != len(slim):
            return False
        return bool(((self.roots[full] == self.roots[slim]) | (slim == RIGID)).all())


@dataclass(slots=True)
class LooseComparison(Comparison):
    """Compares where some layer keeps a single channel: torch then moves data in other ways, or not at all.

    Operators that only move data are passed over. Where the others do not pair up either, ``lost`` is set, and nothing
    more is compared.
    """

    at: int = 0
    lost: bool = False

    def __call__(self, index: int, record: OpRecord, tensors: object = None) -> None:
        """Raises where an operator reads other channels, sizes or numbers than are left of the full network's."""
        if self.lost or record.name in MOVING:
            return
        while self.at < len(self.expected) and self.expected[self.at].name in MOVING:
            self.at += 1
        full = self.expected[self.at] if self.at < len(self.expected) else None
        ranks = None if full is None else [None if shape is None else len(shape) for shape in full.shapes]
        if full is None or full.name != record.name or ranks != [None if s is None else len(s) for s in record.shapes]:
            self.lost = True
            return
        self.compare(self.at, record)
        self.at += 1

    def finish(self, count: int) -> None:
        """Operators that only move data may be missing at the end too."""

    def _compare_labels(self, index: int, full: OpRecord, mine: dict[tuple[int, int], Vector]) -> None:
        """Labels that are still there must be the right ones; single channels have none, and are rigid when joined."""
        for i, d, vector in full.inputs:
            slim = mine.get((i, d))
            stays = vector[self.keep[vector]]
            if slim is None or len(slim) != len(stays):
                continue
            known = (slim > RIGID) & (stays > RIGID)
            if (self.roots[slim[known]] == self.roots[stays[known]]).all():
                continue
            if len(stays) == len(vector):  # nothing is cut here: a view before it was one of those that are missing
                self.lost = True
                return
            raise MisalignedError(index, f"{full.name} in {full.where!r} reads other channels than the full network")


def _alike(one: Values, other: Values) -> bool:
    """True for equal numbers; along a dimension of size one they count for all."""
    if any(n != m and 1 not in (n, m) for n, m in zip(one.shape, other.shape, strict=True)):
        return False
    return bool(np.isclose(one, other, rtol=1e-6, atol=0.0, equal_nan=True).all())


def probe(tracer: Tracer, classes: Classes, keep: Mask) -> Failure | None:
    """Runs a cut copy in each mode beside the full records; None if they agree at every operator."""
    keeps = keeps_of({**tracer.births, **tracer.attributes}, keep)
    modes = [train for train, run in tracer.runs.items() if not run.failed]
    if len(modes) > 1 and trains_alike(tracer) and not asks_for_mode(tracer):
        modes.remove(True)
    copy = before = None
    for train in modes:
        if copy is None or not tracer.meta or holdings(copy) != before:
            copy = cut_copy(tracer.model, keeps, meta=tracer.meta)
            before = holdings(copy) if len(modes) > 1 else None
        failure = compare(tracer, copy, classes, keep, train)
        if failure is not None:
            return failure
    return None


def trains_alike(tracer: Tracer) -> bool:
    """True if train mode runs the operators of eval mode on the same channels, but for what norms and dropout add.

    Then a trial cut that runs in one mode runs in the other, unless code counts channels in that mode alone.
    """
    one, other = (
        [record for record in tracer.runs[mode].ledger.records if record.inputs and record.where not in tracer.dropouts]
        for mode in (False, True)
    )
    return len(one) == len(other) and all(
        a.name == b.name
        and a.where == b.where
        and len(a.inputs) == len(b.inputs)
        and all(
            x[:2] == y[:2] and (x[2] is y[2] or np.array_equal(x[2], y[2]))
            for x, y in zip(a.inputs, b.inputs, strict=True)
        )
        for a, b in zip(one, other, strict=True)
    )


def compare(tracer: Tracer, slim: nn.Module, classes: Classes, keep: Mask, train: bool) -> Failure | None:
    """Runs a cut copy beside the full network's records; None if they agree at every operator."""
    expected = tracer.runs[train].ledger.records
    return compare_with(tracer, slim, Comparison(expected, classes.roots, keep, numbers=tracer.meta), train)


def compare_loosely(
    tracer: Tracer, slim: nn.Module, classes: Classes, keep: Mask, train: bool
) -> tuple[bool | None, Failure | None]:
    """The same for a copy with single channels: whether they agree (None: unknown), and what differs."""
    expected = tracer.runs[train].ledger.records
    comparison = LooseComparison(expected, classes.roots, keep, numbers=tracer.meta)
    failure = compare_with(tracer, slim, comparison, train)
    return (False if failure is not None else None if comparison.lost else True), failure


def compare_with(tracer: Tracer, slim: nn.Module, comparison: Comparison, train: bool) -> Failure | None:
    """Runs a cut copy in one mode and compares; None if all agrees."""
    births = {key: comparison.left(labels) for key, labels in tracer.births.items()}
    scratch, ledger = LabelSpace(size=tracer.space.size), Ledger()
    give_birth(slim, scratch, births)
    try:
        out = tracer.run(slim, scratch, ledger, births, train, full=False, before=comparison)
        comparison.finish(len(ledger.records))
    except MisalignedError as error:
        return Failure(train, error.index, str(error), error.reason)
    except Exception as error:
        at = len(ledger.records) - (1 if ledger.in_flight else 0)
        reason = f"code assumes a size: {first_line(error)}"
        return Failure(train, at, reason, reason)
    shapes = [tuple(tensor.shape) for tensor in tensors_in(out)]
    wanted = tracer.runs.get(train, tracer.runs[False]).shapes
    if len(shapes) == len(wanted) and all(map(comparison.fits, wanted, shapes)):
        return None
    last = min(len(ledger.records), len(comparison.expected)) - 1
    detail = f"the outputs have shapes {shapes}, not {wanted}"
    return Failure(train, last, detail, "code gives outputs of another shape when channels go")
