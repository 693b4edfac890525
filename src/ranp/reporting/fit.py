"""What fits a memory: the largest batch and size of a network as it is, and the sparsity for a wanted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import inf, prod
from typing import Any

import torch
from torch import Tensor, nn

from ranp.choosing.budgets import QUANTITIES, Budget, plan_within
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection
from ranp.costs.memory import peak
from ranp.costs.step import StepSetup, TrainingStep, trace_step
from ranp.errors import UnsupportedError
from ranp.running.calling import map_tensors, tensors_in

LARGEST = 4096
"""No batch and no edge above this is looked for."""
STRIDES = (1, 2, 4, 8, 16, 32, 64)
"""By how much a size may have to grow for a network to run again."""
USUAL = 8
"""Sizes that are multiples of this stay so."""
CARDS = tuple(size * 2**30 for size in (2, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 80, 96, 141, 192))
"""Memories of usual graphics cards, in bytes."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a memory holds of a network that is not pruned.

    Attributes:
        needed: Bytes of a step at the example's size and batch.
        batch: The largest batch at the example's size; 0 if not even one sample fits.
        size: The largest space at the example's batch, in the example's proportions; None if none fits.
        fixed: Whether the network runs at the example's size alone.
    """

    needed: int
    batch: int
    size: tuple[int, ...] | None
    fixed: bool

    @property
    def largest(self) -> str:
        """The largest size in words."""
        if self.size is None:
            return "none"
        return "x".join(map(str, self.size)) + (" (the only one)" if self.fixed else "")

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        size = None if self.size is None else list(self.size)
        return {"needed": self.needed, "batch": self.batch, "size": size, "fixed_size": self.fixed}


def which_cards(full: float, slim: float) -> str:
    """The smallest usual cards that hold a training step of the full and of the slim network, in a sentence.

    >>> which_cards(5 * 2**30, 2**30)
    'A card of 2 GiB holds a training step of the slim network, one of 6 GiB that of the full network.'
    """
    show = QUANTITIES.get("train-memory").format
    large, small = (next((card for card in CARDS if needed <= card), None) for needed in (full, slim))
    if small is None:
        return f"No usual card, up to {show(CARDS[-1])}, holds a training step of the slim network."
    if small == large:
        return f"A card of {show(small)} holds a training step of either network."
    other = "none" if large is None else f"one of {show(large)}"
    return f"A card of {show(small)} holds a training step of the slim network, {other} that of the full network."


def whether_fits(full: float, slim: float, memory: float) -> str:
    """Whether a memory holds a training step of each network, in a sentence.

    >>> whether_fits(5 * 2**30, 2**30, 4 * 2**30)
    'In 4 GiB a training step of the slim network fits, that of the full network does not.'
    """
    start = f"In {QUANTITIES.get('train-memory').format(memory)} a training step of"
    if (slim <= memory) == (full <= memory):
        return f"{start} {'either' if slim <= memory else 'neither'} network fits."
    held, other = ("slim", "full") if slim <= memory else ("full", "slim")
    return f"{start} the {held} network fits, that of the {other} network does not."


def with_space(example: Any, space: tuple[int, ...], batch: int | None = None) -> Any:
    """An example without data whose inputs have that space, where they have one, and that batch."""

    def changed(value: Tensor) -> Tensor:
        shape = list(value.shape)
        if len(shape) == len(space) + 2:
            shape[2:] = space
        if batch is not None and shape:
            shape[0] = batch
        return torch.empty(shape, dtype=value.dtype, device="meta")

    return map_tensors(changed, example)


def space_of(example: Any) -> tuple[int, ...]:
    """The space of the first input: what follows batch and channels."""
    first = next(iter(tensors_in(example)), None)
    if first is None or first.dim() < 3:
        raise UnsupportedError("the example has no input with batch, channels and space. Pass one, as 1x1x64x64x64.")
    return tuple(first.shape[2:])


def room(model: nn.Module, example: Any, memory: float, step: TrainingStep) -> Room:
    """What a memory holds of the network as it is.

    Args:
        model: The network; it is never run, and may be on meta.
        example: Inputs of one call; may be on meta.
        memory: Bytes.
        step: What a training step is.

    Raises:
        UnsupportedError: The network does not run on the example, or not without data.
    """
    space = space_of(example)
    batch = step.batch or next(iter(tensors_in(example))).shape[0]

    @cache
    def needed(batch: int, space: tuple[int, ...]) -> float:
        at = with_space(example, space, batch)
        return peak(trace_step(model, at, step=replace(step, batch=None))).peak

    largest = _largest(lambda count: needed(count, space), memory, start=batch)
    stride = _stride(model, example, space)
    if stride is None:
        size = space if needed(batch, space) <= memory else None
        return Room(int(needed(batch, space)), largest, size, fixed=True)
    longest = max(space)

    def scaled(count: int) -> tuple[int, ...]:
        """The space whose longest edge is ``count`` strides, nearly in the proportions of the example."""
        edge = count * stride + longest % stride
        return tuple(_nearest(extent * edge / longest, extent % stride, stride) for extent in space)

    def at_size(count: int) -> float:
        try:
            return needed(batch, scaled(count))
        except UnsupportedError:
            return inf

    own = longest // stride
    best = _largest(at_size, memory, start=own, like=lambda count: prod(scaled(count)), most=LARGEST // stride)
    return Room(int(needed(batch, space)), largest, scaled(best) if best else None, fixed=False)


def plan_for(selection: Selection, setup: StepSetup, memory: float, floor: int | None = None) -> Plan:
    """The plan that makes the step of a setup fit a memory; layers keep ``floor`` channels where these fit.

    Raises:
        InfeasibleError: No slim network is small enough; the message says how small it can be.
    """
    budget = Budget("train-memory", None, memory, f"train-memory={int(memory)}B")
    return plan_within(selection, [budget], setup, floor=floor)


def _nearest(extent: float, offset: int, stride: int) -> int:
    """The nearest extent above 0 that is whole strides and the offset."""
    return max(round((extent - offset) / stride), 0 if offset else 1) * stride + offset


def _stride(model: nn.Module, example: Any, space: tuple[int, ...]) -> int | None:
    """The smallest amount by which all extents can grow; None if the network runs at this size alone."""
    for stride in STRIDES:
        try:
            trace_step(model, with_space(example, tuple(extent + stride for extent in space)), step=None)
        except UnsupportedError:
            continue
        return USUAL if stride < USUAL and not any(extent % USUAL for extent in space) else stride
    return None


def _largest(
    needed: Callable[[int], float],
    memory: float,
    *,
    start: int = 1,
    like: Callable[[int], float] = float,
    most: int = LARGEST,
) -> int:
    """The largest count that fits, 0 if none; what is needed grows about as ``like`` does.

    A line over ``like`` through two known points gives a guess, the guess a better line, so that few counts are tried.
    """
    low, high = (start, most + 1) if needed(start) <= memory else (0, start)  # low fits, high does not
    probe = start + 1 if low else start // 2
    while high - low > 1:
        probe = min(max(probe, low + 1), high - 1)
        low, high = (probe, high) if needed(probe) <= memory else (low, probe)
        slope = (needed(probe) - needed(start)) / (like(probe) - like(start))
        reach = like(start) + (memory - needed(start)) / slope if 0 < slope < inf else 0.0
        guess = low
        while guess + 1 < high and like(guess + 1) <= reach:
            guess += 1
        # The line may stop short of either end: then the next count, or the middle.
        probe = guess if guess > low else low + 1 if reach > 0 else (low + high) // 2
    return low
