"""Trial cuts: which labels stay in a copy that is cut at random inside its classes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ranp.tracing.labels import Classes, Vector, without_repeats

Mask = npt.NDArray[np.bool_]
Births = Mapping[tuple[str, int], Vector]
"""``(tensor name, dimension) -> labels`` of every parameter and buffer."""


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
        self.distinct = [ids[ids != 0] for ids in map(without_repeats, self.held)]
        self.ranked = np.zeros(len(classes.ids), bool)
        for entry in classes.pieces:
            self.ranked[np.concatenate(entry)] = True


def random_keep(classes: Classes, births: Births, seed: int = 0) -> Mask:
    """Which labels stay in a trial cut: about half of the classes, equal counts in pieces, two or more anywhere.

    Pieces keep a half, or two thirds for an odd seed: code that happens to run with one count may not with another.
    """
    rng = np.random.default_rng(seed)
    stays = np.zeros(len(classes.ids), bool)
    ids = np.flatnonzero(np.bincount(classes.ids)[1:]) + 1
    stays[ids] = rng.random(len(ids)) < 0.5
    for entry in classes.pieces:
        for piece in entry:
            stays[piece] = False
            count = (2 * len(piece) + 2) // 3 if seed % 2 else len(piece) // 2
            stays[rng.choice(piece, count, replace=False)] = True
    sets = Sets(classes, births)
    _tell_apart(stays, sets, rng)
    for mine in sets.distinct:  # a small set that chance left whole would never be tried
        mine = mine[~sets.ranked[mine]]
        if len(mine) > 2 and stays[mine].all():
            stays[rng.choice(mine)] = False
        if len(mine) > 2 and stays[mine[: int(stays[mine].sum())]].all():
            # What code counts from the front (a number for each channel, drawn from a seed) shows where the front goes.
            stays[mine[0]], stays[mine[-1]] = False, True
    return _widened(stays, sets)


def _tell_apart(stays: Mask, sets: Sets, rng: np.random.Generator) -> None:
    """Lets sets of equally many classes keep different counts, so that code which takes one for the other is seen."""
    done, used = sets.ranked.copy(), defaultdict[int, set[int]](set)
    for mine in sorted(sets.distinct, key=len):  # what holds several sets is made of them
        size, count = len(mine), int(stays[mine].sum())
        if done[mine].any():
            continue
        done[mine] = True
        free = [other for other in range(2, size) if other not in used[size]]
        if count in used[size] and free:
            wanted = min(free, key=lambda other: abs(other - count))
            more = wanted > count
            stays[rng.choice(mine[stays[mine] != more], abs(wanted - count), replace=False)] = more
            count = wanted
        used[size].add(count)


def uneven_keep(classes: Classes, births: Births, seed: int = 0) -> Mask:
    """Which labels stay in a trial cut where sets of equally many classes keep different counts, as far as they can.

    Code that knows sizes may take one for another; by chance they agree more often than one would like.
    """
    rng, sets = np.random.default_rng(seed), Sets(classes, births)
    stays, done, met = np.ones(len(classes.ids), bool), sets.ranked.copy(), Counter[int]()
    for entry in (*((mine,) for mine in sorted(sets.distinct, key=len)), *classes.pieces):
        ranked = bool(sets.ranked[entry[0]].all())
        pieces = [piece if ranked else piece[~done[piece]] for piece in entry]
        size = len(pieces[0])
        if (ranked and len(entry) == 1) or size < 3:
            continue
        count = 2 + (met[size] * (seed + 1) + seed) % (size - 1)
        met[size] += 1
        for piece in pieces:
            stays[piece] = False
            stays[rng.choice(piece, count, replace=False)] = done[piece] = True
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
        if missing > 0:  # the last: numbers that code draws from a seed are the same for the first, however many
            stays[distinct[~sets.ranked[distinct] & ~stays[distinct]][-missing:]] = True
    wider: Mask = stays[classes.ids]
    return wider


def narrowed(keep: Mask, classes: Classes, births: Births) -> Mask | None:
    """The same cut with a single index left in every pair that it left alone; None if there is no such pair.

    Code may assume that there are two (``x[:, 0::2]``, ``view(b, -1, 2)``), which a cut that leaves two never shows.
    """
    sets, gone = Sets(classes, births), set[int]()
    stays = np.zeros(len(classes.ids), bool)
    stays[classes.ids[keep]] = True
    for entry in classes.pieces:  # the first goes, so that code which counts from there is seen
        if len(entry[0]) == 2 and stays[np.concatenate(entry)].all():
            gone.update(int(piece[0]) for piece in entry)
    whole = [distinct for held, distinct in zip(sets.held, sets.distinct, strict=True) if held.all()]
    needed = {int(distinct[0]) for distinct in whole if len(distinct) == 1}
    for distinct in whole:
        if len(distinct) == 2 and stays[distinct].all() and not sets.ranked[distinct].any():
            # The first goes here too, unless something would have nothing left.
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
