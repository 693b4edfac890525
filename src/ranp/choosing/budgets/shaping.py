"""Widths that follow a formula rather than the scores: what a channel costs, and how far a network may leave it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Protocol

import numpy as np

from ranp.choosing.budgets.ranking import Ladder, Steps, families_of
from ranp.choosing.coupling import ALWAYS
from ranp.choosing.selection import Selection
from ranp.choosing.ties import Needs
from ranp.tracing.layout import Flags, Floats

REACHES = (*product((0,), range(16)), *product((1, 2), range(4)), (4, 0), (8, 0))
"""How many steps a family may leave its formula by, and in which of several orders, tried until a budget is used."""

_ROUNDS, _SAME = 24, 0.005
"""How often prices are taken anew, and the share of the classes by which the last networks may differ."""
_NOTHING = 1e-4
"""A channel is taken to cost at least this share of what the dearest costs."""


class Scale(Protocol):
    """Weighs candidates."""

    def fits(self, stays: Flags) -> bool:
        """Whether one is within every limit."""
        ...

    def shares(self, stays: Flags) -> Floats:
        """The share of each limit that it uses."""
        ...


def beginning(selection: Selection, smallest: Flags, scale: Scale) -> Flags:
    """The network at the highest level at which it fits: all the steps of a level, or none."""
    need = _needs(selection).kept
    levels = np.unique(need[(need > ALWAYS) & np.isfinite(need)])
    low, high = 0, len(levels) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if scale.fits(smallest | (need <= levels[middle - 1])) else (low, middle)
    return smallest | (need <= levels[low - 1]) if low else smallest


def near(selection: Selection, base: Flags, reach: int, draw: int = 0) -> Selection:
    """The selection in which families have the steps of ``base``, or one more, or up to ``reach`` more or less.

    Never by more than a quarter, or one. The steps come in the order of the selection, or in one that is drawn (above
    0).
    """
    found = _needs(selection)
    need, random = found.kept.copy(), np.random.default_rng(draw)
    steps = Steps.of_needs(need, families_of(selection.coupling), ALWAYS)
    for family in np.unique(steps.families):
        own = [steps.of(step) for step in np.flatnonzero(steps.families == family).tolist()]
        held = sum(bool(base[classes].all()) for classes in own)
        by = min(reach, max(1, held // 4))
        for number, classes in enumerate(own):
            if number < held - by:
                need[classes] = ALWAYS
            elif number > held + by:
                need[classes] = np.inf
            elif draw:
                need[classes] = 1 + reach + number - held + random.random()
    assert selection.fixed is not None
    return replace(selection, fixed=(selection.fixed[0], Needs(found.wanted, need)))


def priced(selection: Selection, smallest: Flags, scale: Scale) -> Selection:
    """The selection whose order follows from what channels cost at the very widths that it leads to.

    Several limits count by multipliers, which fall where a limit is not used. Prices and multipliers move half the way
    in the logarithm, later less, until the widths stay about as they are.
    """
    shape, coupling = selection.scope.shape, selection.coupling
    assert shape is not None
    families, prices = families_of(coupling), np.ones(coupling.size)
    weights = np.ones(len(scale.shares(smallest)))
    before = smallest
    for turn in range(1, _ROUNDS + 1):
        current = selection.ordered(shape(coupling, prices))
        stays = beginning(current, smallest, scale)
        if turn > 2 and np.count_nonzero(stays ^ before) <= _SAME * np.count_nonzero(stays):
            break
        before = stays
        used = scale.shares(stays)
        weights = weights * (used / used.max()) ** 2
        margins = {family: float(weights @ m) for family, m in _margins(current, stays, smallest, scale).items()}
        least = _NOTHING * max(margins.values(), default=1.0)
        rate = 1.0 if turn == 1 else min(0.5, 4 / turn)
        for family, margin in margins.items():
            own = families == family
            prices[own] = prices[own] ** (1 - rate) * max(margin, least, 1e-30) ** rate
    return current


def _margins(selection: Selection, stays: Flags, smallest: Flags, scale: Scale) -> dict[int, Floats]:
    """What one more class of each family costs in shares of each limit, around the current widths.

    The mean over a quarter of the width to both sides: exact where costs are linear or quadratic in a width, and not
    misled by the jumps of peaks and times.
    """
    ladder, found = Ladder.of(selection, stays, smallest), {}
    for family, own in ladder.steps.items():
        taken, left = ladder.taken[family], ladder.left(family)
        span = max(1, taken // 4)
        up, down = min(span, left), min(span, taken)
        moved = sum(len(classes) for classes in own[taken - down : taken + up])
        if moved:
            high, low = scale.shares(ladder.moved({family: up})), scale.shares(ladder.moved({family: -down}))
            found[family] = (high - low) / moved
    return found


def _needs(selection: Selection) -> Needs:
    assert selection.fixed is not None  # a scope with a shape is nested
    return selection.fixed[1]
