"""The passes of step 2: a working copy of the network, run forward and backward on each batch, left as it was."""

from __future__ import annotations

import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from ranp import arguments
from ranp.errors import DataError, UnsupportedError
from ranp.progress import Progress
from ranp.running import ranks
from ranp.running.calling import call, named_parameters, named_tensors, unwrap
from ranp.running.copies import computes_weights, materialise, replicate
from ranp.running.guard import Guard
from ranp.running.randomness import RandomState, reseed, untouched_rng
from ranp.scoring.criteria import Criterion
from ranp.scoring.opening import open_gates
from ranp.scoring.tally import Tallies
from ranp.tracing.trace import Trace

logger = logging.getLogger(__name__)

Loss = Callable[[Any, Any], torch.Tensor]
"""``loss(output, target)``, a scalar."""
Batch = tuple[Any, Any]
REDRAWS = 8
"""Passes more, where layers have no scores and the network draws random numbers: it may have dropped their branch."""


@dataclass(slots=True)
class Passes:
    """The share of one rank: run the working copy on each batch and tally the gradients.

    Raises:
        DataError, UnsupportedError: As of ``check_settings``.
    """

    model: nn.Module
    batches: Iterable[Any]
    loss: Loss
    trace: Trace | None
    criteria: tuple[Criterion, ...]
    mode: str
    max_batches: int | None
    seed: int
    checkpointing: bool
    progress: bool | Progress
    devices: set[torch.device] = field(init=False)
    drew: bool = field(init=False, default=False)
    """True if the network drew random numbers in a pass."""

    def __post_init__(self) -> None:
        settings = (self.mode, self.max_batches, self.seed, self.checkpointing, self.progress)
        self.max_batches, self.seed = check_settings(self.criteria, self.loss, *settings)
        if self.trace is not None:
            arguments.kind("trace", self.trace, Trace, "what ranp.trace returns, or None")
        self.model = unwrap(self.model)
        self.devices = {tensor.device for _, tensor in named_tensors(self.model)}

    def run(self) -> Tallies:
        """Runs every batch; the sums of what it gave."""
        with untouched_rng(self.devices), torch.inference_mode(False), torch.enable_grad():
            reseed(self.seed, self.devices)
            batches = self._pairs()
            first = None
            if self.trace is None:
                from ranp.tracing import trace as trace_model  # the name of this module's parameter too

                first = next(batches, None)
                if first is None:
                    raise DataError("there are no batches, and no trace: pass a trace, or batches to make one from.")
                trace = trace_model(self.model, first[0])
            else:
                trace = self.trace
            if not trace.layers:
                raise UnsupportedError("the model has no convolution or linear layer to score. Pass another model.")
            return self._tallied(trace, first, batches)

    def _tallied(self, trace: Trace, first: Batch | None, batches: Iterator[Batch], *, opened: bool = False) -> Tallies:
        network, loss = self._copies()
        if network is not self.model:
            network.train(self.mode == "train")
            materialise(network)
        gates = open_gates(network, self.seed) if opened else []
        if gates:
            logger.info("scored as if what begins at zero were small: %s", ", ".join(gates))
        tally = Tallies(network, trace, self.criteria)
        tally.take_weights()
        if not tally.streams:
            return tally
        guard = Guard((*self.model.parameters(), *(loss.parameters() if isinstance(loss, nn.Module) else ())))
        count = _length(self.batches, self.max_batches)
        last: Batch | None = None
        with tally.listening(network), self._keeping(network):
            while (batch := first or next(batches, None)) is not None:
                first, last = None, batch
                number = tally.batches + 1
                self._pass(tally, network, loss, guard, batch)
                if number == 1 and not opened and tally.silent and self._has_gates():
                    return self._tallied(trace, batch, batches, opened=True)
                if callable(self.progress):
                    with arguments.blamed("progress"):
                        self.progress(number, count)
                elif self.progress:
                    logger.info("scored batch %d of %s", number, count or "?")
            for _ in range(REDRAWS):
                if last is None or not self.drew or not tally.missing or ranks.world() > 1:
                    break
                logger.info("scored the last batch again: random numbers may have dropped what has no scores")
                self._pass(tally, network, loss, guard, last)
        return tally

    def _pass(self, tally: Tallies, network: nn.Module, loss: Loss, guard: Guard, batch: Batch) -> None:
        """One more pass: a batch, or one with other random numbers."""
        number = tally.batches + 1
        self._backward(network, loss, guard, batch, number)
        if tally.partial:
            tally.forget_batch()
            if number == 1:
                _copy_buffers(self.model, network)
            self._backward(network, loss, guard, batch, number)
        tally.end_batch(number)

    def _has_gates(self) -> bool:
        """True if parameters that begin at zero may be why layers have no scores; ranks could not agree on it."""
        return ranks.world() == 1 and any(
            not parameter.any() and not name.endswith("bias")
            for name, parameter in self.model.named_parameters()
            if parameter.is_floating_point()
        )

    def _keeping(self, network: nn.Module) -> AbstractContextManager[None]:
        """How much the forward passes keep."""
        if not self.checkpointing:
            return nullcontext()
        from ranp.running.checkpointing import checkpointed

        return checkpointed(network)

    def _copies(self) -> tuple[nn.Module, Loss]:
        """Working copies of model and loss; a loss with parameters of its own must get no gradient either."""
        needing = [criterion.name for criterion in self.criteria if criterion.needs != "seed"]
        parameters = [parameter for _, parameter in named_parameters(self.model)]
        if needing and any(parameter.is_meta for parameter in parameters):
            raise UnsupportedError(
                f"the model's parameters are on the meta device, without values, which criterion {needing[0]!r} needs. "
                "Build the model on a real device."
            )
        reads = all(criterion.needs != "gradients" and criterion.on == "weights" for criterion in self.criteria)
        if reads and not any(map(nn.parameter.is_lazy, parameters)) and not computes_weights(self.model):
            return self.model, self.loss  # nothing runs, and nothing is changed
        if not isinstance(self.loss, nn.Module):
            return replicate(self.model)[0], self.loss
        network, loss = replicate(self.model, self.loss)
        return network, loss

    def _backward(self, network: nn.Module, loss: Loss, guard: Guard, batch: Batch, number: int) -> None:
        """One ordinary forward and backward pass; what the network writes into its inputs is put back after it."""
        inputs, target = tree_map(self._placed, batch[0]), tree_map(self._placed, batch[1])
        # Every batch starts from its own seed, so that it can be run again with the same dropout.
        reseed(self.seed + number, self.devices)
        before = RandomState.now(self.devices)
        with guard.batch(x for x in tree_flatten((inputs, target))[0] if isinstance(x, torch.Tensor)):
            when = f"in batch {number} (counting from 1)"
            with guard:
                with arguments.blamed("the model", when):
                    output = call(network, inputs)
                self.drew = self.drew or RandomState.now(self.devices).moved(before)
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
