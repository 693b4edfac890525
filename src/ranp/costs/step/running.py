"""One training step without data: forward pass, loss, backward pass and optimiser, in the order of eager execution."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from ranp import arguments
from ranp.costs.step import optimisers
from ranp.costs.step.losses import stand_in_loss
from ranp.costs.step.recorder import Recorder, owned
from ranp.costs.step.records import AUTOCAST, WHOLE, StepTrace, TrainingStep
from ranp.costs.step.stand_ins import batch_of, device_of, stand_in_inputs, stand_in_network
from ranp.errors import RanpError, UnsupportedError
from ranp.running import calling, randomness
from ranp.running.checkpointing import checkpointed
from ranp.running.recording import ModuleStack, SavedRecorder

logger = logging.getLogger(__name__)

Loss = Callable[[Any, Any], Tensor]

PLAIN = TrainingStep()


def trace_step(
    model: nn.Module,
    example: Any,
    *,
    step: TrainingStep | None = PLAIN,
    loss: Loss | None = None,
    target: Any = None,
    training: bool = False,
) -> StepTrace:
    """Runs one training step in its steady state, or one inference, without data, and writes down every operator.

    The step is ``output = model(inputs)``, ``value = loss(output, target)``, ``value.backward()``,
    ``optimiser.step()``: in train mode, from gradients that are None (as ``zero_grad`` leaves them), with the
    optimiser's state in place. The output and the loss live until the step ends, as they do in an ordinary loop.
    Neither the model nor anything of the step's size is copied or allocated.

        >>> net = nn.Sequential(nn.Conv3d(1, 2, 3, bias=False), nn.ReLU())
        >>> seen = trace_step(net, torch.empty(1, 1, 4, 4, 4, device="meta"), step=None)
        >>> [call.op for call in seen.calls]
        ['aten.convolution.default', 'aten.relu.default']

    Args:
        model: The network, real or on the meta device.
        example: The inputs of one call, real or on the meta device.
        step: What the step is; None for one inference in eval mode without gradients, or for a forward pass.
        loss: As for ``ranp.score``: of output and target. Without it, a stand-in that resembles common losses: cross
            entropy against integer labels for every output that has more than one channel, mean squared error for
            other floating-point outputs, summed. The labels count as inputs.
        target: What the loss compares with, real or on the meta device. Its batch is resized with the inputs'.
        training: Without a step: the forward pass in train mode, and what it keeps for the backward pass.

    Raises:
        UnsupportedError: The network or the loss asks for values of tensors, or does not run on the example.
    """
    model = calling.unwrap(model)
    if step is not None:
        arguments.kind("step", step, TrainingStep, "a ranp.TrainingStep")
    if loss is not None:
        arguments.function("loss", loss, "a function loss(output, target), or None")
    holds_integers = any(
        not calling.is_floating(tensor) and tensor.device.type != "meta"
        for tensor in calling.tensors_in((example, target))
    )
    attempt = partial(_attempt, model, example, loss=loss, target=target, training=training)
    try:
        return attempt(step)
    except RanpError:
        raise
    except Exception as error:  # The network's own code may raise anything.
        refusal = error
    if holds_integers:
        try:
            return attempt(step, keep_integers=True)
        except Exception as error:
            logger.debug("integers with their values do not help: %s", error)
    if step is not None and (step.batch or batch_of(example)) == 1:
        try:
            doubled = attempt(replace(step, batch=2))
        except Exception as error:
            logger.debug("a batch of two does not run either: %s", error)
        else:
            logger.info("train mode refuses a batch of one (%s); traced with two", brief(refusal))
            return doubled
    raise UnsupportedError(
        f"{type(model).__name__} cannot run a step without data ({arguments.described(refusal)}). Pass the inputs of "
        "one call, and a network and a loss whose code does not ask for the values of tensors."
    ) from refusal


def brief(error: Exception) -> str:
    """An error of the network's own code, on one line."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


