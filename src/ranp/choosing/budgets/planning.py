"""From budgets to a plan: measure the full network, solve, check the solution on a copy that is really cut."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ranp.choosing.budgets.budget import Budget
from ranp.choosing.budgets.measured import fill_free, solve_measured
from ranp.choosing.budgets.metering import CheckedMeter, TimeMeter, meters_for
from ranp.choosing.budgets.solving import Limit, Solution, limits_of, solve, what_is_too_large
from ranp.choosing.plan import Plan
from ranp.choosing.refusals import nothing_goes
from ranp.choosing.selection import Selection
from ranp.costs.quantities import QUANTITIES
from ranp.costs.step import StepSetup
from ranp.costs.step.cpu import blocks
from ranp.costs.step.stand_ins import device_of
from ranp.errors import InfeasibleError
from ranp.progress import Progress
from ranp.running.calling import tensors_in

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
        solution = _solved(selection, meters, limits, setup, fill=fill, progress=progress)
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
    if any(budget.quantity.needs_loss for budget in budgets):
        inputs = ["x".join(map(str, tensor.shape)) for tensor in tensors_in(setup.example)]
        made_by["step"] = {"inputs": inputs, **asdict(setup.step)}
    return selection.build(solution.stays, settings={**made_by, **(settings or {})})


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
    exact = [meter for meter in meters if meter.quantity.rises]
    names = {meter.quantity.name for meter in exact}
    bounds = [limit for limit in limits if limit.budget.resource in names]
    solution = _checked(selection, exact, bounds) if exact else None
    if solution is None or len(exact) < len(meters):
        most = None if solution is None else solution.stays
        return solve_measured(selection, meters, limits, multiples=multiples, most=most)
    if not fill:
        return solution
    clock = TimeMeter(QUANTITIES.get("step-time"), setup, selection.coupling.trace, progress)
    try:
        return fill_free(selection, solution, meters, limits, clock, multiples)
    finally:
        clock.close()


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
