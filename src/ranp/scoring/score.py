"""Step 2 of 6: model + batches + loss -> Scores: how much each output channel matters, from gradients at the start.

One ordinary backward pass per batch on a working copy; ``weight * gradient`` is the gradient of a mask on the weight,
so no mask is ever multiplied in. Which values are taken from it, and how they become one per channel, is the
criterion's choice (``ranp.scoring.criteria``).
"""

from __future__ import annotations

import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from ranp import arguments
from ranp.errors import DataError, UnsupportedError
from ranp.running import ranks
from ranp.running.calling import call, unwrap
from ranp.running.copies import materialise, replicate
from ranp.running.guard import Guard
from ranp.running.randomness import reseed, untouched_rng
from ranp.scoring.criteria import Criterion, Values, by_channel, find_criterion
from ranp.scoring.scores import Scores
from ranp.scoring.tally import ALL_ZERO, NO_GRADIENT, Tallies, Tally
from ranp.tracing.trace import Layer, Trace

Loss = Callable[[Any, Any], torch.Tensor]
Progress = Callable[[int, int | None], object]
Batch = tuple[Any, Any]

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

    Under ``torch.distributed`` each rank passes its own batches, as many as it has, and all get the mean over all
    batches, bit-identical. A network that talks between ranks while it runs (SyncBatchNorm) needs equally many.

    Args:
        model: Any network; DataParallel, DistributedDataParallel and compiled ones are unwrapped. It may be frozen:
            the copy is not.
        batches: Iterable of ``(inputs, target)``. A tuple of inputs is splatted, a dict passed as keywords. ``target``
            may be None. Not read by criteria that need no gradient, except its first batch if there is no ``trace``.
        loss: ``loss(output, target)``, a scalar.
        trace: Of this model; made from the first batch if None.
        criterion: ``mpmg-sum|mean|max``, ``mnmg-sum|mean|max``, ``neuron-mask``, ``snip``, ``magnitude``, ``random``, a
            ``Criterion``, or a callable ``(weight, gradient) -> values``.
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
    return _scored(model, batches, loss, trace, (rule,), mode, max_batches, seed, checkpointing, progress)[0]


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
    scores = _scored(model, batches, loss, trace, every, mode, max_batches, seed, checkpointing, progress)
    return dict(zip(rules, scores, strict=True))


def _scored(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    trace: Trace | None,
    rules: tuple[Criterion, ...],
    mode: str,
    max_batches: int | None,
    seed: int,
    checkpointing: bool,
    progress: bool | Progress,
) -> list[Scores]:
    """The scores by each criterion, joined over all ranks."""
    max_batches, seed = check_settings(rules, loss, mode, max_batches, seed, checkpointing, progress)
    if trace is not None:
        arguments.kind("trace", trace, Trace, "what ranp.trace returns, or None")
    report = _reporter(progress)
    job = _Job(unwrap(model), batches, loss, trace, rules, mode == "train", max_batches, seed, checkpointing, report)
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
    return [_merged(tally, seed) for tally in found.tallies]


def check_settings(
    rules: Sequence[Criterion],
    loss: object,
    mode: object,
    max_batches: int | None,
    seed: int,
    checkpointing: object,
    progress: object,
) -> tuple[int | None, int]:
    """Refuses settings that scoring does not take, before anything runs; ``max_batches`` and ``seed`` as plain numbers.

    Raises:
        DataError: The loss is needed and no function, or ``max_batches`` leaves nothing.
        UnsupportedError: Another one is not allowed.
    """
    if any(rule.needs == "gradients" for rule in rules):
        arguments.function("loss", loss, "a function loss(output, target) that returns a scalar", DataError)
    arguments.choice("mode", mode, ("train", "eval"))
    if max_batches is not None:
        allowed = "a whole number from 1 on, or None for all batches"
        max_batches = min(arguments.whole("max_batches", max_batches, allowed=allowed, error=DataError), sys.maxsize)
    arguments.flag("checkpointing", checkpointing)
    if not callable(progress) and not isinstance(progress, bool):
        raise arguments.refused("progress", progress, "True, False, or a function (done, total or None)")
    return max_batches, arguments.seed(seed)


