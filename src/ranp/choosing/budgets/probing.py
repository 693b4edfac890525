"""Choices of channels at which a network is traced, so that every size tells which channels it counts."""

from __future__ import annotations

import random

import numpy as np

from ranp.choosing.budgets.ranking import Steps, families_of, finest
from ranp.choosing.coupling import ALWAYS
from ranp.choosing.selection import Selection
from ranp.tracing.layout import Flags, Ints

_LEAST, _MOST = 3, 6
"""How many choices besides the full network."""


def probes(selection: Selection, *, seed: int = 0) -> list[Flags]:
    """The full network, and some in which the width of every family of channels is a code that no other has.

    Families of the same full width get different widths in at least one of the choices, as far as there are enough.
    """
    coupling = selection.coupling
    need, families = finest(selection), families_of(coupling)
    need = np.where(need <= selection.demand(need)[0], ALWAYS, need)
    smallest: Flags = ~((need > ALWAYS) & np.isfinite(need) & (families >= 0))
    steps = Steps.of_needs(need, families, ALWAYS)
    members: dict[int, list[int]] = {}
    for step, family in enumerate(steps.families.tolist()):
        members.setdefault(family, []).append(step)
    count = _count(members)
    draw = random.Random(seed)
    taken: dict[int, set[tuple[int, ...]]] = {}
    found: list[Flags] = [smallest.copy() for _ in range(count)]
    for of_family in members.values():
        size = len(of_family)
        codes = taken.setdefault(size, {(size,) * count})
        code = _fresh(draw, size, count, codes)
        codes.add(code)
        for flags, width in zip(found, code, strict=True):
            for step in of_family[:width]:
                flags[steps.of(step)] = True
    return [np.ones(coupling.size, dtype=bool), *found]


def _count(members: dict[int, list[int]]) -> int:
    """As many choices as the families of the commonest width need to be told apart."""
    sizes: Ints = np.bincount([len(steps) for steps in members.values()] or [0])
    for count in range(_LEAST, _MOST):
        if all(number < max(size, 2) ** count for size, number in enumerate(sizes.tolist()) if size):
            return count
    return _MOST


def _fresh(draw: random.Random, size: int, count: int, taken: set[tuple[int, ...]]) -> tuple[int, ...]:
    """A code that no other has, if there is one; more than a single channel, of which torch has its own opinion.

    A dimension of one changes what counts as contiguous, so that other operators run.
    """
    least = 1 if size > 1 else 0
    for _ in range(100):
        code = tuple(draw.randint(least, size) for _ in range(count))
        if code not in taken:
            break
    return code
