"""The six steps on one screen (paper, Alg. 1): trace, score, measure, weight, select, slim; then verify and report."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from ranp.choosing.budgets import plan_within
from ranp.choosing.methods import STRENGTH
from ranp.choosing.plan import Plan
from ranp.choosing.shortfall import shortfall
from ranp.costs.measuring import Costs
from ranp.costs.memory import Footprint, peak
from ranp.costs.quantities import needs_loss
from ranp.costs.step import StepSetup, TrainingStep, target_for
from ranp.costs.timing import Stepper, ratio, seconds
from ranp.costs.tuning import Tuned, tuned
from ranp.errors import UnsupportedError, asked
from ranp.options import Options
from ranp.progress import Progress
from ranp.reporting.report import Report
from ranp.running.calling import unwrap
from ranp.scoring.noise import Watched
from ranp.scoring.passes import Loss, check_settings, first_batch
from ranp.scoring.score import score
from ranp.scoring.scores import Scores
from ranp.slimming.slim import apply_plan
from ranp.slimming.verification import Verification, check
from ranp.tables import html
from ranp.tracing import Trace
from ranp.tracing.heads import BOTH
from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

CHECK_FLOPS = 8e9
"""The numeric check inside ``prune`` runs at a size that costs no more; ``ranp.verify`` has no such limit."""
SPARING = 0.01
"""With checkpointing, where memory is short, it costs no more than this share of the network's FLOPs either."""
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Pruned:
    """What ``prune`` returns.

    Attributes:
        model: The slim network: dense, ordinary, trainable.
        plan: What was kept; save it, edit it, apply it to another size.
        scores: The scores that decided, after weighting.
        raw: The scores before it; a sweep over sparsities or methods needs no others.
        report: Before and after, layer by layer; ``print`` it.
        trace: What the run of the network told.
        verification: What the checks of the slim network found.
        setup: The full network, the example, and what a training step is.
    """

    model: nn.Module
    plan: Plan
    scores: Scores
    report: Report
    trace: Trace
    verification: Verification
    raw: Scores
    setup: StepSetup

    def _repr_html_(self) -> str:
        return html([f"a slim {type(unwrap(self.model)).__name__}", *self.report.sections()])

    def training_memory(self) -> tuple[Footprint, Footprint]:
        """What a training step of the full and of the slim network needs at its peak, predicted.

        Raises:
            UnsupportedError: The network does not run without data.
        """
        before, after = (peak(self.setup.trace(network)) for network in (self.setup.model, self.model))
        return before, after

    def tune(self, *, compile_seconds: float = 0.0) -> Tuned:
        """The fastest way to run the slim network on this machine, measured; see ``ranp.tune``.

        Raises:
            UnsupportedError: The network does not run on the example.
        """
        return tuned(self.setup, self.model, compile_seconds=compile_seconds)

    def tuned(self) -> Pruned:
        """The same, with that way in the report; without, where the network does not run on the example."""
        try:
            found = self.tune()
        except UnsupportedError as error:
            logger.info("how the slim network runs fastest is not known: %s", error)
            return self
        return self._telling(tuned={**asdict(found), "ratios": dict(found.ratios)})

    def step_times(self) -> tuple[float, float]:
        """Seconds of a training step of the full and of the slim network, measured in turn on this machine.

        Raises:
            UnsupportedError: The network does not run on the example.
        """
        with Stepper(self.setup, self.setup.model) as full, Stepper(self.setup, self.model) as slim:
            before = seconds(full)
            return before, before * ratio(slim, full)

    def with_step(self, *, timed: bool = False) -> Pruned:
        """The same, with what a training step needs in the report: its peak, predicted; ``timed``, its time, measured.

        What a budget has told already is not told again, nor what a network does not tell on this example.
        """
        known = {entry["resource"] for entry in self.report.settings.get("budget", ())}

        def peaks() -> tuple[float, float]:
            before, after = self.training_memory()
            return before.peak, after.peak

        told, ways = [], {"train-memory": peaks, **({"step-time": self.step_times} if timed else {})}
        for name, way in ways.items():
            if name not in known:
                try:
                    told.append({"resource": name, **dict(zip(("before", "after"), way(), strict=True))})
                except UnsupportedError as error:
                    logger.info("%s is not known: %s", name, error)
        return self._telling(of_step=told, step=self.setup.to_dict()) if told else self

    def _telling(self, **settings: Any) -> Pruned:
        """The same, with more in the report."""
        return replace(self, report=replace(self.report, settings={**self.report.settings, **settings}))


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
    told: dict[str, Any] = {"method": how.name, "mode": options.mode, "init": init, "convention": options.convention}
    if tracer.attention != BOTH:
        told["attention"] = tracer.attention
    if costs is not None:
        told |= {"resource": costs.resource, "strength": STRENGTH if options.strength is None else options.strength}
    told |= settings or {}

    def chosen(trace: Trace) -> Plan:
        selection = options.selection(scores, trace)
        if options.sparsity is None:
            return plan_within(
                selection,
                options.budgets,
                setup,
                settings=told,
                convention=options.convention,
                fill=options.fills,
                floor=options.floor,
            )
        remembered = {**selection.made_by, "exact": options.exact, **told}
        return selection.plan(options.sparsity, exact=options.exact, settings=remembered)

    plan, copied, trace, verification = _verified(model, tracer, trace, chosen, sparing=options.checkpointing)
    if verification.ok is None and not options.unchecked:
        raise UnsupportedError(
            f"the slim network could not be checked: {verification.where}. Pass another {asked('example')}, one on "
            f"which the network gives finite outputs that vary, or {asked('unchecked', True)} to take it as it is."
        )
    network = copied
    if options.init != "copy":
        network = apply_plan(model, plan, example=example, init=options.init, seed=options.seed)
    report = Report.of(model, trace, plan, network, example, verification, convention=options.convention)
    pruned = Pruned(network, plan, scores, report, trace, verification, raw, setup)
    why = "" if options.sparsity is None else shortfall(plan, options.selection(scores, trace))
    return pruned._telling(shortfall=why) if why else pruned


def _verified(
    model: nn.Module, tracer: Tracer, trace: Trace, chosen: Callable[[Trace], Plan], *, sparing: bool
) -> tuple[Plan, nn.Module, Trace, Verification]:
    """Slims and checks; a failed check teaches the next choice, and in the last resort layers stay whole."""
    flops = min(CHECK_FLOPS, SPARING * sum(op.flops for op in trace.ops)) if sparing else CHECK_FLOPS
    for round_ in range(ROUNDS + 1):
        plan = chosen(trace)
        copied = apply_plan(model, plan, example=tracer.example)
        verification = check(tracer, plan, copied, budget=flops, sparing=sparing)
        if verification.ok is not False:
            return plan, copied, trace, verification
        blamed = tracer.layers_to_blame(verification.failure)
        if round_ < ROUNDS - 1 or not blamed:
            logger.info("the slim network failed its check, trying again: %s", verification.where)
            trace = tracer.relearned(verification.failure)
        else:
            logger.warning("trying again with %s kept whole: %s", ", ".join(blamed), verification.where)
            trace = tracer.keeping(blamed, "a check failed with fewer of its channels")
    named = f"these layers and those that feed them ({', '.join(blamed)})" if blamed else "layers near it"
    raise UnsupportedError(
        f"no correct slim network was found: {verification.where}. Keep {named} whole, with {asked('keep')}."
    )
