"""Tie rules: from the order in which channels are granted to the point at which each class of channels is kept.

The *need* of a class is the smallest budget at which it is kept. Everything selection does is a comparison with it:
a plan keeps the classes whose need is within the budget, the largest feasible sparsity is the largest need that some
layer cannot do without, and since needs do not depend on the sparsity, a plan at a higher sparsity is always contained
in the plan at a lower one, so that costs never rise. Only ``nearest``, for plans that must remove an exact share, steps
out of that order, where one of its steps is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, gcd

import numpy as np

from ranp.choosing.coupling import ALWAYS, Coupling
from ranp.registry import Registry
from ranp.tracing.layout import Flags, Floats, Ints
from ranp.tracing.trace import PINNED


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """When each class is kept.

    Attributes:
        wanted: The budget at which the scores alone keep the class: decides what is feasible.
        kept: The same after ``min_channels`` and ``round_to``, never above ``wanted``: decides what is kept.
    """

    wanted: Floats
    kept: Floats


NEAR = 0.01
"""Share of the prunable channels that may be missed before smaller steps take the place of a large one."""

TieRule = Callable[[Coupling, Floats, Ints], Floats]
"""``(coupling, level of each position, rank of each class in its block) -> need of each class``.

Whatever the rule, a block keeps a first class as soon as one voting layer is granted a channel there.
"""

TIES: Registry[TieRule] = Registry("tie")


def hungriest(coupling: Coupling, levels: Floats, rank: Ints) -> Floats:
    """Keeps as many channels of a block as its hungriest voting layer was granted, those of the highest rank.

    The paper's rule for coupled layers. Class number r of a block is kept once some layer has been granted more
    channels there than its classes before r hold; a layer that holds every class once is granted r + 1 of them.
    """
    block, layers = coupling.block, len(coupling.trace.layers)
    position = np.flatnonzero(coupling.voting)
    member = coupling.classes[position]
    group = block[member] * layers + coupling.layout.layer[position]
    level = levels[position][np.lexsort((levels[position], group))]
    if coupling.layout.repeats:
        pairs, counts = np.unique(group * coupling.size + member, return_counts=True)
        group, member = np.divmod(pairs, coupling.size)
    else:
        counts = np.ones(len(member), np.int64)
    order = np.lexsort((rank[member], group))
    group, counts = group[order], counts[order]
    before = np.cumsum(counts) - counts  # channels granted first, counted through all groups in order
    begins = np.ones(len(group), dtype=bool)
    begins[1:] = group[1:] != group[:-1]
    number = np.arange(len(group)) - np.flatnonzero(begins)[np.cumsum(begins) - 1] if len(group) else group

    free = np.flatnonzero(block >= 0)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(block[free], minlength=1))])
    slots = np.full(len(free), np.inf)
    np.minimum.at(slots, offsets[group // layers] + number, level[before])
    need = np.full(coupling.size, ALWAYS)
    need[free] = slots[offsets[block[free]] + rank[free]]
    return need


def anyone(coupling: Coupling, levels: Floats, rank: Ints) -> Floats:
    """Keeps every class that any voting layer was granted."""
    need = np.full(coupling.size, ALWAYS)
    free = coupling.block >= 0
    need[free] = np.inf
    np.minimum.at(need, coupling.classes[coupling.voting], levels[coupling.voting])
    return need


TIES.register("max", hungriest)
TIES.register("union", anyone)


def class_rank(coupling: Coupling, priority: Floats) -> tuple[Floats, Ints]:
    """The highest priority of each class in any voting layer, and its place by that in its block, 0 = first."""
    best = np.full(coupling.size, -np.inf)
    np.maximum.at(best, coupling.classes[coupling.voting], priority[coupling.voting])
    return best, _rank_in(coupling.block, -best)


def needs(
    coupling: Coupling, levels: Floats, priority: Floats, rule: TieRule, *, min_channels: int = 1, round_to: int = 1
) -> Needs:
    """When each class is kept, under a tie rule, equal pieces and bounded, rounded widths.

    Args:
        coupling: The channels.
        levels: For each position, the budget from which on it is granted.
        priority: For each position, how much its class deserves to stay when its block keeps fewer than all.
        rule: How a block decides.
        min_channels: Every block keeps at least that many, or all.
        round_to: Every block keeps a multiple of it, rounded up, or all.
    """
    best, rank = class_rank(coupling, priority)
    wanted = rule(coupling, levels, rank)
    kept = wanted.copy()

    loose = coupling.block >= 0
    for entry in coupling.layout.pieces:
        loose[np.concatenate(entry)] = False
    if min_channels > 1 or round_to > 1:
        block = np.where(loose, coupling.block, -1)
        place = _rank_in(block, wanted, -best)
        order = np.lexsort((place, block))[np.count_nonzero(~loose) :]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(block[order], minlength=1))])
        each = _channels_of_a_class(coupling)[block[order]]
        base = place[order] - place[order] % (round_to // np.gcd(round_to, each))
        sources = wanted[order[offsets[block[order]] + base]]
        kept[order] = np.where(base * each < min_channels, ALWAYS, sources)
    else:
        # Of classes with equal scores, the one that is wanted first need not be the first.
        first = _rank_in(np.where(loose, coupling.block, -1), wanted, -best) == 0
        kept[loose & first & ~_beside_pieces(coupling)] = ALWAYS
    for entry in coupling.layout.pieces:
        _even_out(entry, wanted, kept, best, min_channels, round_to)
    wanted[PINNED] = kept[PINNED] = ALWAYS
    _leave_every_tensor_something(coupling, kept, best)
    return Needs(wanted, kept)


def nearest(coupling: Coupling, need: Floats, budget: float, target: float, least: float) -> Flags:
    """The classes that stay where about ``target`` channels are to go: those needed at ``budget``, or nearer ones.

    A step is all that a single budget decides on, so whichever steps go, what must stay equal does. Where a step is
    too large for its turn, it stays and later, smaller ones go in its place; or it goes, and smaller ones before it
    stay. Inside a block the order holds all the same.

    Args:
        coupling: The channels.
        need: When each class is kept.
        budget: The one at which the removed channels are nearest to the target.
        target: How many channels are to go.
        least: What is needed at that budget stays.
    """
    channels, stays = np.bincount(coupling.classes, minlength=coupling.size), need <= budget
    miss = abs(channels[~stays].sum() - target)
    order = np.argsort(-need, kind="stable")
    order = order[(need[order] > least) & (coupling.block[order] >= 0)]
    if not len(order) or miss <= NEAR * np.count_nonzero(coupling.movable):
        return stays
    steps = np.split(order, np.flatnonzero(need[order][1:] != need[order][:-1]) + 1)
    gone = np.cumsum([channels[step].sum() for step in steps])
    turn = min(int(np.searchsorted(gone, target)), len(steps) - 1)

    def fitting(candidates: list[Ints], room: float) -> list[Ints]:
        held, found = np.zeros(coupling.block.max() + 1, dtype=bool), []
        for step in candidates:
            lost, blocks = channels[step].sum(), coupling.block[step]
            if lost <= room and not held[blocks].any():
                found.append(step)
                room -= lost
            else:
                held[blocks] = True
        return found

    before = gone[turn - 1] if turn else 0
    later, earlier = fitting(steps[turn:], target - before), fitting(steps[turn::-1], gone[turn] - target)
    for first, changed, flag in ((steps[:turn], later, False), (steps[: turn + 1], earlier, True)):
        other = np.ones(coupling.size, dtype=bool)
        for numbers, value in ((first, False), (changed, flag)):
            other[np.concatenate([order[:0], *numbers])] = value
        distance = abs(channels[~other].sum() - target)
        if distance < miss:
            stays, miss = other, distance
    return stays


def _beside_pieces(coupling: Coupling) -> Flags:
    """Of each class whether all layers that hold it hold pieces too: these keep something, so the others may all go."""
    layout = coupling.layout
    in_pieces, elsewhere = np.zeros((2, coupling.size), dtype=bool)
    for entry in layout.pieces:
        in_pieces[np.concatenate(entry)] = True
    in_pieces[PINNED] = False
    with_pieces = np.zeros(len(coupling.trace.layers), dtype=bool)
    with_pieces[layout.layer[in_pieces[layout.classes]]] = True
    elsewhere[layout.classes[~with_pieces[layout.layer]]] = True
    return ~elsewhere


def _channels_of_a_class(coupling: Coupling) -> Ints:
    """For each block, how many channels of a layer every class of it holds; 1 where they differ."""
    blocks = int(coupling.block.max(initial=-1)) + 1
    if not coupling.layout.repeats:
        return np.ones(blocks, np.int64)
    position = np.flatnonzero(coupling.voting)
    pairs = coupling.layout.layer[position] * coupling.size + coupling.classes[position]
    held, counts = np.unique(pairs, return_counts=True)
    fewest, most = np.full(blocks, len(pairs)), np.zeros(blocks, np.int64)
    for extreme, values in ((np.minimum, fewest), (np.maximum, most)):
        extreme.at(values, coupling.block[held % coupling.size], counts)
    return np.where(fewest == most, most, 1)


def _leave_every_tensor_something(coupling: Coupling, kept: Floats, best: Floats) -> None:
    """Lets the best class of a tensor that reads only part of a block stay always, as the best of every block does.

    What the scores alone leave is not changed by it: where they leave the tensor something, this class is in it.
    """
    layout = coupling.layout
    if layout.simple or not len(layout.dim_starts):
        return
    in_pieces = {number for entry in layout.pieces for piece in entry for number in piece.tolist()}
    for start in np.flatnonzero(np.minimum.reduceat(kept[layout.dims], layout.dim_starts) > ALWAYS):
        end = layout.dim_starts[start + 1] if start + 1 < len(layout.dim_starts) else len(layout.dims)
        members = layout.dims[layout.dim_starts[start] : end]
        first = members[np.lexsort((members, -best[members], kept[members]))[0]]
        if int(first) not in in_pieces:  # there, one more would need one more in every piece
            kept[first] = ALWAYS


def _even_out(
    entry: tuple[Ints, ...], wanted: Floats, kept: Floats, best: Floats, min_channels: int, round_to: int
) -> None:
    """Gives every piece of ``entry`` the same number of classes: its share of all that are wanted, rounded up.

    Inside a piece the classes wanted first stay. What must stay raises the count of every piece.
    """
    total = np.concatenate(entry)
    sizes = {len(piece) for piece in entry}
    free = total[total != PINNED]
    if len(sizes) != 1 or len(np.unique(free)) != len(free):
        # Pieces that are not equal in the full network have no smaller equal form that is sure to be right.
        wanted[total] = kept[total] = ALWAYS
        return
    pieces, size = len(entry), sizes.pop()
    need = np.where(total == PINNED, ALWAYS, wanted[total]).reshape(pieces, size)
    matrix = total.reshape(pieces, size)
    order = np.lexsort((matrix, -best[matrix], need), axis=1)
    forced = int(np.max(np.count_nonzero(need <= ALWAYS, axis=1)))
    steps = np.sort(need, axis=None)[::pieces]
    steps[:forced] = ALWAYS
    round_piece = round_to // gcd(pieces, round_to)
    base = np.arange(size) - np.arange(size) % round_piece
    rounded = np.where(base < ceil(min_channels / pieces), ALWAYS, steps[base])
    for target, values in ((wanted, steps), (kept, rounded)):
        target[np.take_along_axis(matrix, order, axis=1)] = values


def _rank_in(block: Ints, *keys: Floats) -> Ints:
    """Place of each class in its block by the keys, lowest first, then by its number; 0 for classes in no block."""
    free = np.flatnonzero(block >= 0)
    order = free[np.lexsort((*(key[free] for key in reversed(keys)), block[free]))]
    home = block[order]
    begins = np.ones(len(home), dtype=bool)
    begins[1:] = home[1:] != home[:-1]
    place = np.zeros(len(block), dtype=np.int64)
    if len(home):
        place[order] = np.arange(len(home)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return place


def first_channels(coupling: Coupling, levels: Floats) -> float:
    """The budget at which every layer keeps its first channel, under any tie rule.

    The closed form of the paper's search: the smallest over layers of the largest score in the layer, or in a layer it
    is coupled with. Right if the layout is ``simple``.
    """
    starts = coupling.layout.starts[:-1]
    first = anyone(coupling, levels, coupling.block)[coupling.classes]
    return float(np.minimum.reduceat(first, starts).max()) if len(starts) else ALWAYS
