"""Operands of a convolution in oneDNN's layouts: channels in blocks, padded to whole ones, or channels-last."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ranp.costs.memory.shapes import Shapes


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
