"""From budgets to a plan: measure the full network, solve, check the solution on a copy that is really cut."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ranp.choosing.budgets.budget import Budget
from ranp.choosing.budgets.metering import CheckedMeter, meters_for
from ranp.choosing.budgets.solving import Limit, Solution, limits_of, solve, what_is_too_large
from ranp.choosing.plan import Plan
from ranp.choosing.refusals import nothing_goes
from ranp.choosing.selection import Selection
from ranp.costs.prices import Prices
from ranp.costs.step import StepSetup
from ranp.errors import InfeasibleError
from ranp.progress import Progress
from ranp.running.calling import tensors_in
from ranp.tracing.choice import Choice

logger = logging.getLogger(__name__)

_ROUNDS = 3
"""How often a solution that turns out too large is asked for again, a little smaller."""


def plan_within(
    selections: Selection | Sequence[Selection],
    budgets: Sequence[Budget],
    setup: StepSetup,
    *,
    settings: Mapping[str, Any] | None = None,
    convention: str = "true",
    progress: Progress | None = None,
) -> Plan:
    """The plan of the widest network, by a method's own ranking, that meets every budget.

    Args:
        selections: The method's ranking, and what must stay. Of several, which differ in how widths are rounded, the
            one is taken that leaves the most FLOPs.
        budgets: What may be needed.
        setup: The network, and what one training step of it is.
        settings: What else to remember in the plan.
        convention: How FLOPs, multiply-adds and activations are counted.
        progress: Told ``(done, all)`` while times are measured.

    Raises:
        InfeasibleError: A budget cannot be met; the message tells the smallest that can.
        UnsupportedError: The network does not run without data, and a budget needs that.
    """
    choices = [selections] if isinstance(selections, Selection) else list(selections)
    meters = meters_for(
        (budget.quantity for budget in budgets), setup, choices[0], convention=convention, progress=progress
    )
    limits = limits_of(budgets, meters, choices[0].coupling.size)
    for limit in limits:
        if limit.most < limit.before and choices[0].coupling.stuck:
            raise InfeasibleError(nothing_goes(choices[0].coupling, f"budget {limit.budget.text}"))
    selection, solution = _widest(choices, meters, limits)
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


def _widest(
    selections: Sequence[Selection], meters: Sequence[CheckedMeter], limits: Sequence[Limit]
) -> tuple[Selection, Solution]:
    """The solution that leaves the most FLOPs, and the selection that it is of."""
    if len(selections) == 1:
        return selections[0], _checked(selections[0], meters, limits)
    found, refused = [], None
    for selection in selections:
        try:
            found.append((selection, _checked(selection, meters, limits)))
        except InfeasibleError as error:  # wide multiples may not fit where narrow ones do
            refused = refused or error
    if refused is not None and not found:
        raise refused
    trace = selections[0].coupling.trace
    return max(found, key=lambda pair: Prices.of(trace).at(Choice(trace, pair[1].stays)).flops)


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