def iterated(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches one by one; what the user's loader raises becomes a DataError that names the batch.

    Raises:
        DataError: They cannot be iterated, or fail.
    """
    if isinstance(batches, str | bytes) or not (hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")):
        raise DataError(
            f"batches={arguments.shown(batches)} cannot be iterated. Pass a loader or a list of (inputs, target) pairs."
        )
    with arguments.blamed("batches", "before the first one"):
        iterator = iter(batches)
    for number in itertools.count(1):
        with arguments.blamed("batches", f"at batch {number} (counting from 1)"):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


class _Job:
    """The share of one rank: run the working copy on each batch and tally the gradients."""

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        loss: Loss,
        trace: Trace | None,
        criteria: tuple[Criterion, ...],
        training: bool,
        max_batches: int | None,
        seed: int,
        checkpointing: bool,
        report: Progress | None,
    ) -> None:
        self.model, self.batches, self.loss, self.trace = model, batches, loss, trace
        self.criteria, self.training, self.max_batches, self.seed = criteria, training, max_batches, seed
        self.checkpointing, self.report = checkpointing, report
        self.devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}

    def run(self) -> Tallies:
        with untouched_rng(self.devices), torch.inference_mode(False), torch.enable_grad():
            reseed(self.seed, self.devices)
            batches = self._pairs()
            first = None
            if self.trace is None:
                from ranp.tracing import trace as trace_model  # the name of this module's parameter too

                first = next(batches, None)
                if first is None:
                    raise DataError("there are no batches, and no trace: pass a trace, or batches to make one from.")
                layers = trace_model(self.model, first[0]).layers
            else:
                layers = self.trace.layers
            if not layers:
                raise UnsupportedError("the model has no convolution or linear layer to score. Pass another model.")
            return self._tallied(layers, first, batches)

    def _tallied(self, layers: tuple[Layer, ...], first: Batch | None, batches: Iterator[Batch]) -> Tallies:
        network, loss = self._copies()
        network.train(self.training)
        materialise(network)
        tally = Tallies(network, layers, self.criteria)
        tally.take_weights()
        if not tally.streams:
            return tally
        guard = Guard((*self.model.parameters(), *(loss.parameters() if isinstance(loss, nn.Module) else ())))
        count = _length(self.batches, self.max_batches)
        with tally.listening(network), self._keeping(network):
            while (batch := first or next(batches, None)) is not None:
                first = None
                number = tally.batches + 1
                self._backward(network, loss, guard, batch, number)
                if tally.partial:
                    tally.forget_batch()
                    if number == 1:
                        _copy_buffers(self.model, network)
                    self._backward(network, loss, guard, batch, number)
                tally.end_batch(number)
                if self.report is not None:
                    with arguments.blamed("progress"):
                        self.report(number, count)
        return tally

    def _keeping(self, network: nn.Module) -> AbstractContextManager[None]:
        """How much the forward passes keep."""
        if not self.checkpointing:
            return nullcontext()
        from ranp.running.checkpointing import checkpointed

        return checkpointed(network)

    def _copies(self) -> tuple[nn.Module, Loss]:
        """Working copies of model and loss; a loss with parameters of its own must get no gradient either."""
        needing = [criterion.name for criterion in self.criteria if criterion.needs != "seed"]
        if needing and any(tensor.is_meta for tensor in self.model.parameters()):
            raise UnsupportedError(
                f"the model's parameters are on the meta device, without values, which criterion {needing[0]!r} needs. "
                "Build the model on a real device."
            )
        if not isinstance(self.loss, nn.Module):
            return replicate(self.model)[0], self.loss
        network, loss = replicate(self.model, self.loss)
        return network, loss

    def _backward(self, network: nn.Module, loss: Loss, guard: Guard, batch: Batch, number: int) -> None:
        """One ordinary forward and backward pass; what the network writes into its inputs is put back after it."""
        inputs, target = tree_map(self._placed, batch[0]), tree_map(self._placed, batch[1])
        # Every batch starts from its own seed, so that it can be run again with the same dropout.
        reseed(self.seed + number, self.devices)
        with guard.batch(x for x in tree_flatten((inputs, target))[0] if isinstance(x, torch.Tensor)):
            when = f"in batch {number} (counting from 1)"
            with guard:
                with arguments.blamed("the model", when):
                    output = call(network, inputs)
                with arguments.blamed("the loss", when):
                    value = loss(output, target)
            _check_loss(value, number)
            with ExitStack() as stack:
                for kind in {device.type for device in self.devices} | {"cpu"}:
                    if kind != "meta" and torch.is_autocast_enabled(kind):
                        stack.enter_context(torch.autocast(kind, enabled=False))
                if self.checkpointing:  # what is computed again may write to parameters again
                    stack.enter_context(guard)
                with arguments.blamed("the backward pass of model and loss", when):
                    value.backward()  # type: ignore[no-untyped-call]
            torch.clear_autocast_cache()

    def _placed(self, leaf: Any) -> Any:
        """A tensor of a batch on the model's device, apart from the user's graph and gradients."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        device = next(iter(self.devices)) if len(self.devices) == 1 else leaf.device
        placed = leaf.detach().to(device, non_blocking=True)
        placed = placed.clone() if placed.is_inference() else placed
        return placed.requires_grad_(leaf.requires_grad)

    def _pairs(self) -> Iterator[Batch]:
        for number, batch in enumerate(itertools.islice(iterated(self.batches), self.max_batches), 1):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                got = type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
                raise DataError(
                    f"batch {number} (counting from 1) is a {got}; a pair (inputs, target) is needed. "
                    "Use None as target if there is none, and a tuple as inputs for a model with several."
                )
            yield batch[0], batch[1]


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


def _check_loss(value: Any, number: int) -> None:
    where = f"in batch {number} (counting from 1)"
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise DataError(f"the loss is {got} {where}; a scalar tensor is needed. Reduce it, e.g. with .mean().")
    if not value.requires_grad:
        raise DataError(
            f"the loss has no gradient {where}: it does not depend on any parameter. "
            "Look for .detach(), .item(), argmax or no_grad between output and loss."
        )
    if not math.isfinite(value.item()):
        raise DataError(f"the loss is {value.item()} {where}. Check that batch for NaN, and the loss for a division.")


def _copy_buffers(source: nn.Module, target: nn.Module) -> None:
    """Takes back what one forward pass did to the buffers of a fresh copy."""
    original = dict(source.named_buffers())
    with torch.no_grad():
        for name, buffer in target.named_buffers():
            if name in original and original[name].shape == buffer.shape:
                buffer.copy_(original[name])


def _length(batches: Iterable[Any], limit: int | None) -> int | None:
    try:
        length = len(batches)  # type: ignore[arg-type]
    except TypeError:
        return None
    return length if limit is None else min(length, limit)


def _reporter(progress: bool | Progress) -> Progress | None:
    if callable(progress):
        return progress
    return (lambda done, total: logger.info("scored batch %d of %s", done, total or "?")) if progress else None
