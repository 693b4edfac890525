"""The six steps on one screen (paper, Alg. 1): trace, score, measure, weight, select, slim; then verify and report."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from ranp.criteria import Criterion, Values
from ranp.errors import DataError, UnsupportedError, unknown_name
from ranp.importance import Loss, score
from ranp.initialisation import INITIALISATIONS, Initialiser
from ranp.methods import STRENGTH, Method, resolve
from ranp.plan import Plan
from ranp.report import Report
from ranp.resources import Resource
from ranp.scores import Scores
from ranp.selection import select
from ranp.slimming import slim
from ranp.tracing import Trace
from ranp.tracing.stage import unwrap
from ranp.tracing.tracer import Tracer
from ranp.verification import Verification, check

logger = logging.getLogger(__name__)

CHECK_FLOPS = 8e9
"""The numeric check inside ``prune`` runs at a size that costs no more; ``ranp.verify`` has no such limit."""
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
    """

    model: nn.Module
    plan: Plan
    scores: Scores
    report: Report
    trace: Trace
    verification: Verification
    raw: Scores


def prune(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    *,
    sparsity: float | None = None,
    budget: str | Iterable[str] | None = None,
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
    round_to: int = 1,
    init: Initialiser = "copy",
    max_batches: int | None = None,
    seed: int = 0,
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
        sparsity: Fraction of channels to remove (of weights, for ``snip``).
        budget: Not available in this version.
        method: ``ranp-f``, ``ranp-m``, ``weighted``, ``vanilla``, ``layerwise``, ``random``, ``snip``, or a ``Method``.
        example: Inputs of one call at which costs are taken, default those of the first batch; may be on meta.
        resource: What the scores are reweighted by, default the method's own: ``flops``, ``memory``, ``params`` or a
            function of the trace.
        strength: How much that counts, lambda in the paper; default 11.
        criterion: How channels are scored, default the method's own.
        mode: ``"train"`` (the paper) or ``"eval"``: how the model runs while it is scored.
        keep: ``fnmatch`` patterns of layers to leave alone. Layers that make the outputs always are.
        tie: How coupled layers agree: ``max`` (the paper) or ``union``.
        exact: True: remove that fraction of the prunable channels, after coupling. False: the paper's sparsity.
        min_channels: Least width of every layer.
        round_to: Widths are rounded up to a multiple of this.
        init: ``"copy"`` keeps the weights that stay (right for a pretrained model); ``"glorot"``, ``"orthogonal"``,
            ``"kaiming"`` or a function draw new ones, as the paper does.
        max_batches: Score on no more than this many batches.
        seed: Of everything random.
        progress: True logs every batch scored; a function gets ``(done, total or None)``.

    Raises:
        InfeasibleError: A layer would lose all its channels; the message says what is feasible.
        DataError: The batches or the loss are not usable.
        UnsupportedError: An option is unknown, or no correct slim network was found.
    """
    if budget is not None:
        raise UnsupportedError(f"budget={budget!r} is not available in this version. Pass sparsity= instead.")
    if sparsity is None:
        raise UnsupportedError("nothing says how much to remove. Pass sparsity=, a fraction from 0 up to below 1.")
    if isinstance(init, str) and init not in ("copy", *INITIALISATIONS):
        raise UnsupportedError(unknown_name("init", init, ("copy", *INITIALISATIONS)))
    how = resolve(method)
    example, batches = first_inputs(example, batches)
    tracer = Tracer(unwrap(model), example)

    trace = tracer.trace()
    how.costs(trace, resource)  # what cannot be measured is refused before anything is scored
    scores = score(
        model,
        batches,
        loss,
        trace=trace,
        criterion=how.criterion if criterion is None else criterion,
        mode=mode,
        max_batches=max_batches,
        seed=seed,
        progress=progress,
    )
    return prune_scored(
        model,
        scores,
        tracer,
        trace,
        sparsity=sparsity,
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
    )


def prune_scored(
    model: nn.Module,
    raw: Scores,
    tracer: Tracer,
    trace: Trace,
    *,
    sparsity: float,
    method: str | Method = "ranp-f",
    resource: Resource | None = None,
    strength: float | None = None,
    mode: str = "train",
    keep: Iterable[str] = (),
    tie: str = "max",
    exact: bool = False,
    min_channels: int = 1,
    round_to: int = 1,
    init: Initialiser = "copy",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Pruned:
    """The steps after scoring, so that many methods and sparsities need one scoring between them.

    Args:
        model: The full network.
        raw: Its scores before weighting.
        tracer: Of this network at the size that costs are taken at.
        trace: What it traced.
        sparsity: See ``prune``, as all that follow.
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
    for _ in range(ROUNDS):
        plan = select(
            scores,
            trace,
            sparsity=sparsity,
            scope=how.scope,
            keep=keep,
            tie=tie,
            exact=exact,
            min_channels=min_channels,
            round_to=round_to,
            seed=seed,
            settings={**told, **(settings or {})},
        )
        copied = slim(model, plan, example=example)
        verification = check(tracer, plan, copied, budget=CHECK_FLOPS)
        if verification.ok:
            break
        logger.info("the slim network failed its check, trying again: %s", verification.where)
        trace = tracer.relearned()
    else:
        raise UnsupportedError(
            f"no correct slim network was found: {verification.where}. Keep the layers it names with keep=[...]."
        )
    network = copied if init == "copy" else slim(model, plan, example=example, init=init, seed=seed)
    report = Report.of(trace, plan, network, example, verification)
    return Pruned(network, plan, scores, report, trace, verification, raw)


def first_inputs(example: Any, batches: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The example, by default the first batch's inputs; a batch that was read for it is put back."""
    if example is not None:
        return example, batches
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        raise DataError("batches is empty: there is nothing to score on. Pass at least one (inputs, target) pair.")
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise DataError(f"batch 0 is a {type(first).__name__}, not a pair. Yield (inputs, target); target may be None.")
    return first[0], itertools.chain([first], iterator)
