"""From one scoring and one trace to sweeps: every method at every sparsity, with the exact costs of the slim network.

What a slim network costs is not estimated: it follows from the trace and from which channels stay (``costs.prices``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from ranp.choosing.budgets import Budget, Limit, Meter, solve
from ranp.choosing.budgets.metering import meters_for
from ranp.choosing.budgets.solving import smallest
from ranp.choosing.methods import STRENGTH, Method, resolve
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection
from ranp.costs.measuring import measure
from ranp.costs.prices import Prices
from ranp.costs.quantities import QUANTITIES, resources
from ranp.costs.step import StepSetup
from ranp.errors import DataError, InfeasibleError, PlanMismatchError, UnsupportedError
from ranp.progress import Progress
from ranp.reporting.causes import what_stays
from ranp.reporting.study.values import LayerStudy, Step, Study, Sweep
from ranp.running.calling import unwrap
from ranp.scoring.scores import Scores
from ranp.tracing import Trace
from ranp.tracing import trace as trace_network
from ranp.tracing.choice import Choice
from ranp.weighting import balance

logger = logging.getLogger(__name__)


CEILING = 0.99
"""The highest sparsity that a sweep tries; the largest feasible one may lie above it."""
BEYOND = 3
"""Steps between the largest feasible sparsity and ``CEILING``."""


def study(
    model: nn.Module,
    example: Any,
    raw: Scores,
    *,
    plan: Plan | None = None,
    method: str | Method = "ranp-f",
    strength: float | None = None,
    compare: Iterable[str | Method] = ("vanilla",),
    points: int = 25,
    trace: Trace | None = None,
    convention: str | None = None,
    progress: Progress | None = None,
) -> Study:
    """Sweeps methods over sparsities: widths and exact costs of the slim network at each.

    A method whose widths follow from a budget is swept over shares of the FLOPs; the sparsities are what these come to.
    The options of a plan (kept layers, tie rule, exact share, least width, rounding, seed, strength, resource) hold for
    the sweeps too, and the sparsity it was made at, if it was made at one, is one of their steps.

    Args:
        model: The full network; may be on the meta device. It is not changed.
        example: Inputs of one call, at the size that costs are taken at.
        raw: Scores before weighting, as ``ranp.score`` returns them; every method is given these.
        plan: Of the run that the study is of, if there is one.
        method: The method whose scores are shown layer by layer.
        strength: Lambda of the methods that reweight; default that of the plan, else 11.
        compare: Methods to sweep besides.
        points: Steps from 0 to the largest feasible sparsity, both included.
        trace: Of the model on the example; made anew if None.
        convention: How costs are counted; default as the plan was made, else ``"true"``.
        progress: Told ``(steps done, steps in all)``.

    Raises:
        DataError: The scores are not raw.
        PlanMismatchError: Scores, plan, trace and model do not belong together.
        UnsupportedError: A method is unknown, ``points`` is below 2, or the network cannot run on the example.
    """
    if not isinstance(points, int) or isinstance(points, bool) or points < 2:
        raise UnsupportedError(f"points={points!r} is not allowed. Pass a whole number from 2 on: 0 and the largest.")
    if raw.stage != "raw":
        raise DataError(f"the scores are {raw.stage} already; a study weighs them itself. Pass raw scores.")
    network = unwrap(model)
    found = trace_network(network, example) if trace is None else trace
    _check_plan(plan, found)
    options = _Options.of(plan, strength, convention)
    several = (compare,) if isinstance(compare, str | Method) else tuple(compare)
    methods = {how.name: how for how in map(resolve, (method, *several))}
    main, *_ = methods.values()
    stages = {how.name: _stages(how, raw, found, options) for how in methods.values()}
    setup = StepSetup(network, example)
    lots = {how.name: _Lot.of(how, stages[how.name], found, options, points, setup) for how in methods.values()}
    (memory,) = meters_for(
        [QUANTITIES.get("memory")], setup, lots[main.name].selection, convention=options.convention
    )  # fmt: skip
    total, done = sum(len(lot.asked) for lot in lots.values()), 0
    sweeps = []
    for name, lot in lots.items():
        steps = []
        for asked in lot.asked:
            steps.append(_step(lot, asked, options, found, memory))
            done += 1
            if progress is not None:
                progress(done, total)
        sweeps.append(Sweep(name, lot.largest, tuple(sorted(steps, key=lambda step: step.sparsity))))
    notes = plan.notes if plan is not None else lots[main.name].plan(lots[main.name].asked[0]).notes
    return Study(
        layers=_layers(found, stages[main.name], plan, notes, options.convention),
        groups=tuple(group.layers for group in found.groups() if len(group.layers) > 1),
        sweeps=tuple(sweeps),
        method=main.name,
        strength=options.strength,
        criterion=raw.criterion,
    )


_CHOSEN_BY = ("keep", "tie", "min_channels", "round_to", "seed")
"""Settings of a plan that its selection was made with."""


@dataclass(frozen=True, slots=True)
class _Options:
    """What a plan says about how it was made, or the defaults of ``ranp.select``."""

    strength: float
    exact: bool
    sparsity: float | None
    method: str | None
    resource: str | None
    convention: str
    select: Mapping[str, Any]

    @classmethod
    def of(cls, plan: Plan | None, strength: float | None, convention: str | None) -> _Options:
        settings: Mapping[str, Any] = {} if plan is None else plan.settings
        lambda_ = settings.get("strength", STRENGTH) if strength is None else strength
        return cls(
            strength=float(lambda_),
            exact=bool(settings.get("exact", False)),
            sparsity=None if plan is None or "budget" in settings else plan.sparsity.requested,
            method=settings.get("method"),
            resource=settings["resource"] if settings.get("resource") in resources(of_step=False) else None,
            convention=str(settings.get("convention", "true") if convention is None else convention),
            select={name: settings[name] for name in _CHOSEN_BY if name in settings},
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Lot:
    """A method ready to be swept.

    Attributes:
        selection: Its ranking.
        largest: The largest feasible sparsity.
        asked: What its plans are asked for, least removed first: sparsities, or shares of the FLOPs where only a budget
            tells the widths.
        plan: The plan of one of them.
    """

    selection: Selection
    largest: float
    asked: tuple[float, ...]
    plan: Callable[[float], Plan]

    @classmethod
    def of(
        cls,
        how: Method,
        stages: Mapping[str, Scores],
        trace: Trace,
        options: _Options,
        points: int,
        setup: StepSetup,
    ) -> _Lot:
        selection = Selection.of(list(stages.values())[-1], trace, scope=how.scope, **options.select)
        if selection.scope.priced:
            return cls._within_budgets(selection, options, points, setup)
        largest = selection.max_share() if options.exact else selection.max_sparsity()
        wanted = {largest * index / (points - 1) for index in range(points - 1)} | {0.0, largest}
        if largest < CEILING:
            wanted |= {CEILING - (CEILING - largest) * left / BEYOND for left in range(BEYOND)}
        if options.sparsity is not None:
            wanted.add(options.sparsity)
        return cls(selection, largest, tuple(sorted(wanted)), partial(selection.plan, exact=options.exact))

    @classmethod
    def _within_budgets(cls, selection: Selection, options: _Options, points: int, setup: StepSetup) -> _Lot:
        """Networks from the full one to the smallest, by equal factors of the FLOPs."""
        (meter,) = meters_for([QUANTITIES.get("flops")], setup, selection, convention=options.convention)
        least = smallest(selection)
        full, end = meter(np.ones(selection.coupling.size, dtype=bool)), meter(least)

        def plan(share: float) -> Plan:
            limit = Limit(Budget.parse(f"flops={share:%}"), full, max(share * full, end))
            return selection.build(solve(selection, [meter], [limit]).stays)

        largest = selection.build(least).sparsity.of_channels
        return cls(selection, largest, tuple((end / full) ** np.linspace(0, 1, points)), plan)


def _step(lot: _Lot, asked: float, options: _Options, trace: Trace, memory: Meter) -> Step:
    try:
        plan = lot.plan(asked)
    except InfeasibleError:
        return Step(asked, feasible=False)
    sparsity = plan.sparsity.of_channels if lot.selection.scope.priced else asked
    widths = tuple(len(plan.kept[layer.name]) for layer in trace.layers)
    choice = Choice.of_plan(trace, plan)
    bill = Prices.of(trace, options.convention).at(choice)
    params = bill.params if options.convention == "true" else bill.module_params
    return Step(sparsity, True, widths, plan.sparsity.of_channels, params, bill.flops, int(memory(choice.stays)))


def _stages(how: Method, raw: Scores, trace: Trace, options: _Options) -> dict[str, Scores]:
    """The scores as the method makes them, stage by stage; the last ones decide."""
    resource = options.resource if how.name == options.method else None
    costs = how.costs(trace, resource, convention=options.convention)
    stages = {"raw": raw}
    if how.balance:
        stages["balanced"] = balance(raw)
    final = how.weigh(raw, costs, options.strength)
    return {**stages, final.stage: final}


def _check_plan(plan: Plan | None, trace: Trace) -> None:
    channels = {layer.name: layer.channels for layer in trace.layers}
    if plan is None or dict(plan.channels) == channels:
        return
    wrong = next(name for name in (*plan.channels, *channels) if plan.channels.get(name) != channels.get(name))
    raise PlanMismatchError(
        f"layer {wrong!r} has {channels.get(wrong, 'no')} channels in the network and {plan.channels.get(wrong, 'no')} "
        "in the plan. Pass the plan that was made for this network."
    )


def _layers(
    trace: Trace, stages: Mapping[str, Scores], plan: Plan | None, notes: Sequence[str], convention: str
) -> tuple[LayerStudy, ...]:
    flops, memory = (measure(trace, name, convention=convention) for name in ("flops", "memory"))
    why: dict[str, str] = {}
    for one in what_stays(trace, notes):
        for name in one.layers:
            why.setdefault(name, str(one))
    return tuple(
        LayerStudy(
            name=layer.name,
            kind=layer.kind,
            channels=layer.channels,
            flops=int(flops[layer.name]),
            memory=int(memory[layer.name]),
            scores={stage: tuple(scores[layer.name].tolist()) for stage, scores in stages.items()},
            kept=None if plan is None else plan.kept[layer.name],
            note=why.get(layer.name, ""),
        )
        for layer in trace.layers
    )
