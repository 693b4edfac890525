"""The widest network, by the method's own ranking, whose exact costs are within every budget.

A plan grows along the ranking in *steps*: a class of channels, or several that must come together (rounded widths,
equal pieces). Steps of the same *family* (channels that are interchangeable in shape) come in their order; families are
free of each other. So the solver takes the longest beginning of the ranking that fits, leaves out the step that does
not, with the rest of its family, and goes on with the longest beginning of what is left, until nothing more fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ranp.choosing.budgets.budget import Budget, share_above
from ranp.choosing.budgets.ranking import Steps, by_score, families_of, named
from ranp.choosing.coupling import ALWAYS
from ranp.choosing.selection import Selection
from ranp.costs.quantities import Quantity
from ranp.errors import InfeasibleError, asked
from ranp.tracing.layout import Flags

FULL = 0.999
"""Used to this share, a budget counts as used up."""
ENOUGH = 0.98
"""Where less of every budget is used, the result says what stands in the way."""


class Meter(Protocol):
    """Tells what a network of these classes of channels needs of one quantity."""

    @property
    def quantity(self) -> Quantity:
        """Which one."""
        ...

    def __call__(self, stays: Flags) -> float:
        """The figure."""
        ...


@dataclass(frozen=True, slots=True)
class Limit:
    """A budget, once it is known what the full network needs.

    Attributes:
        budget: As it was asked for.
        before: What the full network needs.
        most: What the slim one may need.
    """

    budget: Budget
    before: float
    most: float


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What the solver found.

    Attributes:
        stays: One flag per class of channels.
        after: What the slim network needs, one figure per limit.
        note: What prevents that a budget is used to the full; empty if one is.
        tries: How many networks were looked at.
    """

    stays: Flags
    after: tuple[float, ...]
    note: str
    tries: int


def limits_of(budgets: Sequence[Budget], meters: Sequence[Meter], classes: int) -> tuple[Limit, ...]:
    """What each budget comes to for this network."""
    full = Scale(meters).figures(np.ones(classes, dtype=bool))
    return tuple(Limit(b, full[b.resource], b.limit(full[b.resource])) for b in budgets)


def solve(selection: Selection, meters: Sequence[Meter], limits: Sequence[Limit]) -> Solution:
    """Finds the widest network within the limits.

    Args:
        selection: The ranking, and what must stay.
        meters: What candidates need; cheap ones first, since a candidate that one of them refuses is not shown to
            the next.
        limits: What may be needed, each of a resource of some meter.

    Raises:
        InfeasibleError: Even the smallest network exceeds a limit; the message tells the smallest possible figure.
    """
    scale = Scale(meters, limits)
    stays = smallest(selection)
    if not scale.fits(stays):
        raise InfeasibleError(refusal(limits, scale.figures(stays)))
    stays, steps = _beginning(selection, stays, scale)
    stays = _grown(stays, steps, scale)
    figures = scale.figures(stays)
    after = tuple(figures[limit.budget.resource] for limit in limits)
    used = max(figure / limit.most for figure, limit in zip(after, limits, strict=True))
    note = "" if used >= ENOUGH else _next_step(selection, stays, steps, scale, limits)
    return Solution(stays, after, note, scale.tries)


class Scale:
    """Weighs candidates with several meters; counts how many."""

    def __init__(self, meters: Sequence[Meter], limits: Sequence[Limit] = ()) -> None:
        self._meters = meters
        self._most = {limit.budget.resource: limit.most for limit in limits}
        self.tries = 0

    def figures(self, stays: Flags) -> dict[str, float]:
        """What it needs, by resource."""
        return {meter.quantity.name: float(meter(stays)) for meter in self._meters}

    def fits(self, stays: Flags) -> bool:
        """Whether it is within every limit."""
        self.tries += 1
        return all(meter(stays) <= self._most.get(meter.quantity.name, np.inf) for meter in self._meters)

    def used(self, stays: Flags) -> float:
        """The largest share of any limit that is used."""
        return max(figure / self._most[name] for name, figure in self.figures(stays).items() if name in self._most)


