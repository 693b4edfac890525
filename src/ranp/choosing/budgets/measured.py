"""The widest network within budgets of time, which are measured: few candidates, each of them really run.

Time follows the ranking less well than FLOPs do: it is noisy, and a layer of 5 channels may take as long as one of 8 or
16. So the position in the ranking is found by some ten measurements, the last of them with more care; where that one is
above what is allowed, the search goes on from what was measured. *Free channels* are those that a measured step hardly
notices: layers grow to multiples of what the machine computes at once, cheap ones first, while the time allows it.
"""

from __future__ import annotations

import bisect
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ranp.choosing.budgets.metering import CheckedMeter
from ranp.choosing.budgets.ranking import Steps, by_score, families_of
from ranp.choosing.budgets.solving import Limit, Scale, Solution, granted, longest, refusal, smallest, steps_of
from ranp.choosing.coupling import ALWAYS
from ranp.choosing.selection import Selection
from ranp.costs.prices import Prices
from ranp.errors import InfeasibleError
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags, Ints

logger = logging.getLogger(__name__)

AIM = 0.97
"""Share of the allowed time that candidates are looked for at."""
SAFE = 0.985
"""Share of it that the last measurement may show, so that another one is not above."""
CLOSE = 0.97
"""Share of the aim that is near enough."""
ROOM = 0.96
"""Share of the aim that is used before free channels are looked for."""
_TRIES = 10
"""Candidates of one search."""
_LAST = 8
"""How often a network that the last measurement refuses is made smaller."""


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Networks from the smallest to the widest along a ranking.

    Attributes:
        size: Number of the widest.
        at: The network of a number, from 0 on.
    """

    size: int
    at: Callable[[int], Flags]

    @classmethod
    def of(cls, selection: Selection) -> Path:
        """The path of a selection."""
        least, steps = smallest(selection), steps_of(selection)
        if steps is not None:
            return cls(len(steps), lambda count, steps=steps: steps.added(least, count))  # type: ignore[misc]
        return cls(selection.steps, lambda count: granted(selection, count) if count else least)


class Search:
    """Looks for the widest network within limits of which some are measured.

    Args:
        selection: The ranking, and what must stay.
        exact: Meters whose figures are exact and rise with every channel.
        timed: All others.
        limits: What may be needed.
    """

    def __init__(
        self,
        selection: Selection,
        exact: Sequence[CheckedMeter],
        timed: Sequence[CheckedMeter],
        limits: Sequence[Limit],
    ) -> None:
        self.selection, self._exact, self._timed, self._limits = selection, exact, timed, limits
        self._hard, self._soft = (Scale(meters, self._of(meters)) for meters in (exact, timed))
        self._known: dict[bytes, float] = {}
        self._trace = selection.coupling.trace
        self._prices = Prices.of(self._trace)

    @property
    def tries(self) -> int:
        """How many networks were measured."""
        return len(self._known)

    def used(self, stays: Flags) -> float:
        """The largest share of a limit of time that a network uses, measured once."""
        key = stays.tobytes()
        if key not in self._known:
            self._known[key] = self._soft.used(stays)
            logger.info("%d channels take %.3f of the allowed time", self._channels(stays), self._known[key])
        return self._known[key]

    def fits(self, stays: Flags) -> bool:
        """Whether the exact limits hold."""
        return self._hard.fits(stays)

    def sure(self, stays: Flags) -> dict[str, float]:
        """Figures with care, of a copy that is really cut."""
        return {meter.quantity.name: float(meter.checked(stays)) for meter in (*self._exact, *self._timed)}

    def above(self, figures: dict[str, float], meters: Sequence[CheckedMeter]) -> float:
        """The largest share of a limit of some meters that these figures use."""
        return max((figures[one.budget.resource] / one.most for one in self._of(meters)), default=0.0)

    def _of(self, meters: Sequence[CheckedMeter]) -> list[Limit]:
        names = {meter.quantity.name for meter in meters}
        return [limit for limit in self._limits if limit.budget.resource in names]

    def widest(self, path: Path, aim: float = AIM) -> Flags | None:
        """The widest network of a path within the exact limits and the aim; None if not even the smallest is."""
        if not self.fits(path.at(0)):
            return None
        high = longest(path.size, lambda count: self.fits(path.at(count)))
        low, tries = -1, 0
        if self.used(path.at(high)) <= aim:
            return path.at(high)
        while tries < _TRIES and high - low > 1:
            if low >= 0 and self.used(path.at(low)) >= CLOSE * aim:
                break
            count = self._next(path, low, high, aim, tries)
            if self.used(path.at(count)) <= aim:
                low = count
            else:
                high = count
            tries += 1
            if not count and low < 0:
                return None
        if low < 0:
            return path.at(0) if self.used(path.at(0)) <= aim else None
        return path.at(low)

    def _next(self, path: Path, low: int, high: int, aim: float, tries: int) -> int:
        """Where the time is expected to be the aim: seconds as a power of FLOPs, through what was measured."""
        top, top_used = self._work(path.at(high)), self.used(path.at(high))
        if low < 0:
            wanted = top + math.log(0.95 * aim / top_used) * (1 + 0.5 * (tries > 0))
        else:
            base, base_used = self._work(path.at(low)), self.used(path.at(low))
            rise = math.log(top_used / base_used)
            share = math.log(0.99 * aim / base_used) / rise if rise > 0 else 0.5
            # Where one side does not move, halves are surer.
            wanted = base + (min(max(share, 0.1), 0.9) if tries % 3 != 2 else 0.5) * (top - base)
        places = range(max(low, 0), high)
        count = max(low, 0) + bisect.bisect_right(places, wanted, key=lambda n: self._work(path.at(n))) - 1
        return min(max(count, low + 1), high - 1)

    def _work(self, stays: Flags) -> float:
        return math.log(max(self._flops(stays), 1))

    def _flops(self, stays: Flags) -> int:
        return self._prices.at(Choice(self._trace, stays)).flops

    def _channels(self, stays: Flags) -> int:
        return int(np.count_nonzero(stays[self.selection.coupling.classes]))

    def best(self, path: Path, multiples: Sequence[int], aim: float) -> Flags | None:
        """The widest network of a path, or a narrower one that free channels make wider; None if none fits."""
        plain = self.widest(path, aim)
        room = self.widest(path, ROOM * aim) if multiples else None
        found = [plain, None if room is None else self.filled(room, multiples, aim)]
        return max((stays for stays in found if stays is not None), key=self._channels, default=None)

    def filled(self, stays: Flags, multiples: Sequence[int], aim: float) -> Flags:
        """The same network with families of channels grown to multiples, cheap ones first, as far as the aim allows."""
        extra = self._growth(stays, multiples) if multiples else []
        low, high = 0, 1 + longest(len(extra), lambda n: self.fits(_with(stays, extra[:n])))
        probe = high - 1
        while high - low > 1:
            low, high = (probe, high) if self.used(_with(stays, extra[:probe])) <= aim else (low, probe)
            probe = (low + high) // 2
        return _with(stays, extra[:low])

    def _growth(self, stays: Flags, multiples: Sequence[int]) -> list[Ints]:
        """Classes by which families grow to their next multiples, until they have doubled; fewest FLOPs first."""
        families = families_of(self.selection.coupling)
        fixed = self.selection.fixed
        need = by_score(self.selection, stays) if fixed is None else fixed[1].kept
        steps = Steps.of_needs(np.where(stays, ALWAYS, need), families, ALWAYS)
        held = np.bincount(families[stays & (families >= 0)], minlength=int(families.max(initial=0)) + 1)
        units: list[tuple[float, int, Ints]] = []
        for family in np.unique(steps.families):
            now, width, unit = stays, int(held[family]), list[Ints]()
            goal = _multiple_above(width, multiples)
            own = np.flatnonzero(steps.families == family)
            for step in own:
                unit.append(steps.of(int(step)))
                width += len(unit[-1])
                if width < goal and step != own[-1]:
                    continue
                grown = _with(now, unit)
                price = (self._flops(grown) - self._flops(now)) / sum(map(len, unit))
                price = price if now is stays else max(price, units[-1][0])
                units.append((price, len(units), np.concatenate(unit)))
                now, unit, goal = grown, [], _multiple_above(width, multiples)
                if width >= 2 * held[family]:
                    break
        return [classes for _, _, classes in sorted(units, key=lambda one: one[:2])]


def _multiple_above(width: int, multiples: Sequence[int]) -> int:
    """The next multiple above a width: of the largest number that is not larger than it."""
    unit = max((one for one in multiples if one <= width), default=min(multiples))
    return (width // unit + 1) * unit


def _with(stays: Flags, more: Sequence[Ints]) -> Flags:
    grown: Flags = stays.copy()
    for classes in more:
        grown[classes] = True
    return grown


def solve_measured(
    selection: Selection,
    meters: Sequence[CheckedMeter],
    limits: Sequence[Limit],
    *,
    multiples: Sequence[int] = (),
    most: Flags | None = None,
) -> Solution:
    """Finds the widest network within limits of which some are of quantities that do not rise, such as time.

    Args:
        selection: The ranking, and what must stay.
        meters: What candidates need.
        limits: What may be needed.
        multiples: For free channels: what widths may grow to multiples of; empty for none.
        most: The widest network within the exact limits alone, if there are such: taken where time allows it.

    Raises:
        InfeasibleError: Even the smallest network exceeds a limit; the message tells the smallest possible figure.
    """
    exact = [meter for meter in meters if meter.quantity.rises]
    timed = [meter for meter in meters if not meter.quantity.rises]
    search = Search(selection, exact, timed, limits)
    path, aim = Path.of(selection), AIM
    found: Solution | None = None
    for _ in range(_LAST):
        if most is not None and search.used(most) <= aim:
            stays: Flags | None = search.filled(most, multiples, aim)
        else:
            stays = search.best(path, multiples, aim)
        if stays is None or (found is not None and (stays == found.stays).all()):
            break
        figures = search.sure(stays)
        share = search.above(figures, timed)
        logger.info("with more care, %.3f of the allowed time", share)
        if search.above(figures, exact) > 1:  # the reckoning was wrong; from now on every candidate is cut
            for meter in exact:
                meter.distrust()
        elif share > SAFE:
            if found is not None:
                break
            aim = min(aim, search.used(stays)) * 0.99 * SAFE / share
        else:
            was_first = found is None
            after = tuple(figures[limit.budget.resource] for limit in limits)
            found = Solution(stays, after, "", search.tries)
            aim = AIM * search.used(stays) / share
            if share > CLOSE * AIM or aim < 1 or not was_first:
                break
    if found is not None:
        return found
    least = search.sure(smallest(selection))
    names = {meter.quantity.name for meter in timed}
    figures = {name: figure / SAFE**2 if name in names else figure for name, figure in least.items()}
    raise InfeasibleError(refusal(limits, figures))


def fill_free(
    selection: Selection,
    solution: Solution,
    meters: Sequence[CheckedMeter],
    limits: Sequence[Limit],
    clock: CheckedMeter,
    multiples: Sequence[int],
) -> Solution:
    """Widens a solution within its limits where the measured step does not get slower.

    Args:
        selection: The ranking.
        solution: Within the limits.
        meters: Of the limits.
        limits: What may be needed.
        clock: What is measured.
        multiples: Widths to grow to.
    """
    now = clock(solution.stays)
    bound = Limit(replace(limits[0].budget, resource=clock.quantity.name), now, now)
    search = Search(selection, meters, [clock], [*limits, bound])
    stays = search.filled(solution.stays, multiples, 1.0)
    figures = search.sure(stays)
    if search.above(figures, meters) > 1:
        return solution
    return replace(solution, stays=stays, after=tuple(figures[limit.budget.resource] for limit in limits))
