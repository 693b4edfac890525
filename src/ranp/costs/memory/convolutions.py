"""What a convolution on the CPU allocates beyond its results.

Torch sends it to oneDNN, whose kernels depend on the CPU (``avx512.py``, ``avx2.py``), or to a kernel of its
own, which unfolds the input into columns.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

import torch

from ranp.costs.memory import avx2, avx512
from ranp.costs.memory.layouts import Pass, peak_of_pass
from ranp.costs.memory.shapes import Shapes, shapes_of
from ranp.costs.step import Call, Sized
from ranp.costs.step.cpu import Cpu

_OWN_BELOW = 20480
"""Elements of the first axes up to which torch keeps a batch of one to itself."""
_LARGEST = 2**31 - 1
"""Bytes of an operand up to which oneDNN's kernels were surveyed; some of them refuse larger ones."""


class _Kernels(Protocol):
    """What oneDNN takes for each pass with one set of instructions."""

    def forward_layouts(self, shapes: Shapes, cpu: Cpu, has_bias: bool = False) -> Pass: ...

    def data_layouts(self, shapes: Shapes, cpu: Cpu) -> Pass: ...

    def weight_layouts(self, shapes: Shapes, cpu: Cpu) -> Pass: ...


def _kernels(cpu: Cpu) -> _Kernels:
    return avx512 if cpu.isa == "avx512" else avx2


def forward_transient(call: Call, cpu: Cpu) -> int:
    """Bytes beyond the output at the worst moment of ``aten.convolution``."""
    x, weight, *_ = call.inputs
    y = call.outputs[0]
    shapes = shapes_of(x, weight, y, list(call.settings.positional[3:9]))
    copies = _copied(shapes, cpu, x)
    if not goes_to_onednn(shapes, cpu):
        copies += _copied(shapes, cpu, weight)
        return copies + _own_forward(shapes, x.bytes, y.bytes, len(call.inputs) > 2)
    copies += weight.bytes if weight.scattered else 0
    return copies + peak_of_pass(_kernels(cpu).forward_layouts(shapes, cpu, len(call.inputs) > 2), y.bytes) - y.bytes


def spare_room(call: Call, cpu: Cpu) -> int:
    """Bytes that the storage of a result of ``aten.convolution`` has beyond the result, for as long as it lives.

    In space, torch's own transposed kernel first gives the result the room of the input and then resizes it, which
    never gives any back.
    """
    x, weight, *_ = call.inputs
    y = call.outputs[0]
    if len(x.shape) != 5 or y.bytes >= x.bytes or not call.settings.positional[6]:
        return 0
    shapes = shapes_of(x, weight, y, list(call.settings.positional[3:9]))
    return 0 if goes_to_onednn(shapes, cpu) or _joins(shapes) else x.bytes - y.bytes


def backward_transient(call: Call, cpu: Cpu) -> int:
    """Bytes beyond the gradients at the worst moment of ``aten.convolution_backward``."""
    grad, x, weight, *_ = call.inputs
    arguments = list(call.settings.positional)
    wants_data, wants_weight, wants_bias = arguments[10]
    shapes = shapes_of(x, weight, grad, arguments[4:10])
    copies = _copied(shapes, cpu, grad) + (weight.bytes if weight.scattered else 0)
    lined = _copied(shapes, cpu, x)
    data = x.bytes if wants_data else 0
    bias = shapes.out * shapes.item if wants_bias else 0
    weights = weight.bytes if wants_weight else 0
    made = data + weights + bias
    if not goes_to_onednn(shapes, cpu):
        return copies + _own_backward(shapes, data, weights, bias, grad.bytes, lined)
    peak = 0
    if wants_data:
        peak = peak_of_pass(_kernels(cpu).data_layouts(shapes, cpu), data)
    if wants_weight or wants_bias:
        peak = max(peak, data + peak_of_pass(_kernels(cpu).weight_layouts(shapes, cpu), weight.bytes) + 2 * bias)
    return copies + lined + max(0, peak - made)


def is_estimate(call: Call, cpu: Cpu) -> bool:
    """Whether oneDNN may take a kernel that was not surveyed: with other instructions, layouts, or larger operands."""
    x = call.inputs[0]
    if cpu.isa == "none" or x.dtype not in (torch.float32, *cpu.halves):
        return False
    if cpu.isa == "other" or (x.dtype in cpu.halves and not _is_surveyed(x.dtype, cpu)):
        return True
    if cpu.isa == "avx512" and any(tensor.channels_last for tensor in call.inputs):
        return True
    return any(tensor.bytes > _LARGEST for tensor in (*call.inputs, *call.outputs))