def _grown(stays: Flags, steps: Steps, scale: Scale) -> Flags:
    """Lets a network grow along the steps as far as the scale allows."""
    while len(steps):
        count = longest(len(steps), lambda n, base=stays, left=steps: scale.fits(left.added(base, n)))  # type: ignore[misc]
        stays = steps.added(stays, count)
        if count == len(steps) or scale.used(stays) >= FULL:
            break
        steps = steps.without(count)
    return stays


def longest(size: int, holds: Callable[[int], bool]) -> int:
    """The largest n up to ``size`` with ``holds(n)``, for a condition that, once false, stays false; 0 always holds.

    Steps double from 1, so that a short answer is found by few questions.
    """
    low, step = 0, 1
    while low + step <= size and holds(low + step):
        low += step
        step *= 2
    high = min(low + step, size + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def smallest(selection: Selection) -> Flags:
    """The network that keeps no more than it must."""
    _, found = selection.at(selection.sparsest)
    demand, _ = selection.demand(found.kept)
    stays: Flags = found.kept <= max(ALWAYS, demand)
    return stays


def steps_of(selection: Selection) -> Steps | None:
    """The steps by which the smallest network grows; None where their order depends on the sparsity."""
    if selection.fixed is None:
        return None
    _, found = selection.fixed
    demand, _ = selection.demand(found.kept)
    return Steps.of_needs(found.kept, families_of(selection.coupling), max(ALWAYS, demand))


def granted(selection: Selection, count: int) -> Flags:
    """The network that so many channels (or weights) are granted to."""
    sparsity = 1 - count / max(selection.steps, 1)
    order, found = selection.at(sparsity)
    flags: Flags = found.kept <= order.budget(sparsity)
    return flags


def _beginning(selection: Selection, least: Flags, scale: Scale) -> tuple[Flags, Steps]:
    """A network that fits, and the steps by which it may grow."""
    steps = steps_of(selection)
    if steps is not None:
        return least, steps
    # The order depends on the sparsity: the least sparse choice that fits, then more channels by their scores.
    count = longest(selection.steps, lambda count: scale.fits(granted(selection, count)))
    stays = granted(selection, count) if count else least
    families = families_of(selection.coupling)
    return stays, Steps.of_needs(np.where(stays, ALWAYS, by_score(selection)), families, ALWAYS)


def refusal(limits: Sequence[Limit], least: Mapping[str, float]) -> str:
    """That the budgets cannot be met, given what the smallest network needs, and what can."""
    broken = [limit for limit in limits if least[limit.budget.resource] > limit.most]
    if not broken:
        texts = " and ".join(limit.budget.text for limit in limits)
        return f"no network was found that meets {texts} at once, though each can be met. Allow more of one of them."
    parts, possible = [], []
    for limit in broken:
        quantity, figure = limit.budget.quantity, least[limit.budget.resource]
        parts.append(
            f"{limit.budget.text} allows {quantity.format(limit.most)}, the smallest network needs "
            f"{quantity.format(figure)}"
        )
        possible.append(f"{quantity.exactly(figure)} ({share_above(figure, limit.before)} of the full network)")
    return (
        f"the budget cannot be met: {'; '.join(parts)}, with the least width of all channels that stand or fall "
        f"together, and all that must stay. The smallest possible is {' and '.join(possible)}. Ask for that or more, "
        f"or release what {asked('keep')}, {asked('min_channels')} or {asked('round_to')} hold."
    )


def _next_step(selection: Selection, stays: Flags, steps: Steps, scale: Scale, limits: Sequence[Limit]) -> str:
    """Which step would have come next at the least excess, in words."""
    nearest: tuple[float, int] | None = None
    seen: set[int] = set()
    for step in range(len(steps)):
        family = int(steps.families[step])
        if family in seen or stays[steps.of(step)].all():
            continue
        seen.add(family)
        grown = stays.copy()
        grown[steps.of(step)] = True
        used = scale.used(grown)
        if nearest is None or used < nearest[0]:
            nearest = (used, step)
    if nearest is None:
        return "the network has no more channels to give back"
    used, step = nearest
    return (
        f"the smallest step up, {named(selection.coupling, steps.of(step))}, would need {used:.1%} of "
        f"{limits[0].budget.text if len(limits) == 1 else 'a budget'}"
    )
