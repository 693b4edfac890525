"""Labels: one integer for each index of each dimension of each parameter, and what a run says about them.

While the network runs, rules only *write down* what they learn (these labels are one class, those must stay, these
pieces must keep equal counts). Classes are worked out once, at the end, on whole arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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

    A note is met for free if every class lies equally often in every piece. It becomes a constraint if every class lies
    in exactly one piece and no other constraint cuts the same classes differently. Anything else is coupled position
    by position across the pieces, which is always correct and only costs freedom. Where whole pieces may go and that
    leaves more widths to choose from, they do.
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
            verdict = _judge([parent[piece] for piece in wish.pieces], pinned_root, owner, constraints)
            if verdict == "couple":
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
        coupled.append(couple)
        before = parent
        parent = _coupled(parent, [couple])
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


def _judge(
    pieces: list[Vector], pinned_root: npt.NDArray[np.bool_], owner: Vector, constraints: list[tuple[Vector, ...]]
) -> str:
    """Decides what one note means for the classes as they are: ``free``, ``ranked`` (noted down) or ``couple``."""
    flat, count = np.concatenate(pieces), len(pieces)
    home = np.repeat(np.arange(count), [len(piece) for piece in pieces])
    fixed = pinned_root[flat]
    loose = ~fixed & (flat != FILLER)
    if not loose.any():
        return "free"
    if _differ(np.bincount(home[fixed], minlength=count)) or _differ(np.bincount(home[loose], minlength=count)):
        return "couple"
    rows = np.sort(flat[loose].reshape(count, -1), axis=1)
    if (rows == rows[0]).all():
        return "free"
    starts = np.flatnonzero(_firsts(rows))
    if _differ(np.diff(starts, append=rows.size)):
        return "couple"
    members = rows.ravel()[starts]  # each class lies equally often in its piece: once will do
    if not _firsts(np.sort(members)).all():
        return "couple"
    known = [number for number in without_repeats(owner[members]).tolist() if number]
    own = tuple(members.reshape(count, -1))
    joined = _atoms([own, *(constraints[number - 1] for number in known)]) if known else own
    if joined is None:
        return "couple"
    for number in known:
        constraints[number - 1] = ()
    constraints.append(joined)
    owner[np.concatenate(joined)] = len(constraints)
    return "ranked"


def _differ(counts: Vector) -> bool:
    """True if they are not all the same."""
    return bool((counts != counts[0]).any())


def _atoms(entries: Sequence[Sequence[Vector]]) -> tuple[Vector, ...] | None:
    """Pieces of one size such that, where they all keep equal counts, so do the pieces of every entry; None if none do.

    They are the pieces of the finest entry; coarser ones are made of whole such pieces, and of parts of their size.
    """
    entries = sorted(entries, key=lambda entry: len(entry[0]))
    size, found, home = len(entries[0][0]), list[Vector](), dict[int, int]()
    for entry in entries:
        for piece in entry:
            members = piece.tolist()
            here = Counter(home[member] for member in members if member in home)
            rest = piece[[member not in home for member in members]]
            if len(rest) % size or any(count != size for count in here.values()):
                return None
            for part in rest.reshape(-1, size):
                home.update(dict.fromkeys(part.tolist(), len(found)))
                found.append(part)
    return tuple(found)