def _is_surveyed(half: torch.dtype, cpu: Cpu) -> bool:
    return half == torch.bfloat16 and cpu.isa == "avx512" and cpu.level != "other"


def _copied(shapes: Shapes, cpu: Cpu, tensor: Sized) -> int:
    """Bytes of the copy that a kernel works on if a tensor does not lie as it wants it.

    Torch's own kernels take channels-last tensors in the plane only, and want them alike; so do oneDNN's everywhere.
    """
    if tensor.scattered:
        return tensor.bytes
    if not goes_to_onednn(shapes, cpu):
        return tensor.bytes if tensor.channels_last and (len(shapes.space) == 3 or not shapes.is_last) else 0
    lies_both_ways = tensor.shape[1] == 1 or prod(tensor.shape[2:]) == 1
    return tensor.bytes if tensor.channels_last != shapes.is_last and not lies_both_ways else 0


def goes_to_onednn(shapes: Shapes, cpu: Cpu) -> bool:
    """Torch's own choice (``ConvParams::use_mkldnn``)."""
    if cpu.isa == "none" or shapes.dtype not in (torch.float32, *cpu.halves):
        return False
    if shapes.is_half:
        return True
    kernel = shapes.kernel
    last = kernel[-1] != 1 or (len(kernel) > 1 and kernel[-2] != 1)
    is_work = shapes.is_strided or shapes.is_dilated or shapes.batch >= 16 or last or cpu.threads > 1
    front = shapes.batch * shapes.into * prod(shapes.space[:2])
    large = len(kernel) > 1 and kernel[-1] > 3 and kernel[-2] > 3
    return is_work and (shapes.groups > 1 or large or shapes.batch > 1 or front > _OWN_BELOW)


def _columns(shapes: Shapes, *, backward: bool = False) -> int:
    """Bytes of the patches: of a whole batch at once, in space of all groups at once, elsewhere group by group."""
    dims = len(shapes.space)
    at_once = dims == 3 and not shapes.is_transposed and not shapes.is_dilated
    is_same = shapes.is_pointwise and not shapes.is_strided and not any(shapes.padding)
    needs_none = backward if shapes.is_transposed else not (at_once and shapes.groups > 1) and not shapes.is_dilated
    if is_same and needs_none:
        return 0
    groups = 1 if at_once else shapes.groups
    if shapes.is_transposed:
        samples = shapes.batch if dims == 2 and not backward else 1
        return samples * shapes.out // groups * prod(shapes.kernel) * prod(shapes.space) * shapes.item
    samples = 1 if shapes.is_dilated else shapes.batch
    return samples * shapes.into // groups * prod(shapes.kernel) * prod(shapes.reach) * shapes.item


def _joins(shapes: Shapes) -> bool:
    """Whether the results of groups are made one by one and then joined."""
    return shapes.groups > 1 and (len(shapes.space) == 2 or shapes.is_transposed or shapes.is_dilated)


def _own_forward(shapes: Shapes, data: int, result: int, has_bias: bool) -> int:
    columns = (result if _joins(shapes) else 0) + _columns(shapes)
    if not shapes.is_transposed or len(shapes.space) != 3:
        return columns
    ones = prod(shapes.reach) * shapes.item if has_bias else 0
    joined = max(0, data - result) if _joins(shapes) else 0  # else it is room that the result keeps
    return max(data if data < result else 0, columns + ones + joined)


def _own_backward(shapes: Shapes, data: int, weights: int, bias: int, grad: int, lined: int) -> int:
    """With the bytes of what is made, of the output's gradient, and of a copy of the input, for the weights alone."""
    columns = _columns(shapes, backward=True)
    joined = data + weights + bias if _joins(shapes) else 0
    patches = columns or (data if len(shapes.space) == 3 and not shapes.is_transposed else 0)
    peak = max(data + patches if data else 0, data + weights + bias + columns + lined)
    if bias and shapes.is_half and shapes.batch > 1 and shapes.out > 1 and not shapes.is_dilated:
        # A sum over axes that do not lie together is one of a wider copy.
        beside = weights + columns if shapes.is_transposed and len(shapes.space) == 3 else 0
        peak = max(peak, data + beside + 3 * bias + 2 * grad)
    return max(joined, peak - data - weights - bias)
