"""The probe: cut a copy at random inside its classes, run it, and compare it with the full run operator by operator.

The rules know what operators do, not what Python code around them assumes: a size baked into ``x.view(b, 64, -1)``, a
loop over channels, a slice by a number. A slim copy that dies, or whose channels are not the full network's channels
in the same order at some operator, shows where. The same comparison is the certificate of a finished slim network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ranp.tracing.constants import Values
from ranp.tracing.labels import FILLER, RIGID, Classes, Vector, has_filler
from ranp.tracing.ledger import OpRecord
from ranp.tracing.running import Births

Mask = npt.NDArray[np.bool_]


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


class Sets:
    """The sets of classes that dimensions of tensors hold: many hold the same, and each is looked at once.

    Attributes:
        held: Class of each index of a dimension, for each set.
        distinct: The classes of each, without those that must stay, sorted.
        ranked: Classes that pieces count, one flag for each.
    """

    def __init__(self, classes: Classes, births: Births) -> None:
        self.classes = classes
        found = {(ids := classes.ids[labels]).tobytes(): ids for labels in births.values()}
        self.held = [ids for ids in found.values() if ids.any()]
        self.distinct = [ids[ids != 0] for ids in map(np.unique, self.held)]
        self.ranked = np.zeros(len(classes.ids), bool)
        for entry in classes.pieces:
            self.ranked[np.concatenate(entry)] = True


def random_keep(classes: Classes, births: Births, seed: int = 0) -> Mask:
    """Which labels stay in a trial cut: about half of the classes, equal counts in pieces, two or more anywhere."""
    rng = np.random.default_rng(seed)
    stays = np.zeros(len(classes.ids), bool)
    ids = np.unique(classes.ids[classes.ids != 0])
    stays[ids] = rng.random(len(ids)) < 0.5
    for entry in classes.pieces:
        for piece in entry:
            stays[piece] = False
            stays[rng.choice(piece, len(piece) // 2, replace=False)] = True
    sets = Sets(classes, births)
    for mine in sets.distinct:  # a small set that chance left whole would never be tried
        mine = mine[~sets.ranked[mine]]
        if len(mine) > 2 and stays[mine].all():
            stays[rng.choice(mine)] = False
        if len(mine) > 2 and stays[mine[: int(stays[mine].sum())]].all():
            # What code counts from the front (a number for each channel, drawn from a seed) shows where the front goes.
            stays[mine[0]], stays[mine[-1]] = False, True
    return _widened(stays, sets)


def widened(keep: Mask, classes: Classes, births: Births) -> Mask:
    """The same cut with at least two indices left wherever there were two.

    A dimension of size one has no order and no labels, and torch takes other paths for it; a cut that leaves two shows
    all that a comparison of channels can show.
    """
    stays = np.zeros(len(keep), bool)
    stays[classes.ids[keep]] = True
    return _widened(stays, Sets(classes, births))


def _widened(stays: Mask, sets: Sets) -> Mask:
    """``widened`` for flags of classes, which are changed."""
    classes = sets.classes
    for entry in classes.pieces:
        size, counts = len(entry[0]), [int(stays[piece].sum()) for piece in entry]
        count = max(min(2, size), *counts)
        for piece in entry:
            stays[piece[~stays[piece]][: count - int(stays[piece].sum())]] = True
    stays[0] = True
    for mine, distinct in zip(sets.held, sets.distinct, strict=True):
        left = mine[stays[mine]]
        if len(left) > 1 and (left != left[0]).any():
            continue
        missing = 2 - int((mine == 0).sum()) - int(stays[distinct].sum())
        if missing > 0:
            stays[distinct[~sets.ranked[distinct] & ~stays[distinct]][:missing]] = True
    wider: Mask = stays[classes.ids]
    return wider


def narrowed(keep: Mask, classes: Classes, births: Births) -> Mask | None:
    """The same cut with a single index left in every pair that it left alone; None if there is no such pair.

    Code may assume that there are two (``x[:, 0::2]``, ``view(b, -1, 2)``), which a cut that leaves two never shows.
    """
    sets, gone = Sets(classes, births), set[int]()
    stays = np.zeros(len(classes.ids), bool)
    stays[classes.ids[keep]] = True
    for entry in classes.pieces:
        if len(entry[0]) == 2 and stays[np.concatenate(entry)].all():
            gone.update(int(piece[1]) for piece in entry)
    whole = [distinct for held, distinct in zip(sets.held, sets.distinct, strict=True) if held.all()]
    needed = {int(distinct[0]) for distinct in whole if len(distinct) == 1}
    for distinct in whole:
        if len(distinct) == 2 and stays[distinct].all() and not sets.ranked[distinct].any():
            # The first goes, so that code which counts from there is seen, unless something would have nothing left.
            first, second = map(int, distinct)
            goes, stays_alone = (second, first) if first in needed else (first, second)
            if goes not in needed and stays_alone not in gone:
                gone.add(goes)
                needed.add(stays_alone)
    if not gone:
        return None
    narrow: Mask = keep & ~np.isin(classes.ids, sorted(gone))
    return narrow


def keeps_of(births: Births, keep: Mask) -> dict[str, dict[int, tuple[int, ...]]]:
    """Indices to keep, tensor by tensor, where something goes."""
    keeps: dict[str, dict[int, tuple[int, ...]]] = {}
    for (name, dim), labels in births.items():
        kept = np.flatnonzero(keep[labels])
        if len(kept) < len(labels):
            keeps.setdefault(name, {})[dim] = tuple(kept.tolist())
    return keeps


@dataclass(slots=True)
class Comparison:
    """Compares a slim run with the full one, operator by operator, while the slim one runs.

    Attributes:
        expected: What the full network ran.
        roots: Class of each label.
        keep: Labels that stay.
        numbers: False where plain numbers may come from the data, and so tell nothing.
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
        return known[1]

    def __call__(self, index: int, record: OpRecord, tensors: object = None) -> None:
        """Raises at the first operator that is another one, or reads other channels."""
        if index >= len(self.expected):
            raise MisalignedError(index - 1, f"the slim network runs {record.name} where the full one had ended")
        if self.expected[index].name != record.name:
            full = self.expected[index]
            raise MisalignedError(index, f"the slim network runs {record.name} where the full one runs {full.name}")
        self.compare(index, record)

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
                size = -1 if has_filler(vector) else len(self.left(vector))
                wanted[i] = (*shape[:d], size, *shape[d + 1 :])
        for want, found in zip(wanted, slim.shapes, strict=False):
            if want == found or want is None or found is None:
                continue
            if len(want) != len(found) or any(w not in (-1, f) for w, f in zip(want, found, strict=True)):
                raise MisalignedError.around(index, full, f"regroups channels: {found}, and not {want}")

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

    def _compare_labels(self, index: int, full: OpRecord, mine: dict[tuple[int, int], Vector]) -> None:
        """Labels that are still there must be the right ones; single channels have none, and are rigid when joined."""
        for i, d, vector in full.inputs:
            slim = mine.get((i, d))
            stays = vector[self.keep[vector]]
            if slim is None or len(slim) != len(stays):
                continue
            known = (slim > RIGID) & (stays > RIGID)
            if (self.roots[slim[known]] != self.roots[stays[known]]).any():
                raise MisalignedError(
                    index, f"{full.name} in {full.where!r} reads other channels than the full network"
                )


