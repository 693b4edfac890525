"""Labels: one integer for each index of each dimension of each parameter, and what a run says about them.

While the network runs, rules only *write down* what they learn (these labels are one class, those must stay, these
pieces must keep equal counts). Classes are worked out once, at the end, on whole arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd

import numpy as np
import numpy.typing as npt

from ranp.tracing.trace import Cause

Vector = npt.NDArray[np.int64]
"""Labels along one dimension of a tensor, one per index."""

FILLER = 0
"""Label of constants and zeros: takes part in nothing, agrees with everything."""
RIGID = 1
"""Label of an index that no parameter gave birth to (a channel of the network's input): always stays."""


def has_filler(vector: Vector) -> bool:
    """True if some of these labels are fillers. Those of parameters hold none, and are read-only to show it."""
    return bool(vector.flags.writeable and np.count_nonzero(vector) < len(vector))  # all() takes far longer


def without_repeats(values: Vector) -> Vector:
    """The numbers that occur, sorted: ``np.unique`` for the short arrays of which there are many, where it is slow."""
    ordered = np.sort(values)
    return ordered[_firsts(ordered)]


def _firsts(ordered: Vector) -> npt.NDArray[np.bool_]:
    """True where a number of a sorted array, or of a sorted row, stands for the first time."""
    first = np.ones(ordered.shape, bool)
    np.not_equal(ordered[..., 1:], ordered[..., :-1], out=first[..., 1:])
    return first


@dataclass(frozen=True, slots=True)
class PinNote:
    """Labels that must stay, and why."""

    labels: Vector
    reason: str
    where: str
    op: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class EqualCounts:
    """Pieces of one dimension that must keep equally many indices."""

    pieces: tuple[Vector, ...]
    reason: str
    where: str
    whole: bool = False
    """True if a piece may also go as a whole."""

    def by_piece(self) -> EqualCounts:
        """The first of each piece, the second of each: coupled position by position, a piece stands or falls."""
        return replace(self, pieces=tuple(np.stack(self.pieces, axis=1)))


@dataclass(slots=True)
class LabelSpace:
    """The notebook of one or several runs of the same network."""

    size: int = 2
    left: list[Vector] = field(default_factory=list)
    right: list[Vector] = field(default_factory=list)
    pins: list[PinNote] = field(default_factory=list)
    equal_counts: list[EqualCounts] = field(default_factory=list)
    noted: set[tuple[int, int]] = field(default_factory=set)
    contracted: list[Vector] = field(default_factory=list)
    """Labels that were summed over together with weights."""
    sources: list[tuple[int, int, str, str]] = field(default_factory=list)
    """First and last (exclusive) of the unions that one operator made, its name, and its module."""

    def copy(self) -> LabelSpace:
        """A notebook with the same notes, to write more into."""
        lists = [*self.left], [*self.right], [*self.pins], [*self.equal_counts]
        return LabelSpace(self.size, *lists, {*self.noted}, [*self.contracted], [*self.sources])

    def new(self, count: int) -> Vector:
        """Fresh labels for one dimension of one tensor."""
        self.size += count
        labels = np.arange(self.size - count, self.size, dtype=np.int64)
        labels.flags.writeable = False
        return labels

    def unite(self, a: Vector, b: Vector) -> Vector:
        """Notes that the labels are one class position by position; fillers take the other side's label."""
        if a is b:
            return a
        if not (a.flags.writeable or b.flags.writeable):  # labels of parameters live as long as the run: note them once
            if (id(a), id(b)) in self.noted:
                return a
            self.noted.add((id(a), id(b)))
        self.left.append(a)
        self.right.append(b)
        return np.where(a == FILLER, b, a) if has_filler(a) else a

    def pin(
        self, labels: Vector | None, reason: str, where: str, *, op: str = "", cause: Cause = Cause.OPERATION
    ) -> None:
        """Notes that these labels must stay, because of an operator in a module if one is to blame."""
        if labels is not None and labels.size:
            self.pins.append(PinNote(labels, reason, where, op, cause))

    def require_equal_counts(self, labels: Vector, count: int, reason: str, where: str, *, whole: bool = False) -> None:
        """Notes that each of so many pieces of equal length must keep as many indices as every other.

        With ``whole`` a piece may also lose all of them.
        """
        if count > 1 and labels.any():
            self.equal_counts.append(EqualCounts(tuple(labels.reshape(count, -1)), reason, where, whole))

    def resolve(self) -> Classes:
        """Works out classes, pins and the pieces that remain constraints."""
        left = np.concatenate([*self.left, np.zeros(0, np.int64)])
        right = np.concatenate([*self.right, np.zeros(0, np.int64)])
        both = (left != FILLER) & (right != FILLER)
        parent = components(np.arange(self.size, dtype=np.int64), left[both], right[both])
        pinned = np.zeros(self.size, bool)
        pinned[RIGID] = True
        for note in self.pins:
            pinned[note.labels] = True
        pinned[FILLER] = False
        return _settle_pieces(parent, pinned, self.equal_counts)


@dataclass(frozen=True, slots=True)
class Classes:
    """Class of each label, 0 where it must stay, else numbered from 1; and what must keep equal counts."""

    roots: Vector
    """Smallest label of the class, before pinning; shows which pin reached which label."""
    ids: Vector
    pieces: tuple[tuple[Vector, ...], ...]
    coupled: tuple[EqualCounts, ...] = ()
    """Notes that could only be met by coupling their pieces position by position."""


def components(parent: Vector, a: Vector, b: Vector) -> Vector:
    """Connected components by hooking larger roots to smaller ones and halving paths, on whole arrays."""
    while True:
        root_a, root_b = parent[a], parent[b]
        apart = root_a != root_b
        if not apart.any():
            return parent
        a, b = a[apart], b[apart]
        low, high = np.minimum(root_a[apart], root_b[apart]), np.maximum(root_a[apart], root_b[apart])
        parent = parent.copy()
        np.minimum.at(parent, high, low)
        while True:
            shorter = parent[parent]
            if np.array_equal(shorter, parent):
                break
            parent = shorter


def _settle_pieces(parent: Vector, pinned: npt.NDArray[np.bool_], wishes: Sequence[EqualCounts]) -> Classes:
    """Turns "equal counts" notes into constraints a selector can meet by ranking inside each piece.

    A class that lies equally often in every piece meets a note whatever becomes of it. The note becomes a constraint if
    every other class lies in one piece alone, and some parts of the pieces suit all constraints that count the same
    classes. Classes that lie across a seam between pieces are tied to as many others as make up for it. Anything else
    is coupled position by position across the pieces, which is always correct and only costs freedom. Where whole
    pieces may go and that leaves more widths to choose from, they do.
    """
    by_piece = _going_whole(parent, wishes)
    wishes = [wish for wish, whole in zip(wishes, by_piece, strict=True) if whole is None]
    coupled = [whole for whole in by_piece if whole is not None]
    parent = _coupled(parent, coupled)
    while True:
        pinned_root = np.zeros_like(pinned)
        pinned_root[parent[pinned]] = True
        owner = np.zeros_like(parent)  # constraint number + 1 that ranks this class, else 0
        constraints: list[tuple[Vector, ...]] = []
        couple: EqualCounts | None = None
        for wish in wishes:
            lying = _Lying.of([parent[piece] for piece in wish.pieces], pinned_root)
            if lying is None or not lying.rank(owner, constraints):
                couple = wish
                break
        if couple is None:
            ids = parent.copy()
            ids[pinned_root[parent]] = 0
            ids[FILLER] = 0
            used = np.zeros(len(ids), bool)
            used[ids] = True
            number = np.cumsum(used) - 1  # 0 stays 0
            pieces = tuple(tuple(number[piece] for piece in entry) for entry in constraints if entry)
            return Classes(parent, number[ids], pieces, tuple(coupled))
        if any(len(piece) != len(couple.pieces[0]) for piece in couple.pieces):
            for piece in couple.pieces:
                pinned[piece[piece != FILLER]] = True
            continue
        before, parent = parent, _coupled(parent, [couple])
        tied = None if lying is None else lying.across(len(without_repeats(parent[lying.classes])))
        if tied is not None:
            couple = replace(couple, pieces=tuple(tied.reshape(-1, 1)))
            parent = _coupled(before, [couple])
        coupled.append(couple)
        if np.array_equal(before, parent):  # already coupled, and still unequal: nothing may go
            for piece in couple.pieces:
                pinned[piece[piece != FILLER]] = True


def _coupled(parent: Vector, wishes: Sequence[EqualCounts]) -> Vector:
    """The classes once the pieces of each note are one class position by position."""
    if not wishes:
        return parent
    a = np.concatenate([wish.pieces[0] for wish in wishes for _ in wish.pieces[1:]])
    b = np.concatenate([piece for wish in wishes for piece in wish.pieces[1:]])
    both = (a != FILLER) & (b != FILLER)
    return components(parent, a[both], b[both])


def _going_whole(parent: Vector, wishes: Sequence[EqualCounts]) -> list[EqualCounts | None]:
    """For each note, what couples every piece in itself, where pieces go as a whole.

    A dimension of G pieces of n indices has n widths if all pieces keep equal counts, and G if whole ones go. Notes
    that meet in some class are decided alike: where one of them has more pieces than indices in a piece, whole ones go.
    """
    found: list[EqualCounts | None] = [None] * len(wishes)
    members = [np.concatenate(wish.pieces) if wish.whole else np.zeros(0, np.int64) for wish in wishes]
    members = [labels[labels > RIGID] for labels in members]
    firsts = [labels[:1].repeat(len(labels)) for labels in members]
    if not any(map(len, members)):
        return found
    near = components(parent, np.concatenate(firsts), np.concatenate(members))
    meeting = [int(near[labels[0]]) if len(labels) else FILLER for labels in members]
    small = {at for at, wish in zip(meeting, wishes, strict=True) if len(wish.pieces) > len(wish.pieces[0])}
    return [wish.by_piece() if at and at in small else None for at, wish in zip(meeting, wishes, strict=True)]


@dataclass(frozen=True, slots=True)
class _Lying:
    """How often each class lies in each of some pieces, without those that lie equally often in all of them."""

    classes: Vector
    counts: Vector
    """One row for each class, one column for each piece."""

    @classmethod
    def of(cls, pieces: list[Vector], pinned_root: npt.NDArray[np.bool_]) -> _Lying | None:
        """Counts what can go; None if the pieces do not hold equally much of it, and of what must stay."""
        flat, count = np.concatenate(pieces), len(pieces)
        home = np.repeat(np.arange(count), [len(piece) for piece in pieces])
        fixed = pinned_root[flat]
        loose = ~fixed & (flat != FILLER)
        if loose.any() and (
            _differ(np.bincount(home[fixed], minlength=count)) or _differ(np.bincount(home[loose], minlength=count))
        ):
            return None
        classes, place = np.unique(flat[loose], return_inverse=True)
        counts = np.bincount(place.reshape(-1) * count + home[loose], minlength=len(classes) * count)
        counts = counts.reshape(-1, count)
        uneven = (counts != counts[:, :1]).any(axis=1)
        return cls(classes[uneven], counts[uneven])

    @property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Which of the classes lie in one piece alone."""
        inside: npt.NDArray[np.bool_] = np.count_nonzero(self.counts, axis=1) == 1
        return inside

    def rank(self, owner: Vector, constraints: list[tuple[Vector, ...]]) -> bool:
        """Notes down that the pieces keep equal counts of their classes; False if that does not do."""
        if not len(self.classes):
            return True
        if not self.inside.all() or _differ(self.counts.max(axis=1)):
            return False
        members = self.classes[np.argsort(self.counts.argmax(axis=1), kind="stable")]
        known = [number for number in without_repeats(owner[members]).tolist() if number]
        own = tuple(members.reshape(self.counts.shape[1], -1))
        joined = _atoms([own, *(constraints[number - 1] for number in known)]) if known else own
        if joined is None:
            return False
        for number in known:
            constraints[number - 1] = ()
        constraints.append(joined)
        owner[np.concatenate(joined)] = len(constraints)
        return True

    def across(self, widths: int) -> Vector | None:
        """Classes across seams, with as many others as make the pieces even; None unless more widths are left so.

        The others lie in one piece each, and of what is left of these every piece holds as many.
        """
        inside = self.inside
        total = self.counts[~inside].sum(axis=0)
        each = self.counts[inside].max(axis=1, initial=0)
        missing, rest = np.divmod(total.max(initial=0) - total, each.max(initial=1))
        if inside.all() or _differ(each) or rest.any():
            return None
        alone = [self.classes[inside & (self.counts[:, piece] > 0)] for piece in range(len(total))]
        left = min(len(mine) - count for mine, count in zip(alone, missing.tolist(), strict=True))
        if left < 1 or 1 + left <= widths:
            return None
        return np.concatenate([self.classes[~inside], *(mine[:n] for mine, n in zip(alone, missing, strict=True))])


def _differ(counts: Vector) -> bool:
    """True if they are not all the same."""
    return bool((counts != counts[:1]).any())


def _atoms(entries: Sequence[Sequence[Vector]]) -> tuple[Vector, ...] | None:
    """Parts of one size such that, where they all keep equal counts, so do the pieces of every entry.

    They are what the pieces of all entries have in common, cut into parts of the largest size that divides them all.
    None if these are single classes, of which all would stay or go.
    """
    homes: dict[int, tuple[int, ...]] = {}
    for number, piece in enumerate(piece for entry in entries for piece in entry):
        for member in piece.tolist():
            homes[member] = (*homes.get(member, ()), number)
    common: dict[tuple[int, ...], list[int]] = {}
    for member, home in homes.items():
        common.setdefault(home, []).append(member)
    size = gcd(*map(len, common.values()))
    if size == 1 < min(len(piece) for entry in entries for piece in entry):
        return None
    return tuple(part for found in common.values() for part in np.reshape(found, (-1, size)))