@contextmanager
def _orderly() -> Iterator[None]:
    """Keeps Python's cycle collector from freeing tensors at moments that differ from run to run.

    Torch logs every operator that refuses its inputs as an error, which here becomes one sentence to the user.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
        if was_enabled:
            gc.enable()


def _attempt(
    model: nn.Module,
    example: Any,
    step: TrainingStep | None,
    *,
    loss: Loss | None,
    target: Any,
    training: bool,
    keep_integers: bool = False,
) -> StepTrace:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    device = device_of(model, example)
    dtype = WHOLE.get(step.precision) if step is not None else None
    dtype = None if dtype is torch.float32 else dtype
    copy = stand_in_network(model, mode, device, dtype)
    copy.train(step is not None or training)
    batch = (batch_of(example), step.batch if step is not None else None)
    convert = partial(stand_in_inputs, mode=mode, device=device, dtype=dtype, batch=batch, keep_integers=keep_integers)
    inputs, target = convert(example), convert(target)
    owners = {id(tensor): module for module, tensor in owned(copy, "parameter")}
    # Checkpoints first: to choose its blocks, a copy of the network runs, with all hooks that it has by then.
    with randomness.untouched_rng(), _orderly(), checkpointing(step, copy, inputs), mode, ModuleStack(copy) as stack:
        recorder = Recorder(stack, owners)
        recorder.existing(owned(copy, "parameter"), "parameter")
        recorder.existing(owned(copy, "buffer"), "buffer")
        recorder.existing([("", tensor) for tensor in calling.tensors_in((inputs, target))], "input")
        kept: frozenset[int] = frozenset()
        if step is None:
            saved = SavedRecorder(stack, ())
            with torch.set_grad_enabled(training), saved, recorder:
                output = calling.call(copy, inputs)
            kept = recorder.activations(tensor for _, tensor in saved.living())
        else:
            output = _train(copy, inputs, target, step, loss, device.type, recorder)
        calls, storages = recorder.calls(), recorder.storages()
        del output  # Until here it lived, as in an ordinary loop.
    return StepTrace(calls, storages, step, device.type, kept)


def _train(
    model: nn.Module,
    inputs: Any,
    target: Any,
    step: TrainingStep,
    loss: Loss | None,
    device: str,
    recorder: Recorder,
) -> Any:
    """The step itself. What it returns must live until the storages are read."""
    optimiser = optimisers.make(step.optimiser, model, foreach=None if device == "cpu" else True)
    owners = {id(parameter): module for module, parameter in owned(model, "parameter")}
    if optimiser is not None:
        state = optimisers.settle(optimiser, step.optimiser)
        recorder.existing([(owners[id(parameter)], tensor) for parameter, tensor in state], "state")
    with torch.enable_grad(), recorder:
        with casting(step, device):
            recorder.phase = "forward"
            output = calling.call(model, inputs)
            recorder.phase = "loss"
            value = loss(output, target) if loss is not None else stand_in_loss(output, recorder.given)
        recorder.phase = "backward"
        value.backward()  # type: ignore[no-untyped-call]
        for parameter in model.parameters():
            if parameter.grad is not None:
                recorder.relabel(parameter.grad, "gradient", owners[id(parameter)])
        recorder.phase = "optimiser"
        if optimiser is not None:
            optimiser.step()
    return output, value, optimiser


def casting(step: TrainingStep, device: str) -> AbstractContextManager[Any]:
    """``torch.autocast`` as the step asks for it."""
    dtype = AUTOCAST.get(step.precision)
    return nullcontext() if dtype is None else torch.autocast(device, dtype=dtype)


def checkpointing(step: TrainingStep | None, model: nn.Module, inputs: Any) -> AbstractContextManager[Any]:
    """Checkpoints as the step asks for them."""
    return checkpointed(model, inputs) if step is not None and step.checkpointing else nullcontext()
