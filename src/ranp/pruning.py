"""The six steps on one screen (paper, Alg. 1): trace, score, measure, weight, select, slim; then verify and report."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ranp import arguments
from ranp.choosing.budgets import Budget, Scene, parse_all, plan_within
from ranp.choosing.budgets.staging import target_for
from ranp.choosing.methods import STRENGTH, Method, resolve
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection, check_sparsity
from ranp.choosing.ties import TIES
from ranp.costs.measuring import Resource
from ranp.costs.memory import Footprint, peak
from ranp.costs.step import TrainingStep
from ranp.costs.stepping import needs_step, with_step
from ranp.errors import DataError, UnsupportedError, brief
from ranp.reporting.report import Report
from ranp.running.calling import unwrap
from ranp.scoring.criteria import Criterion, Values, find_criterion
from ranp.scoring.score import Loss, check_settings, iterated, score
from ranp.scoring.scores import Scores
from ranp.slimming.initialisation import COPY, Initialiser, check_initialiser
from ranp.slimming.slim import apply_plan
from ranp.slimming.verification import Verification, check
from ranp.tracing import Trace
from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

CHECK_FLOPS = 8e9
"""The numeric check inside ``prune`` runs at a size that costs no more; ``ranp.verify`` has no such limit."""
SPARING = 0.01
"""With checkpointing, where memory is short, it costs no more than this share of the network's FLOPs either."""
ROUNDS = 5
ROUNDINGS = (1, 2, 4, 8, 16)
"""What ``round_to="auto"`` chooses from."""


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
        scene: The full network, the example, and what a training step is.
    """

    model: nn.Module
    plan: Plan
    scores: Scores
    report: Report
    trace: Trace
    verification: Verification
    raw: Scores
    scene: Scene

    def training_memory(self) -> tuple[Footprint, Footprint]:
        """What a training step of the full and of the slim network needs at its peak, predicted.

        Raises:
            UnsupportedError: The network does not run without data.
        """
        before, after = (peak(self.scene.rehearsed(network)) for network in (self.scene.model, self.model))
        return before, after


@torch.inference_mode(False)  # what is made inside could not be followed, nor trained
def prune(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    *,
    sparsity: float | None = None,
    budget: str | Budget | Iterable[str | Budget] | None = None,
    method: str | Method = "ranp-f",
    example: Any = None,
    resource: Resource | None = None,
    strength: float | None = None,
    criterion: str | Criterion | Values | None = None,
    mode: str = "train",
    keep: Iterable[str] = (),
    tie: str = "max",
    exact: bool = False,
    min_channels: int = 1,
    round_to: int | str = 1,
    init: Initialiser = "copy",
    max_batches: int | None = None,
    seed: int = 0,
    step: TrainingStep | None = None,
    checkpointing: bool = False,
    unchecked: bool = False,
    progress: bool | Callable[[int, int | None], object] = False,
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
        sparsity: Fraction of channels to remove (of weights, for ``snip``). Pass this or ``budget``.
        budget: What the slim network may need at most, one or several: ``"flops=5%"``, ``"macs=7.5G"``,
            ``"params=1M"``, ``"memory=25%"``, ``"train-memory=8GiB"``, ``"step-time=4x"`` (a quarter),
            ``"latency=30ms"``. The widest network by the method's own ranking that meets all of them; every layer
            keeps a channel.
        method: ``ranp-f``, ``ranp-m``, ``weighted``, ``vanilla``, ``layerwise``, ``random``, ``snip``, or a ``Method``.
        example: Inputs of one call at which costs are taken, default those of the first batch; may be on meta.
        resource: What the scores are reweighted by, default the method's own: ``flops``, ``memory``, ``params``,
            ``train-memory``, ``time``, a function of the trace, or several of these.
        strength: How much that counts, lambda in the paper; default 11.
        criterion: How channels are scored, default the method's own.
        mode: ``"train"`` (the paper) or ``"eval"``: how the model runs while it is scored.
        keep: ``fnmatch`` patterns of layers to leave alone. Layers that make the outputs always are.
        tie: How coupled layers agree: ``max`` (the paper) or ``union``.
        exact: True: remove that fraction of the prunable channels, after coupling. False: the paper's sparsity.
        min_channels: Least width of every layer.
        round_to: Widths are rounded up to a multiple of this; within a budget, too. ``"auto"``, with a budget of time:
            the multiple of 1, 2, 4, 8 or 16 that leaves the most FLOPs within it.
        init: ``"copy"`` keeps the weights that stay (right for a pretrained model); ``"glorot"``, ``"orthogonal"``,
            ``"kaiming"`` or a function draw new ones, as the paper does. Names leave frozen parameters as they are.
        max_batches: Score on no more than this many batches.
        seed: Of everything random.
        step: What a training step is, for budgets and resources of memory and time; default: one of Adam in float32
            on the example. Its inputs are those of ``example``.
        checkpointing: Score with activation checkpointing: less memory, a third more time, the same scores.
        unchecked: Take a slim network whose numbers could not be compared with the full one's; ``verification.ok`` is
            then None. One that was found to be wrong is never returned.
        progress: True logs every batch scored; a function gets ``(done, total or None)``.

    Raises:
        InfeasibleError: A layer would lose all its channels, no channel may be removed at all, or a budget cannot be
            met; the message says why, or what is feasible.
        DataError: The batches or the loss are not usable, or code of the user's failed: the message says which, where.
        UnsupportedError: An option is unknown, no correct slim network was found, or it could not be checked.
    """
    sparsity, budgets = _amount(sparsity, budget)
    how = resolve(method)
    rule = find_criterion(how.criterion if criterion is None else criterion)
    max_batches, seed = check_settings((rule,), loss, mode, max_batches, seed, checkpointing, progress)
    check_initialiser(init, COPY)
    keep = _check_choice(keep, tie, exact, min_channels, strength, step, unchecked)
    _roundings(round_to, budgets)
    first = None
    of_a_step = needs_step(how.resource if resource is None else resource) or any(
        budget.of_a_step for budget in budgets
    )
    if example is None or of_a_step:  # else nothing is read before its time
        first, batches = first_batch(batches, needed=example is None)
    inputs = example if first is None else first[0]
    example = inputs if example is None else example
    target = None if first is None else target_for(example, inputs, first[1])
    scene = Scene(unwrap(model), example, TrainingStep() if step is None else step, loss, target)
    tracer = Tracer(unwrap(model), example)

    trace = tracer.trace()
    resource = how.resource if resource is None else resource
    if resource is not None:
        resource = with_step(resource, lambda: scene.rehearsed(scene.model))
    how.costs(trace, resource)  # what cannot be measured is refused before anything is scored
    scores = score(
        model,
        batches,
        loss,
        trace=trace,
        criterion=rule,
        mode=mode,
        max_batches=max_batches,
        seed=seed,
        progress=progress,
        **({"checkpointing": True} if checkpointing else {}),
    )
    return prune_scored(
        model,
        scores,
        tracer,
        trace,
        sparsity=sparsity,
        budgets=budgets,
        scene=scene,
        method=how,
        resource=resource,
        strength=strength,
        mode=mode,
        keep=keep,
        tie=tie,
        exact=exact,
        min_channels=min_channels,
        round_to=round_to,
        init=init,
        seed=seed,
        sparing=checkpointing,
        unchecked=unchecked,
    )


