"""Operands of a convolution in oneDNN's layouts: channels in blocks, padded to whole ones, or channels-last."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ranp.footprint.shapes import Shapes


@dataclass(frozen=True, slots=True)
class Pass:
    """Bytes of the reordered operands of one pass; 0 where an operand is used as it lies.

    Attributes:
        sources: The operands together.
        result: The result in oneDNN's layout.
        scratch: The scratchpad.
        is_last: The result lies channels-last and is reordered twice.
    """

    sources: int
    result: int
    scratch: int = 0
    is_last: bool = False


def peak_of_pass(layouts: Pass, plain: int) -> int:
    """Operands, scratchpad and result live together; then, without the operands, the result and its plain copy."""
    running = layouts.sources + layouts.scratch + (layouts.result or plain)
    if not layouts.result:
        return running
    return max(running, layouts.result + plain * (2 if layouts.is_last else 1))


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
    """Bytes of the weight with the channels of a group in blocks, or its groups if each is a channel by itself."""
    groups = shapes.groups
    if shapes.is_depthwise:
        return padded(groups, out) * (shapes.out // groups) * prod(shapes.kernel) * shapes.item
    channels = padded(shapes.into // groups, into) * padded(shapes.out // groups, out)
    return groups * channels * prod(shapes.kernel) * shapes.item


def window(shapes: Shapes, threads: int, *, out: bool) -> int:
    """The scratchpad of the channels-last kernels: a padded copy of one sample's operand for every thread."""
    channels, space = (shapes.out, shapes.reach) if out else (shapes.into, shapes.space)
    overhang = [(size - 1) // step for size, step in zip(shapes.kernel, shapes.stride, strict=True)]
    extents = prod(extent + more for extent, more in zip(space, overhang, strict=True))
    return threads * (32792 + -(-channels * extents * shapes.item // 4096) * 4096)
