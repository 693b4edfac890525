"""The peak of a step: which storages live during each operator, and what the operator allocates itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from ranp import arguments
from ranp.costs.memory.convolutions import spare_room
from ranp.costs.memory.transients import is_estimate, transient
from ranp.costs.step import StepTrace, TrainingStep, trace_step
from ranp.costs.step.cpu import Cpu, this_cpu
from ranp.costs.step.running import Loss
from ranp.running.recording import Kept

_CUDA_BLOCK = 512
"""Bytes to which CUDA's caching allocator rounds every tensor up."""
_PART_OF = {
    "parameter": "parameters",
    "gradient": "gradients",
    "state": "state",
    "input": "inputs",
    "buffer": "inputs",
    "activation": "activations",
    "temporary": "transient",
}
_PARTS = ("parameters", "gradients", "state", "inputs", "activations", "transient")
_PLAIN = TrainingStep()


@dataclass(frozen=True, slots=True)
class Footprint:
    """The largest amount of memory that a step needs at one moment, and what it consists of then.

    Attributes:
        peak: Bytes; the sum of the parts.
        parameters: The network's weights.
        gradients: Those of the weights that exist already.
        state: Of the optimiser.
        inputs: Inputs, targets and buffers.
        activations: Made in the forward pass and the loss.
        transient: Made in the backward pass and the optimiser (gradients of activations among them), and what the
            operator of the moment allocates beyond its results.
        phase: Where the peak is: ``"forward"``, ``"loss"``, ``"backward"`` or ``"optimiser"``.
        op: The operator that runs then.
        module: The module that it belongs to.
        is_estimate: Not all that the operators allocate beside their results is known: on CUDA, or on a CPU with other
            instructions than AVX2 and AVX-512, or for operands of 2 GiB and more.
    """

    peak: int
    parameters: int
    gradients: int
    state: int
    inputs: int
    activations: int
    transient: int
    phase: str
    op: str
    module: str
    is_estimate: bool = False

    def __str__(self) -> str:
        lines = [f"{'peak':<12}{self.peak / 2**20:>12,.1f} MiB"]
        lines += [f"  {part:<10}{getattr(self, part) / 2**20:>12,.1f} MiB" for part in _PARTS]
        where = f" of {self.module}" if self.module else ""
        lines.append(f"during {self.op or 'nothing'}{where} ({self.phase or 'before the step'})")
        return "\n".join([*lines, *(["an estimate: not all kernels of this machine are known"] * self.is_estimate)])


def peak(step: StepTrace, *, cpu: Cpu | None = None) -> Footprint:
    """Finds the peak of a step. Pure: it runs and allocates nothing of the step's size.

    Every storage counts from the call that makes it to the last call during which it lives; each call adds what it
    allocates beyond its results (``ranp.costs.memory.transients``, known for the CPU only).

    Args:
        step: The step.
        cpu: What decides on kernels if it runs on a CPU; by default this one.
    """
    calls, storages = step.calls, step.storages
    is_rough = step.device != "cpu"
    on_cuda = step.device == "cuda"
    cpu = this_cpu() if cpu is None else cpu
    sizes = _sizes(step, cpu)
    if on_cuda:
        sizes = -(-sizes // _CUDA_BLOCK) * _CUDA_BLOCK
    born = np.array([storage.born for storage in storages], dtype=np.int64)
    dies = np.array([storage.dies for storage in storages], dtype=np.int64)
    # Moment 0 is before the first call, moment k + 1 is call k.
    change = np.zeros(len(calls) + 3, dtype=np.int64)
    np.add.at(change, born + 1, sizes)
    np.subtract.at(change, np.maximum(dies, born) + 2, sizes)
    living = np.cumsum(change)[: len(calls) + 1]
    if step.device == "cpu":
        is_rough = any(is_estimate(call, cpu) for call in calls)
        living[1:] += np.fromiter((transient(call, cpu) for call in calls), np.int64, len(calls))
    moment = int(living.argmax())
    parts = dict.fromkeys(_PARTS, 0)
    alive = (born + 1 <= moment) & (np.maximum(dies, born) + 1 >= moment)
    for index in np.flatnonzero(alive):
        parts[_PART_OF[storages[index].kind]] += int(sizes[index])
    total = int(living[moment])
    parts["transient"] += total - sum(parts.values())
    call = calls[moment - 1] if moment else None
    where = (call.phase, call.op, call.module) if call is not None else ("", "", "")
    return Footprint(total, **parts, phase=where[0], op=where[1], module=where[2], is_estimate=is_rough)


def kept_bytes(step: StepTrace) -> int:
    """What the forward pass of a training step keeps for the backward pass."""
    return sum(item.bytes for item in kept_by_module(step).values())


def kept_by_module(step: StepTrace) -> dict[str, Kept]:
    """The same by the module that made it."""
    sizes, found = _sizes(step, this_cpu()), dict[str, Kept]()
    for number in sorted(step.kept):
        size, storage = int(sizes[number]), step.storages[number]
        before = found.get(storage.module, Kept(0, 0))
        elements = size // storage.dtype.itemsize
        found[storage.module] = Kept(before.elements + elements, before.bytes + size)
    return found


def _sizes(step: StepTrace, cpu: Cpu) -> npt.NDArray[np.int64]:
    """What each storage takes, with the room that kernels of the CPU leave unused."""
    sizes = np.array([storage.bytes for storage in step.storages], dtype=np.int64)
    if step.device == "cpu":
        for call in step.calls:
            if call.op == "aten.convolution.default":
                sizes[call.outputs[0].storage] += spare_room(call, cpu)
    return sizes


def training_memory(
    model: nn.Module,
    example: Any,
    *,
    step: TrainingStep = _PLAIN,
    loss: Loss | None = None,
    target: Any = None,
) -> Footprint:
    """Predicts the peak of one training step without running it: no weights, no activations are allocated.

        >>> import torch
        >>> net = nn.Sequential(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.Conv3d(8, 2, 3))
        >>> training_memory(net, torch.empty(1, 1, 16, 16, 16, device="meta")).parameters
        2632

    Args:
        model: The network, real or on the meta device; it is never touched.
        example: The inputs of one call, real or on the meta device.
        step: Batch, optimiser, precision and checkpointing.
        loss: Of output and target; without it a stand-in, see ``ranp.costs.step.trace_step``.
        target: What the loss compares with.

    Raises:
        UnsupportedError: The network or the loss asks for values of tensors, or does not run on the example.
    """
    arguments.kind(
        "step", step, TrainingStep, "a ranp.TrainingStep; for an inference, peak(trace_step(..., step=None))"
    )
    return peak(trace_step(model, example, step=step, loss=loss, target=target))
