"""Step 2 of 6: model + batches + loss -> Scores: how much each output channel matters, from gradients at the start.

One ordinary backward pass per batch on a working copy; ``weight * gradient`` is the gradient of a mask on the weight,
so no mask is ever multiplied in. Which values are taken from it, and how they become one per channel, is the
criterion's choice (``ranp.scoring.criteria``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ranp import arguments
from ranp.errors import DataError, UnsupportedError
from ranp.progress import Progress
from ranp.running import ranks
from ranp.scoring.criteria import Criterion, Values, by_channel, find_criterion
from ranp.scoring.passes import Loss, Passes
from ranp.scoring.scores import Scores
from ranp.scoring.tally import ALL_ZERO, NO_GRADIENT, Tally
from ranp.tracing.trace import Trace

logger = logging.getLogger(__name__)


def score(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    *,
    trace: Trace | None = None,
    criterion: str | Criterion | Values = "mpmg-sum",
    mode: str = "train",
    max_batches: int | None = None,
    seed: int = 0,
    checkpointing: bool = False,
    progress: bool | Progress = False,
) -> Scores:
    """Scores every output channel of every layer and leaves the model bit-identical.

    With ``g`` the gradient of the loss of one batch: MPMG is the mean over batches of ``|w * g|``, then sum, mean or
    max over a channel's weights; MNMG is the mean of the signed ``w * g``, then sum, mean or max, then absolute.

    Example::

        scores = ranp.score(model, loader, nn.functional.cross_entropy, max_batches=10)
        scores["encoder.conv1"]  # float64, one value per output channel

    Forward passes run under the autocast of the caller, backward passes outside of it. Values are taken in float32 at
    least and added up over batches in float64 (per weight, for ``max`` and ``snip``: in the weight's own precision, at
    least float32). A float16 loss is not scaled here: return a scaled one if gradients underflow, since multiplying
    the loss by a constant changes no ranking. Tensors of a batch are moved to the model's device.

    A network that draws random numbers may drop a branch in every batch (stochastic depth). Where layers have no scores
    then, the last batch is run again with other numbers, up to eight times, each pass counting like a batch.

    Under ``torch.distributed`` each rank passes its own batches, as many as it has, and all get the mean over all
    batches, bit-identical. A network that talks between ranks while it runs (SyncBatchNorm) needs equally many.

    Args:
        model: Any network; DataParallel, DistributedDataParallel and compiled ones are unwrapped. It may be frozen:
            the copy is not.
        batches: Iterable of ``(inputs, target)``. A tuple of inputs is splatted, a dict passed as keywords. ``target``
            may be None. Not read by criteria that need no gradient, except its first batch if there is no ``trace``.
        loss: ``loss(output, target)``, a scalar.
        trace: Of this model; made from the first batch if None.
        criterion: ``mpmg-sum|mean|max|group``, ``mnmg-sum|mean|max``, ``neuron-mask``, ``snip``, ``magnitude``,
            ``random``, a ``Criterion``, or a callable ``(weight, gradient) -> values``.
        mode: ``"train"`` or ``"eval"``, for all modules.
        max_batches: Read no more than this many.
        seed: Of dropout, of batches that draw from the global generators, and of ``random``.
        checkpointing: True keeps only the inputs of the network's blocks in forward passes and computes the rest again
            (``ranp.running.checkpointing``): the same scores from less memory, in about a third more time.
        progress: True logs every batch; a callable gets ``(batches done, batches in all or None)``.

    Raises:
        DataError: No batches; a batch is not a pair; the loss is no scalar, has no gradient, or is NaN or infinite;
            a gradient is NaN or infinite; no layer has any gradient; another rank failed.
        UnsupportedError: Criterion or mode is unknown, or the model cannot be copied.
        PlanMismatchError: The trace is not of this model.
    """
    rule = find_criterion(criterion)
    return _scored(Passes(model, batches, loss, trace, (rule,), mode, max_batches, seed, checkpointing, progress))[0]


def score_many(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    criteria: Sequence[str | Criterion],
    *,
    trace: Trace | None = None,
    mode: str = "train",
    max_batches: int | None = None,
    seed: int = 0,
    checkpointing: bool = False,
    progress: bool | Progress = False,
) -> dict[str, Scores]:
    """Scores by several criteria from one forward and backward pass per batch, each as ``score`` would.

    Running a large network is what scoring costs: seven criteria at once take hardly longer than one. Criteria that
    keep a value per weight (``snip``, ``*-max``) share it where they can.

    Example::

        scores = ranp.scoring.score.score_many(model, loader, loss, ["mpmg-sum", "mnmg-sum", "snip"])
        scores["snip"].weights  # as of ranp.score(model, loader, loss, criterion="snip")

    Args:
        model: As of ``score``.
        batches: As of ``score``.
        loss: As of ``score``.
        criteria: Names of criteria, or ``Criterion`` values; one named twice is scored once.
        trace: As of ``score``.
        mode: As of ``score``.
        max_batches: As of ``score``.
        seed: As of ``score``.
        checkpointing: As of ``score``.
        progress: As of ``score``.

    Returns:
        The scores by name of the criterion, in the order of ``criteria``.

    Raises:
        DataError: As of ``score``; it fails as a whole if one criterion finds nothing to score.
        UnsupportedError: As of ``score``; there is no criterion; or two different ones have the same name.
        PlanMismatchError: The trace is not of this model.
    """
    rules: dict[str, Criterion] = {}
    allowed = "names of criteria, or ranp.Criterion values"
    given: tuple[str | Criterion, ...] = arguments.several("criteria", criteria, (str, Criterion), allowed)
    for rule in map(find_criterion, given):
        if rules.setdefault(rule.name, rule) != rule:
            raise UnsupportedError(f"two different criteria are named {rule.name!r}. Give each a name of its own.")
    if not rules:
        raise UnsupportedError("criteria is empty: there is nothing to score by. Pass at least one, e.g. 'mpmg-sum'.")
    every = tuple(rules.values())
    job = Passes(model, batches, loss, trace, every, mode, max_batches, seed, checkpointing, progress)
    return dict(zip(rules, _scored(job), strict=True))


def _scored(job: Passes) -> list[Scores]:
    """The scores by each criterion, joined over all ranks."""
    found, problem = None, None
    if ranks.world() == 1:
        found = job.run()
    else:
        try:
            found = job.run()
        except Exception as error:
            problem = error
        ranks.agree(problem, "" if found is None else found.layout)
    assert found is not None
    return [_merged(tally, job.seed) for tally in found.tallies]


def _merged(tally: Tally, seed: int) -> Scores:
    """Joins the tallies of all ranks and makes the scores: the mean over all batches, reduced, absolute."""
    criterion, layers = tally.criterion, tally.layers
    weights: dict[str, torch.Tensor] = {}
    if criterion.needs == "seed":
        generator = torch.Generator("cpu").manual_seed(seed)
        flat = ranks.first(torch.rand(len(tally.totals), dtype=torch.float64, generator=generator, device="cpu"))
        reached, batches = torch.ones(len(layers), device="cpu"), 0
    elif criterion.needs == "weights":
        flat, reached, batches = ranks.first(tally.totals).abs(), tally.reached, 0
    else:
        joined = torch.cat(
            [tally.totals, tally.reached, torch.tensor([float(tally.batches)], dtype=torch.float64, device="cpu")]
        )
        joined = ranks.total(joined)
        batches = int(joined[-1])
        if not batches:
            raise DataError("there are no batches to score with. Check that the loader is not empty or used up.")
        flat = (joined[: len(tally.totals)] / batches).abs()
        reached = joined[len(tally.totals) : -1]
    channels = dict(zip((layer.name for layer in layers), tally.split(flat), strict=True))
    if criterion.needs == "gradients" and not criterion.at_once:
        for sums, owners in tally.weight_sums():
            mean = ranks.total(sums) / batches
            for layer in owners:
                if criterion.keeps_weights:
                    weights[layer.name] = mean.abs()
                reduced = by_channel(weights.get(layer.name, mean), layer, criterion.reduction)
                channels[layer.name] = reduced.abs().double()
    excluded = dict(tally.unscored)
    for layer, seen in zip(layers, reached.tolist(), strict=True):
        if not bool(channels[layer.name].any()):
            excluded.setdefault(layer.name, ALL_ZERO if seen else NO_GRADIENT)
    if len(excluded) == len(layers):
        raise DataError(
            f"no layer has a score to rank by: {'; '.join(sorted(set(excluded.values())))}. "
            "Check that the loss depends on the output, and that batches and weights are not all zero."
        )
    for name, reason in excluded.items():
        logger.info("layer %r is kept whole: %s", name, reason)
        channels[name] = torch.zeros_like(channels[name])
    return Scores(channels, "raw", criterion.name, weights, excluded, batches)
