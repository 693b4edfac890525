"""What an operator allocates beyond its results while it runs: one rule per operator, none for pointwise ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from itertools import pairwise
from math import prod

import torch

from ranp.costs.memory import attention, convolutions
from ranp.costs.step import Call, Settings, Sized
from ranp.costs.step.cpu import Cpu, this_cpu

Rule = Callable[[Call, Cpu], int]


def _copied(*places: int, last: bool = True) -> Rule:
    """Inputs at these places are made contiguous first; with ``last``, channels-last ones too."""

    def rule(call: Call, _: Cpu) -> int:
        tensors = [call.inputs[place] for place in places if place < len(call.inputs)]
        return sum(x.bytes for x in tensors if x.scattered or (last and x.channels_last))

    return rule


def _batch_norm(call: Call, _: Cpu) -> int:
    """Two statistics of every channel."""
    return 2 * call.outputs[1].bytes


def _batch_norm_backward(call: Call, _: Cpu) -> int:
    """Where gradient and input lie alike, the fast kernel writes into a second tensor of their size."""
    grad, x = call.inputs[:2]
    alike = not grad.scattered and not x.scattered and grad.channels_last == x.channels_last
    return x.bytes if alike else 0


def _resampled(call: Call, _: Cpu) -> int:
    """In the plane, torch resamples more than one channel channels-last: input and result are reordered."""
    x, y = call.inputs[0], call.outputs[0]
    return x.bytes + y.bytes if x.shape[1] > 1 and not x.channels_last else 0


def _roll(call: Call, _: Cpu) -> int:
    """One axis after the other."""
    axes = call.settings.positional[2:]
    return (min(3, len(axes[0])) - 1) * call.outputs[0].bytes if axes and axes[0] else 0


def _layer_norm_backward(call: Call, cpu: Cpu) -> int:
    sums = 2 * cpu.threads * call.outputs[-1].bytes if len(call.outputs) > 1 else 0
    return _copied(0, 1)(call, cpu) + sums


def _half_product(call: Call, cpu: Cpu) -> int:
    """OneDNN sums products of half precision in single precision: the whole result, one sample of a batch of them."""
    y = call.outputs[0]
    if y.dtype not in cpu.halves:
        return 0
    return 2 * y.bytes // (y.shape[0] if len(y.shape) == 3 else 1)


def _half_sum(call: Call, _: Cpu) -> int:
    """A sum of half precision over axes that do not lie together, or into a wider type, is one of a wider copy."""
    x, y = call.inputs[0], call.outputs[0]
    if x.dtype.itemsize != 2:
        return 0
    axes = call.settings.positional[1:2]
    along = {axis % len(x.shape) for axis in axes[0]} if axes and axes[0] and x.shape else set()
    places = sorted(axis for axis in along if x.shape[axis] > 1)
    is_apart = any(prod(x.shape[first + 1 : second]) > 1 for first, second in pairwise(places))
    return 2 * x.bytes if is_apart or y.dtype.itemsize > 2 else 0


def _half_mean(call: Call, _: Cpu) -> int:
    """A mean of half precision is one of a wider copy."""
    return 2 * (call.inputs[0].bytes + call.outputs[0].bytes) if call.inputs[0].dtype.itemsize == 2 else 0


def _promoted(call: Call, _: Cpu) -> int:
    """A pointwise operator on tensors of different precision copies the narrower ones to the wider type."""
    floating = [x for x in call.inputs if x.dtype.is_floating_point and x.shape]
    if len({x.dtype for x in floating}) < 2:
        return 0
    widest = max(x.dtype.itemsize for x in floating)
    return sum(prod(x.shape) * widest for x in floating if x.dtype.itemsize < widest)


@cache
def _rule(op: str) -> Rule | None:
    if op in _RULES:
        return _RULES[op]
    space, name, overload = op.split(".")
    tags = getattr(getattr(getattr(getattr(torch.ops, space), name, None), overload, None), "tags", ())
    return _promoted if torch.Tag.pointwise in tags else None


_RULES: dict[str, Rule] = {
    "aten.convolution.default": convolutions.forward_transient,
    "aten.convolution_backward.default": convolutions.backward_transient,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention.forward_transient,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": attention.backward_transient,
    "aten.native_batch_norm.default": _batch_norm,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
    "aten.native_layer_norm.default": _copied(0),
    "aten.native_layer_norm_backward.default": _layer_norm_backward,
    "aten.max_pool2d_with_indices.default": _copied(0, last=False),
    "aten.max_pool3d_with_indices.default": _copied(0, last=False),
    "aten.max_pool2d_with_indices_backward.default": _copied(0, last=False),
    "aten.max_pool3d_with_indices_backward.default": _copied(0, 1, 2),
    "aten.avg_pool2d.default": _copied(0, last=False),
    "aten.avg_pool3d.default": _copied(0),
    "aten.avg_pool2d_backward.default": _copied(0, last=False),
    "aten.avg_pool3d_backward.default": _copied(0),
    "aten.upsample_nearest2d.default": _resampled,
    "aten.upsample_bilinear2d.default": _resampled,
    "aten.upsample_nearest2d_backward.default": _copied(0, last=False),
    "aten.upsample_bilinear2d_backward.default": _copied(0, last=False),
    "aten.upsample_nearest3d_backward.default": _copied(0, last=False),
    "aten.upsample_trilinear3d_backward.default": _copied(0, last=False),
    "aten._softmax.default": _copied(0),
    "aten._softmax_backward_data.default": _copied(0, 1),
    "aten._log_softmax.default": _copied(0),
    "aten._log_softmax_backward_data.default": _copied(0, 1),
    "aten.nll_loss_nd.default": _copied(0),
    "aten.nll_loss2d_forward.default": _copied(0),
    "aten.roll.default": _roll,
    "aten.mm.default": _half_product,
    "aten.addmm.default": _half_product,
    "aten.bmm.default": _half_product,
    "aten.baddbmm.default": _half_product,
    "aten.sum.dim_IntList": _half_sum,
    "aten.mean.dim": _half_mean,
    "aten.mean.default": _half_mean,
}


_SURVEYED = (convolutions.forward_transient, convolutions.backward_transient)
"""Rules that hold for the kernels of known instructions."""


def transient(call: Call, cpu: Cpu | None = None) -> int:
    """Bytes that an operator allocates on a CPU beyond its results, at its worst moment; by default on this one.

    >>> import torch
    >>> size = Sized((2, 8), torch.float32)
    >>> transient(Call("aten.relu.default", (size,), (size,), Settings(("T",)), "forward", ""))
    0
    """
    rule = _rule(call.op)
    if rule is None:
        return 0
    cpu = this_cpu() if cpu is None else cpu
    if rule is _promoted:
        return _promoted(call, cpu)
    return _cached(call.op, _bare(call.inputs), _bare(call.outputs), call.settings, cpu)


def is_estimate(call: Call, cpu: Cpu) -> bool:
    """Whether a transient is an estimate: it goes by rules for other kernels than those that may run."""
    return _rule(call.op) in _SURVEYED and convolutions.is_estimate(call, cpu)


def _bare(tensors: tuple[Sized, ...]) -> tuple[Sized, ...]:
    return tuple(Sized(x.shape, x.dtype, x.channels_last, -1, x.scattered) for x in tensors)


@lru_cache(maxsize=1 << 16)
def _cached(op: str, inputs: tuple[Sized, ...], outputs: tuple[Sized, ...], settings: Settings, cpu: Cpu) -> int:
    return _RULES[op](Call(op, inputs, outputs, settings, "", ""), cpu)
