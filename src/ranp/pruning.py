"""The six steps on one screen (paper, Alg. 1): trace, score, measure, weight, select, slim; then verify and report."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from ranp.choosing.budgets import plan_within
from ranp.choosing.methods import STRENGTH
from ranp.choosing.plan import Plan
from ranp.choosing.shortfall import shortfall
from ranp.costs.measuring import Costs
from ranp.costs.quantities import needs_loss
from ranp.costs.step import StepSetup, TrainingStep, target_for
from ranp.options import Options
from ranp.progress import Progress
from ranp.reporting.pruned import Pruned
from ranp.reporting.report import Report
from ranp.running.calling import unwrap
from ranp.scoring.noise import Watched
from ranp.scoring.passes import Loss, check_settings, first_batch
from ranp.scoring.score import score
from ranp.scoring.scores import Scores
from ranp.slimming.slim import apply_plan
from ranp.slimming.verification import slim_and_check
from ranp.tracing import Trace
from ranp.tracing.heads import BOTH
from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)


@torch.inference_mode(False)  # what is made inside could not be followed, nor trained
def prune(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    *,
    example: Any = None,
    progress: bool | Progress = False,
    **options: Any,
) -> Pruned:
    """Makes a slim network from a full one before training. The full one is left as it was.

        >>> import torch
        >>> net = nn.Sequential(nn.Conv3d(1, 16, 3), nn.ReLU(), nn.Conv3d(16, 2, 1))
        >>> batches = [(torch.randn(2, 1, 6, 6, 6), torch.randint(2, (2, 4, 4, 4)))]
        >>> pruned = prune(net, batches, nn.functional.cross_entropy, sparsity=0.5)
        >>> pruned.plan.widths
        {'0': 7, '2': 2}

    Args:
        model: Any network, pretrained or not; DataParallel, DDP and compiled ones are unwrapped.
        batches: ``(inputs, target)`` pairs; a tuple of inputs is splatted, a dict passed as keywords.
        loss: ``loss(output, target)``, a scalar.
        example: Inputs of one call at which costs are taken, default those of the first batch; may be on meta.
        progress: True logs every batch scored; a function gets ``(done, total or None)``.
        **options: What to remove and how: the fields of ``ranp.Options``. ``sparsity`` or ``budget`` is needed.

    Raises:
        InfeasibleError: A layer would lose all its channels, no channel may be removed at all, or a budget cannot be
            met; the message says why, or what is feasible.
        DataError: The batches or the loss are not usable, or code of the user's failed: the message says which, where.
        UnsupportedError: An option is unknown, no correct slim network was found, or it could not be checked.
    """
    chosen = Options.of(options)
    chosen.check_amount()
    check_settings((chosen.rule,), loss, chosen.mode, chosen.max_batches, chosen.seed, chosen.checkpointing, progress)
    resource = chosen.how.resource if chosen.resource is None else chosen.resource
    first = None
    if example is None or needs_loss(resource) or any(budget.quantity.needs_loss for budget in chosen.budgets):
        first, batches = first_batch(batches, needed=example is None)  # else nothing is read before its time
    inputs = example if first is None else first[0]
    example = inputs if example is None else example
    target = None if first is None else target_for(example, inputs, first[1])
    step = TrainingStep() if chosen.step is None else chosen.step
    setup = StepSetup(unwrap(model), example, step, loss, target)
    tracer = Tracer(unwrap(model), example, chosen.attention)

    trace = tracer.trace()
    # What cannot be measured is refused before anything is scored.
    costs = chosen.how.costs(trace, resource, setup, convention=chosen.convention)
    watched = Watched(batches) if hasattr(batches, "__iter__") and not isinstance(batches, str | bytes) else batches
    scores = score(
        model,
        watched,
        loss,
        trace=trace,
        criterion=chosen.rule,
        mode=chosen.mode,
        max_batches=chosen.max_batches,
        seed=chosen.seed,
        checkpointing=chosen.checkpointing,
        progress=progress,
    )
    note = watched.note() if isinstance(watched, Watched) else ""
    if note:
        logger.warning("the batches that were scored look like noise: %s", note)
    remembered = {"data_note": note} if note else None
    return prune_scored(model, scores, tracer, trace, chosen, costs=costs, setup=setup, settings=remembered)


def _signature() -> inspect.Signature:
    """The signature of ``prune`` with every option by its name and default, for ``help`` and editors."""
    own = [p for p in inspect.signature(prune).parameters.values() if p.kind is not p.VAR_KEYWORD]
    every = [inspect.Parameter(f.name, own[-1].kind, default=f.default, annotation=f.type) for f in fields(Options)]
    return inspect.Signature([*own, *every], return_annotation="Pruned")


prune.__signature__ = _signature()  # type: ignore[attr-defined]


def prune_scored(
    model: nn.Module,
    raw: Scores,
    tracer: Tracer,
    trace: Trace,
    options: Options,
    *,
    costs: Costs | None = None,
    setup: StepSetup | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Pruned:
    """The steps after scoring, so that many methods and sparsities need one scoring between them.

    Args:
        model: The full network.
        raw: Its scores before weighting; the criterion of the options is not looked at.
        tracer: Of this network at the size that costs are taken at.
        trace: What it traced.
        options: What to remove and how.
        costs: What the layers need of the resource, if that is known.
        setup: What a training step of the network is; default one of Adam on the example, with a stand-in for the loss.
        settings: What else to remember in the plan.

    Raises:
        InfeasibleError: A layer would lose all its channels; the message says what is feasible.
        UnsupportedError: No correct slim network was found, or it could not be checked.
    """
    how, example = options.how, tracer.example
    setup = StepSetup(unwrap(model), example, TrainingStep()) if setup is None else setup
    if costs is None:
        costs = how.costs(trace, options.resource, setup, convention=options.convention)
    scores = how.weigh(raw, costs, options.strength)
    init = options.init if isinstance(options.init, str) else "function"
    made_by: dict[str, Any] = {"method": how.name, "mode": options.mode, "init": init, "convention": options.convention}
    if tracer.attention != BOTH:
        made_by["attention"] = tracer.attention
    if costs is not None:
        made_by |= {"resource": costs.resource, "strength": STRENGTH if options.strength is None else options.strength}
    made_by |= settings or {}

    def chosen(trace: Trace) -> Plan:
        selection = options.selection(scores, trace)
        if options.sparsity is None:
            return plan_within(
                selection,
                options.budgets,
                setup,
                settings=made_by,
                convention=options.convention,
                fill=options.fills,
                floor=options.floor,
            )
        remembered = {**selection.made_by, "exact": options.exact, **made_by}
        return selection.plan(options.sparsity, exact=options.exact, settings=remembered)

    plan, network, trace, verification = slim_and_check(
        model, tracer, trace, chosen, sparing=options.checkpointing, unchecked=options.unchecked
    )
    if options.init != "copy":
        network = apply_plan(model, plan, example=example, init=options.init, seed=options.seed)
    report = Report.of(model, trace, plan, network, example, verification, convention=options.convention)
    pruned = Pruned(network, plan, scores, report, trace, verification, raw, setup)
    why = "" if options.sparsity is None else shortfall(plan, options.selection(scores, trace))
    return pruned.with_settings(shortfall=why) if why else pruned
