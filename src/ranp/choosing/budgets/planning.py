"""From budgets to a plan: measure the full network, solve, check the solution on a copy that is really cut."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ranp.choosing.budgets.budget import Budget, parse_all
from ranp.choosing.budgets.measured import fill_free, solve_measured
from ranp.choosing.budgets.metering import CheckedMeter, TimeMeter, counting_meter, meters_for
from ranp.choosing.budgets.shaping import priced
from ranp.choosing.budgets.solving import Limit, Scale, Solution, limits_of, smallest, solve, what_is_too_large
from ranp.choosing.plan import Plan
from ranp.choosing.refusals import nothing_goes
from ranp.choosing.selection import Selection
from ranp.costs.quantities import QUANTITIES
from ranp.costs.step import StepSetup
from ranp.costs.step.cpu import blocks
from ranp.costs.step.stand_ins import device_of
from ranp.errors import InfeasibleError
from ranp.progress import Progress

logger = logging.getLogger(__name__)

_ROUNDS = 3
"""How often a solution that turns out too large is asked for again, a little smaller."""


def plan_within(
    selection: Selection,
    budgets: Sequence[Budget],
    setup: StepSetup,
    *,
    settings: Mapping[str, Any] | None = None,
    convention: str = "true",
    fill: bool | None = None,
    floor: int | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The plan of the widest network, by a method's own ranking, that meets every budget.

    Args:
        selection: The method's ranking, and what must stay.
        budgets: What may be needed.
        setup: The network, and what one training step of it is.
        settings: What else to remember in the plan.
        convention: How FLOPs, multiply-adds and activations are counted.
        fill: Whether to widen layers, within the budgets, while the measured step does not get slower; None: with a
            budget of time.
        floor: Least width of every layer, or the largest below it that fits; None: the selection's, which is hard.
        progress: Told how many networks were measured, with a budget of time.

    Raises:
        InfeasibleError: A budget cannot be met; the message tells the smallest that can.
        UnsupportedError: The network does not run without data, and a budget of memory needs that; or it does not run
            on the example, and a budget of time needs that.
    """
    meters = meters_for(
        (budget.quantity for budget in budgets), setup, selection, convention=convention, progress=progress
    )
    fill = any(budget.quantity.is_measured for budget in budgets) if fill is None else fill
    try:
        limits = limits_of(budgets, meters, selection.coupling.size)
        for limit in limits:
            if limit.most < limit.before and selection.coupling.stuck:
                raise InfeasibleError(nothing_goes(selection.coupling, f"budget {limit.budget.text}"))
        selection, solution = _widest(
            selection if floor is None else selection.floored(floor),
            meters,
            limits,
            lambda chosen: _solved(chosen, meters, limits, setup, fill=fill, progress=progress),
            least=selection.min_channels,
        )
    finally:
        for meter in meters:
            meter.close()
    outcome = [
        {
            "budget": limit.budget.text,
            "resource": limit.budget.resource,
            "before": limit.before,
            "limit": limit.most,
            "after": figure,
        }
        for limit, figure in zip(limits, solution.after, strict=True)
    ]
    made_by: dict[str, Any] = {**selection.made_by, "exact": False, "budget": outcome, "convention": convention}
    if solution.note:
        made_by["budget_note"] = solution.note
    if floor is not None:
        made_by["floor"] = selection.min_channels
        if selection.min_channels < floor:
            made_by["floor_note"] = f"{selection.min_channels}, since {floor} channels in every layer do not fit"
    if any(budget.quantity.needs_loss for budget in budgets):
        made_by["step"] = setup.to_dict()
    return selection.build(solution.stays, settings={**made_by, **(settings or {})})