def _alike(one: Values, other: Values) -> bool:
    """True for equal numbers; along a dimension of size one they count for all."""
    if any(n != m and 1 not in (n, m) for n, m in zip(one.shape, other.shape, strict=True)):
        return False
    return bool(np.isclose(one, other, rtol=1e-6, atol=0.0, equal_nan=True).all())


def finished(comparison: Comparison, count: int) -> None:
    """The slim run must also run as long as the full one."""
    if not isinstance(comparison, LooseComparison) and count < len(comparison.expected):
        missing = comparison.expected[count]
        raise MisalignedError(count, f"the slim network ended before {missing.name} in {missing.where!r}")


def labels_at(records: Sequence[OpRecord], index: int, is_new: Callable[[Vector], bool]) -> Mapping[int, list[Vector]]:
    """Labels to pin after a failure at an operator: its own, or of the nearest one before that has some left."""
    for at in (*range(min(index, len(records) - 1), -1, -1), *range(index, len(records))):
        data = [v for i, _, v in records[at].inputs if is_new(v) and (i == 0 or records[at].name not in CONTRACTIONS)]
        vectors = data or [v for _, _, v in records[at].inputs if is_new(v)]
        if vectors:
            return {at: vectors}
    return {}


def meeting_constants(record: OpRecord) -> list[Vector]:
    """Labels that meet a constant, such as padded zeros, position by position.

    Where the amount of padding is written in the code, these must stay, and what lies between them may go.
    """
    found = []
    for _, dim, vector in record.inputs:
        for _, other_dim, other in record.inputs:
            if other is not vector and other_dim == dim and len(other) == len(vector) and has_filler(other):
                found.append(vector[other == FILLER])
    return found


MOVING = frozenset(
    "view _unsafe_view reshape _reshape_alias expand clone contiguous squeeze unsqueeze permute transpose t alias "
    "detach as_strided".split()
)
"""Operators that move data and compute nothing; whether they run may depend on sizes alone."""
CONTRACTIONS = ("convolution", "mm", "bmm")
"""Operators whose first input alone holds the channels that do not fit; the weight's outputs are not to blame."""
