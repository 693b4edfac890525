"""The widest network, by the method's own ranking, whose exact costs are within every budget.

A plan grows along the ranking in *steps*: a class of channels, or several that must come together (rounded widths,
equal pieces). Steps of the same *family* (channels that are interchangeable in shape) come in their order; families are
free of each other. So the solver takes the longest beginning of the ranking that fits, leaves out the step that does
not, with the rest of its family, and goes on with the longest beginning of what is left, until nothing more fits. Then
it exchanges: the last step of one family for the next one of another, as long as that uses more of the budget; and
takes what fits into the room that exchanges left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from ranp.choosing.budgets.budget import Budget, share_above
from ranp.choosing.budgets.ranking import Ladder, Steps, by_score, families_of, named
from ranp.choosing.budgets.shaping import REACHES, beginning, near, priced
from ranp.choosing.coupling import ALWAYS
from ranp.choosing.selection import Selection
from ranp.costs.quantities import Quantity
from ranp.errors import InfeasibleError, asked
from ranp.tracing.layout import Flags, Floats

FULL = 0.999
"""Used to this share, a budget counts as used up."""
NEARLY = 0.995
"""Used to this share, widths that follow a formula are not changed any more."""
ENOUGH = 0.98
"""Where less of every budget is used, the result says what stands in the way."""


_EXCHANGES, _CANDIDATES, _SLACK = 64, 24, 0.1
"""How many exchanges are made at most, how many are looked at for each, and how much of a step may be missing."""
_TAKEN_BACK = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""How many steps of a family an exchange may take back."""


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
    scale, least = Scale(meters, limits), smallest(selection)
    if not scale.fits(least):
        raise InfeasibleError(refusal(limits, scale.figures(least)))
    if selection.scope.shape is None:
        stays = _used_up(selection, _beginning(selection, least, scale), least, scale)
    else:
        stays = _in_shape(selection, least, scale)
    figures = scale.figures(stays)
    after = tuple(figures[limit.budget.resource] for limit in limits)
    return Solution(stays, after, what_is_too_large(selection, meters, limits, stays, after), scale.tries)


def _used_up(selection: Selection, begun: Flags, least: Flags, scale: Scale) -> Flags:
    """A network grown along the ranking, by exchanges, and into the room that these left."""
    stays = _grown(selection, begun, scale)
    if scale.used(stays) >= FULL:
        return stays
    exchanged = _exchanged(Ladder.of(selection, stays, least), scale)
    return stays if exchanged is stays else _grown(selection, exchanged, scale)


def _in_shape(selection: Selection, least: Flags, scale: Scale) -> Flags:
    """The network of the widths that the scope says, left by as few channels as the limits can be used with.

    Where channels are few, or large steps of a limit, that may be many.
    """
    if selection.scope.priced:
        selection = priced(selection, least, scale)
    base, best = beginning(selection, least, scale), least
    for reach, draw in REACHES:
        nearby = near(selection, base, reach, draw)
        begun = smallest(nearby)  # a scope with a shape is nested
        best = max(best, _used_up(nearby, begun, begun, scale), key=scale.used)
        if scale.used(best) >= NEARLY:
            return best
    return _used_up(selection, best, least, scale)


def what_is_too_large(
    selection: Selection, meters: Sequence[Meter], limits: Sequence[Limit], stays: Flags, after: Sequence[float]
) -> str:
    """Where no budget is used to 98 %: the smallest step up, in words; else nothing."""
    if max(figure / limit.most for figure, limit in zip(after, limits, strict=True)) >= ENOUGH:
        return ""
    scale, ladder = Scale(meters, limits), Ladder.of(selection, stays, smallest(selection))
    steps = [(scale.used(ladder.moved({number: 1})), step) for number, step in ladder.next_steps()]
    if not steps:
        return "the network has no more channels to give back"
    used, step = min(steps, key=lambda pair: pair[0])
    asked_for = limits[0].budget.text if len(limits) == 1 else "a budget"
    return f"the smallest step up, {named(selection.coupling, step)}, would need {used:.1%} of {asked_for}"