def prune_scored(
    model: nn.Module,
    raw: Scores,
    tracer: Tracer,
    trace: Trace,
    *,
    sparsity: float | None = None,
    budgets: Sequence[Budget] = (),
    scene: Scene | None = None,
    method: str | Method = "ranp-f",
    resource: Resource | None = None,
    strength: float | None = None,
    mode: str = "train",
    keep: Iterable[str] = (),
    tie: str = "max",
    exact: bool = False,
    min_channels: int = 1,
    round_to: int | str = 1,
    init: Initialiser = "copy",
    seed: int = 0,
    sparing: bool = False,
    unchecked: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Pruned:
    """The steps after scoring, so that many methods and sparsities need one scoring between them.

    Args:
        model: The full network.
        raw: Its scores before weighting.
        tracer: Of this network at the size that costs are taken at.
        trace: What it traced.
        sparsity: See ``prune``, as all that follow; None with ``budgets``.
        budgets: What the slim network may need at most.
        scene: What a training step of the network is; default one of Adam on the example, with a stand-in for the loss.
        method: Its criterion is not looked at: the scores are there.
        resource: As in ``prune``.
        strength: As in ``prune``.
        mode: Remembered in the plan.
        keep: As in ``prune``.
        tie: As in ``prune``.
        exact: As in ``prune``.
        min_channels: As in ``prune``.
        round_to: As in ``prune``.
        init: As in ``prune``.
        seed: As in ``prune``.
        sparing: Whether the numeric check must do with little memory.
        unchecked: As in ``prune``.
        settings: What else to remember in the plan.

    Raises:
        InfeasibleError: A layer would lose all its channels; the message says what is feasible.
        UnsupportedError: An option is unknown, or no correct slim network was found.
    """
    how, example = resolve(method), tracer.example
    costs = how.costs(trace, resource)
    scores = how.weigh(raw, costs, strength)
    told: dict[str, Any] = {"method": how.name, "mode": mode, "init": init if isinstance(init, str) else "function"}
    if costs is not None:
        told |= {"resource": costs.resource, "strength": STRENGTH if strength is None else strength}
    told |= settings or {}
    scene = Scene(unwrap(model), example, TrainingStep()) if scene is None else scene
    roundings = _roundings(round_to, budgets)
    for round_ in range(ROUNDS + 1):
        selections = [
            Selection.of(
                scores,
                trace,
                scope=how.scope,
                keep=keep,
                tie=tie,
                min_channels=min_channels,
                round_to=rounding,
                seed=seed,
            )
            for rounding in roundings
        ]
        if sparsity is None:
            plan = plan_within(selections, budgets, scene, settings=told)
        else:
            plan = selections[0].plan(sparsity, exact=exact, settings={**selections[0].made_by, "exact": exact, **told})
        copied = apply_plan(model, plan, example=example)
        whole = sum(op.flops for op in trace.ops)
        flops = min(CHECK_FLOPS, SPARING * whole) if sparing else CHECK_FLOPS
        verification = check(tracer, plan, copied, budget=flops, sparing=sparing)
        if verification.ok is not False:
            break
        blamed = tracer.layers_to_blame(verification.failure)
        if round_ < ROUNDS - 1 or not blamed:
            logger.info("the slim network failed its check, trying again: %s", verification.where)
            trace = tracer.relearned(verification.failure)
        else:
            logger.warning("trying again with %s kept whole: %s", ", ".join(blamed), verification.where)
            trace = tracer.keeping(blamed, "a check failed with fewer of its channels")
    else:
        named = f"these layers and those that feed them ({', '.join(blamed)})" if blamed else "layers near it"
        raise UnsupportedError(
            f"no correct slim network was found: {verification.where}. Keep {named} whole, with keep=[...]."
        )
    if verification.ok is None and not unchecked:
        raise UnsupportedError(
            f"the slim network could not be checked: {verification.where}. Pass another example=, one on which the "
            "network gives finite outputs that vary, or unchecked=True to take it as it is."
        )
    network = copied if init == "copy" else apply_plan(model, plan, example=example, init=init, seed=seed)
    report = Report.of(trace, plan, network, example, verification)
    return Pruned(network, plan, scores, report, trace, verification, raw, scene)


def _amount(
    sparsity: float | None, budget: str | Budget | Iterable[str | Budget] | None
) -> tuple[float | None, tuple[Budget, ...]]:
    """How much to remove: a sparsity, or budgets."""
    if sparsity is not None and budget is not None:
        raise UnsupportedError(
            f"sparsity={brief(sparsity)} and budget={brief(budget)} are both given. Pass one of them."
        )
    if sparsity is None and budget is None:
        raise UnsupportedError(
            "nothing says how much to remove. Pass sparsity=, a fraction from 0 up to below 1, or budget=, such as "
            "'flops=5%'."
        )
    return None if sparsity is None else check_sparsity(sparsity), () if budget is None else parse_all(budget)


def _check_choice(
    keep: Iterable[str],
    tie: str,
    exact: bool,
    min_channels: int,
    strength: float | None,
    step: TrainingStep | None,
    unchecked: bool,
) -> tuple[str, ...]:
    """Refuses what the later steps would, before anything is scored; the patterns of ``keep``."""
    TIES.get(tie)
    arguments.flag("exact", exact)
    arguments.flag("unchecked", unchecked)
    arguments.width("min_channels", min_channels)
    if strength is not None:
        arguments.number("strength", strength, "a finite number, at least 0; 11 is usual", error=DataError)
    if step is not None:
        arguments.kind("step", step, TrainingStep, "a ranp.TrainingStep, or None")
    return arguments.patterns(keep)


def _roundings(round_to: int | str, budgets: Sequence[Budget]) -> tuple[int, ...]:
    """The multiples to try: one, or several where the times of this machine shall choose."""
    if not isinstance(round_to, str):
        return (arguments.width("round_to", round_to),)
    if round_to != "auto":
        raise UnsupportedError(f"round_to={round_to!r} is not allowed. Pass a whole number from 1 on, or 'auto'.")
    if not {"step-time", "latency"} & {budget.resource for budget in budgets}:
        raise UnsupportedError("round_to='auto' chooses by time. Pass a budget of step-time or latency, or a number.")
    return ROUNDINGS


def first_batch(batches: Iterable[Any], *, needed: bool) -> tuple[Any, Iterable[Any]]:
    """The first batch, and all of them with it put back; None where there is none and none is needed.

    Raises:
        DataError: It is needed, and there is none, or it is no pair.
    """
    iterator = iterated(batches)
    first = next(iterator, None)
    if first is None:
        if not needed:
            return None, iterator
        raise DataError("batches is empty: there is nothing to score on. Pass at least one (inputs, target) pair.")
    if not isinstance(first, tuple | list) or len(first) != 2:
        if not needed:
            return None, itertools.chain([first], iterator)
        raise DataError(f"batch 0 is a {type(first).__name__}, not a pair. Yield (inputs, target); target may be None.")
    return first, itertools.chain([first], iterator)
