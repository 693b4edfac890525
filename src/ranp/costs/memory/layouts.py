"""Operands of a convolution in oneDNN's layouts: channels in blocks, padded to whole ones, or channels-last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ranp.costs.memory.shapes import Shapes
from ranp.costs.step.cpu import Cpu

PAGE = 4096
_SUM = 4
"""Bytes of a sum, whatever the type of what is added up."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Bytes of the reordered operands of one pass; 0 where an operand is used as it lies.

    Attributes:
        sources: The operands together.
        result: The result in oneDNN's layout.
        scratch: The scratchpad.
        is_last: The result lies channels-last and is reordered twice.
        held: What lives from the first moment to the last.
    """

    sources: int
    result: int
    scratch: int = 0
    is_last: bool = False
    held: int = 0


def peak_of_pass(layouts: Pass, plain: int) -> int:
    """Operands, scratchpad and result live together; then, without the operands, the result and its plain copy."""
    running = layouts.sources + layouts.scratch + (layouts.result or plain)
    leaving = layouts.result + plain * (2 if layouts.is_last else 1) if layouts.result else 0
    return layouts.held + max(running, leaving)


def padded(channels: int, block: int) -> int:
    """Channels in whole blocks."""
    return -(-channels // block) * block


def blocked_data(shapes: Shapes, block: int, *, out: bool) -> int:
    """Bytes of the input or output with its channels in blocks."""
    channels, space = (shapes.out, shapes.reach) if out else (shapes.into, shapes.space)
    return shapes.batch * padded(channels, block) * prod(space) * shapes.item


def data_to_last(shapes: Shapes, *, out: bool) -> int:
    """Bytes of the input or output brought to channels-last; none if that is how it lies."""
    channels, space = (shapes.out, shapes.reach) if out else (shapes.into, shapes.space)
    if shapes.is_last or channels == 1 or prod(space) == 1:
        return 0
    return shapes.batch * channels * prod(space) * shapes.item


def blocked_weight(shapes: Shapes, *, into: int, out: int) -> int:
    """Bytes of the weight with the channels of each group in blocks."""
    channels = padded(shapes.into // shapes.groups, into) * padded(shapes.out // shapes.groups, out)
    return shapes.groups * channels * prod(shapes.kernel) * shapes.item


def depthwise_weight(shapes: Shapes, block: int) -> int:
    """Bytes of the weight of a depthwise convolution with its groups in blocks."""
    return padded(shapes.groups, block) * (shapes.out // shapes.groups) * prod(shapes.kernel) * shapes.item


def is_by_points(shapes: Shapes) -> bool:
    """OneDNN's kernels for a kernel of one; strided ones only in the plane, where the stride divides the extents."""
    if not shapes.is_pointwise or any(shapes.padding) or shapes.groups > 1:
        return False
    divides = all(extent % step == 0 for extent, step in zip(shapes.space, shapes.stride, strict=True))
    return not shapes.is_strided or (len(shapes.space) == 2 and divides)


def thinned(shapes: Shapes, threads: int, block: int) -> int:
    """The scratchpad of strided kernels of one: the points of one sample that they use, for every thread."""
    if not shapes.is_strided or not is_by_points(shapes):
        return 0
    return threads * padded(shapes.into, block) * prod(shapes.reach) * shapes.item


def with_bias(shapes: Shapes, layouts: Pass) -> Pass:
    """The forward pass of a transposed convolution with a bias, given the one without.

    Kernels that step add it themselves, if they reach every point; others leave sums in a scratchpad, then add it.
    """
    is_whole = all(reach % step == 0 for reach, step in zip(shapes.reach, shapes.stride, strict=True))
    if shapes.is_strided and layouts.is_last and is_whole:
        return layouts
    result = layouts.result or prod((shapes.batch, shapes.out, *shapes.reach)) * shapes.item
    return replace(layouts, scratch=layouts.scratch + result // shapes.item * _SUM)


def batches(shapes: Shapes, cpu: Cpu) -> int:
    """The scratchpad of the kernels that compute channels-last: where each product of the kernel's points begins."""
    return (cpu.threads - (-40 * cpu.threads * prod(shapes.kernel) // PAGE)) * PAGE


def window(shapes: Shapes, cpu: Cpu, block: int) -> int:
    """The same with strides, for blocks of input channels.

    For every thread a copy of one sample as far as the kernel reaches and a row's rest, with 16 bits a row of sums.
    """
    extents, row = 1, -(-shapes.space[-1] // shapes.stride[-1])
    for axis, (size, step) in enumerate(zip(shapes.kernel, shapes.stride, strict=True)):
        ends = (shapes.padding[axis], max(0, last_padding(shapes)[axis]))
        extents *= shapes.reach[axis] + sum(max(0, size - 1 - end) // step for end in ends)
    pages = shapes.item * -(-extents * shapes.out // PAGE) - (-extents // PAGE)
    rest = shapes.item * cpu.threads + 1 if shapes.space[-1] % shapes.stride[-1] else 0
    sums = PAGE + cpu.threads * block * row * _SUM if shapes.is_half else 0
    return batches(shapes, cpu) + (cpu.threads * pages + rest + 2) * PAGE + 24 * cpu.threads + sums


def is_channelwise(shapes: Shapes) -> bool:
    """Depthwise, with as many channels out as in."""
    return shapes.is_depthwise and shapes.out == shapes.into


def extents_of(shapes: Shapes) -> list[int]:
    """Points from the first to the last of the kernel, gaps among them."""
    return [(size - 1) * gap + 1 for size, gap in zip(shapes.kernel, shapes.dilation, strict=True)]


def last_padding(shapes: Shapes) -> list[int]:
    """Padding that the last step of the kernel reaches, along every axis; negative where it stays inside."""
    axes = zip(shapes.reach, shapes.stride, extents_of(shapes), shapes.space, shapes.padding, strict=True)
    return [(reach - 1) * step + extent - (space + pad) for reach, step, extent, space, pad in axes]