def _exchanged(ladder: Ladder, scale: Scale) -> Flags:
    """The network after exchanges that use more of the limits, until none does.

    An exchange takes back a few steps of a family, or none, and fills the room with steps of others. What it needs is
    first reckoned from each step alone, so that few candidates are looked at.
    """
    for _ in range(_EXCHANGES):
        now = scale.shares(ladder.stays)
        if now.max() >= FULL:
            break
        ups = {family: scale.shares(ladder.moved({family: 1})) - now for family, _ in ladder.next_steps()}
        downs = {family: scale.shares(ladder.moved({family: -1})) - now for family in ladder.takes_back()}
        ups, downs = _spread(ups), _spread(downs)
        begun: list[tuple[dict[int, int], Floats]] = [({}, 1 - now)]
        for (family, down), count in product(downs.items(), _TAKEN_BACK):
            if count <= ladder.taken[family]:
                begun.append(({family: -count}, 1 - now - count * down))
        moves = (_filled(ladder, back, room, first, ups) for (back, room), first in product(begun, ups))
        found = {tuple(sorted(move.items())): left for move, left in moves if left < 1 - now.max()}

        def merit(move: tuple[tuple[int, int], ...]) -> tuple[float, int]:
            """The room that it leaves, and where that is alike, how far it leads from the ranking."""
            return round(max(found[move], 1 - FULL), 3), sum(abs(count) for _, count in move)  # noqa: B023 -- used at once

        for taken in sorted(found, key=merit)[:_CANDIDATES]:
            move = dict(taken)
            if now.max() < scale.shares(ladder.moved(move)).max() <= 1:
                ladder = ladder.after(move)
                break
        else:
            break
    return ladder.stays


def _spread(changes: dict[int, Floats]) -> dict[int, Floats]:
    """Some of the changes, from the largest to the smallest."""
    order = sorted(changes, key=lambda family: -float(np.abs(changes[family]).max()))
    places = np.unique(np.linspace(0, len(order) - 1, min(len(order), _CANDIDATES)).round().astype(int))
    return {order[place]: changes[order[place]] for place in places.tolist()} if order else {}


def _filled(
    ladder: Ladder, back: Mapping[int, int], room: Floats, first: int, ups: Mapping[int, Floats]
) -> tuple[dict[int, int], float]:
    """A move with as many steps up as fit the room, those of one family first; and the room that is then left."""
    move = dict(back)
    for family in (first, *ups):
        if family in move:
            continue
        fits = min((left / step for left, step in zip(room, ups[family], strict=True) if step > 0), default=np.inf)
        count = int(min(fits + _SLACK, ladder.left(family)))
        if count > 0:
            move[family] = count
            room = room - count * ups[family]
    return move, abs(float(room.min()))


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
        return float(self.shares(stays).max())

    def shares(self, stays: Flags) -> Floats:
        """The share of each limit that is used."""
        found = self.figures(stays)
        return np.asarray([found[name] / most for name, most in self._most.items()])


def _grown(selection: Selection, stays: Flags, scale: Scale) -> Flags:
    """Lets a network grow along the ranking as far as the scale allows."""
    need = by_score(selection, stays) if selection.fixed is None else selection.fixed[1].kept
    steps = Steps.of_needs(np.where(stays, ALWAYS, need), families_of(selection.coupling), ALWAYS)
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


def _beginning(selection: Selection, least: Flags, scale: Scale) -> Flags:
    """A network that fits: the smallest, or the least sparse choice where the order depends on the sparsity."""
    if selection.fixed is not None:
        return least
    count = longest(selection.steps, lambda count: scale.fits(granted(selection, count)))
    return granted(selection, count) if count else least


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