def _widest(
    selection: Selection,
    meters: Sequence[CheckedMeter],
    limits: Sequence[Limit],
    solved: Callable[[Selection], Solution],
    *,
    least: int,
) -> tuple[Selection, Solution]:
    """The solution with the largest least width, down to ``least``, that fits; and the selection with that width."""
    exact, bounds = _rising(meters, limits)
    for width in range(selection.min_channels, least, -1):
        candidate = selection.floored(width)
        if Scale(exact, bounds).fits(smallest(candidate)):
            try:
                return candidate, solved(candidate)
            except InfeasibleError as error:
                logger.info("a least width of %d channels does not fit: %s", width, error)
    selection = selection.floored(least)
    return selection, solved(selection)


def _rising(meters: Sequence[CheckedMeter], limits: Sequence[Limit]) -> tuple[list[CheckedMeter], list[Limit]]:
    """The meters of quantities that rise with every channel, and their limits."""
    exact = [meter for meter in meters if meter.quantity.rises]
    names = {meter.quantity.name for meter in exact}
    return exact, [limit for limit in limits if limit.budget.resource in names]


def _solved(
    selection: Selection,
    meters: Sequence[CheckedMeter],
    limits: Sequence[Limit],
    setup: StepSetup,
    *,
    fill: bool,
    progress: Progress | None,
) -> Solution:
    """The solution, with free channels if it shall be filled."""
    multiples = blocks(device_of(setup.model, setup.example).type, setup.step.precision) if fill else ()
    exact, bounds = _rising(meters, limits)
    solution = _checked(selection, exact, bounds) if exact else None
    if solution is None or len(exact) < len(meters):
        most = None if solution is None else solution.stays
        selection = _priced_by_flops(selection, exact, limits, setup)
        return solve_measured(selection, meters, limits, multiples=multiples, most=most)
    if not fill:
        return solution
    clock = TimeMeter(QUANTITIES.get("step-time"), setup, selection.coupling.trace, progress)
    try:
        return fill_free(selection, solution, meters, limits, clock, multiples)
    finally:
        clock.close()


def _priced_by_flops(
    selection: Selection, exact: Sequence[CheckedMeter], limits: Sequence[Limit], setup: StepSetup
) -> Selection:
    """With times, channels cost what they do in FLOPs, and in what else is counted: single ones are not measured."""
    if not selection.scope.priced:
        return selection
    clock = counting_meter(QUANTITIES.get("flops"), setup, selection.coupling.trace)
    share = min(limit.most / limit.before for limit in limits if not limit.budget.quantity.rises)
    meters, (most,) = [*exact, clock], limits_of(parse_all(f"flops={share:%}"), [clock], selection.coupling.size)
    names = {meter.quantity.name for meter in exact}
    bounds = {limit.budget.resource: limit for limit in (most, *limits) if limit.budget.resource in {*names, "flops"}}
    return priced(selection, smallest(selection), Scale(meters, list(bounds.values())))


def _checked(selection: Selection, meters: Sequence[CheckedMeter], limits: Sequence[Limit]) -> Solution:
    """The solution with its costs taken from a copy that is really cut, and really within the limits."""
    aims = list(limits)
    for _ in range(_ROUNDS):
        try:
            solution = solve(selection, meters, aims)
        except InfeasibleError:  # said again below, with the figures of a copy that is really cut
            break
        real = _real(meters, limits, solution)
        if all(figure <= limit.most for figure, limit in zip(real, limits, strict=True)):
            note = what_is_too_large(selection, meters, limits, solution.stays, real)
            return replace(solution, after=real, note=note)
        logger.info("a slim network needs %s where %s was reckoned: aiming lower", real, solution.after)
        aims = [
            replace(aim, most=min(aim.most, limit.most * reckoned / figure)) if figure > limit.most else aim
            for aim, limit, reckoned, figure in zip(aims, limits, solution.after, real, strict=True)
        ]
    for meter in meters:
        meter.distrust()
    solution = solve(selection, meters, limits)
    return replace(solution, after=_real(meters, limits, solution))


def _real(meters: Sequence[CheckedMeter], limits: Sequence[Limit], solution: Solution) -> tuple[float, ...]:
    found = {meter.quantity.name: meter.checked(solution.stays) for meter in meters}
    return tuple(float(found[limit.budget.resource]) for limit in limits)
