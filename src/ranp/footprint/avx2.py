"""What oneDNN allocates for a convolution with AVX2: channels in blocks of 8.

Which kernel it takes follows the conditions of its own kernels (oneDNN 3.12 of torch 2.13), checked against its verbose
log over a thousand random convolutions. The kernels that unroll rows refuse padding as wide as a kernel, and the one
for the gradient of the weight any padding in depth: then matrix products take over.
"""

from __future__ import annotations

from ranp.footprint.cpu import Cpu
from ranp.footprint.layouts import Pass, blocked_data, blocked_weight, data_to_last, padded, window
from ranp.footprint.products import data_by_products, forward_by_products, weight_by_products
from ranp.footprint.shapes import Shapes

BLOCK = 8
_FLAT = 3
"""Input channels that the gradient of the weight takes as they lie: those of a picture."""
_WIDEST = 13
"""Width of a kernel up to which oneDNN computes the gradient of its weights directly."""


def forward_layouts(shapes: Shapes, cpu: Cpu, has_bias: bool = False) -> Pass:
    """The forward pass."""
    if shapes.is_last:
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0)
    if shapes.is_transposed:
        layouts = data_layouts(shapes.mirrored(), cpu)
        return layouts
    dims = len(shapes.space)
    if shapes.is_depthwise and dims == 3:
        if shapes.is_dilated:
            return forward_by_products(shapes, cpu)
        return Pass(data_to_last(shapes, out=False) + _weight(shapes), data_to_last(shapes, out=True), is_last=True)
    if not shapes.is_depthwise and not _unrolls(shapes):
        return forward_by_products(shapes, cpu)
    if shapes.into // shapes.groups < BLOCK and not shapes.is_depthwise and not _is_by_points(shapes):
        return Pass(_weight(shapes, into=1), _data(shapes, out=True))
    return Pass(_data(shapes, out=False) + _weight(shapes), _data(shapes, out=True))


def data_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the input."""
    if shapes.is_last:
        scratch = window(shapes, cpu.threads, out=True) if shapes.is_strided else 0
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0, scratch)
    if shapes.is_transposed:
        return forward_layouts(shapes.mirrored(), cpu)
    if shapes.is_depthwise:
        if len(shapes.space) == 3 or shapes.is_dilated:
            return data_by_products(shapes, cpu)
    elif shapes.is_strided and not shapes.is_dilated:
        width = shapes.into // shapes.groups
        block = padded(width, BLOCK) if width <= 32 else min((32, 24), key=lambda block: padded(width, block))
        sources = data_to_last(shapes, out=True) + _weight(shapes, into=block, out=1)
        scratch = window(shapes, cpu.threads, out=True)
        return Pass(sources, data_to_last(shapes, out=False), scratch, is_last=True)
    elif shapes.is_strided or not _covers(shapes) or not _fills_blocks(shapes):
        return data_by_products(shapes, cpu)
    return Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False))


def weight_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the weight."""
    if shapes.is_last:
        return Pass(shapes.weight * shapes.item, _weight(shapes), is_last=True)
    if shapes.is_transposed:
        return weight_layouts(shapes.mirrored(), cpu)
    if shapes.is_depthwise:
        is_direct = len(shapes.space) == 2 and not shapes.is_dilated and all(size == 3 for size in shapes.kernel)
    else:
        is_direct = _is_by_points(shapes) or _sums_directly(shapes)
    if not is_direct:
        return weight_by_products(shapes, cpu)
    if shapes.into == _FLAT and shapes.groups == 1 and not _is_by_points(shapes):
        return Pass(_data(shapes, out=True), _weight(shapes, into=1))
    return Pass(_data(shapes, out=True) + _data(shapes, out=False), _weight(shapes))


def _data(shapes: Shapes, *, out: bool) -> int:
    return blocked_data(shapes, BLOCK, out=out)


def _weight(shapes: Shapes, *, into: int = BLOCK, out: int = BLOCK) -> int:
    return blocked_weight(shapes, into=into, out=out)


def _extents(shapes: Shapes) -> list[int]:
    """Points from the first to the last of the kernel, gaps among them."""
    return [(size - 1) * gap + 1 for size, gap in zip(shapes.kernel, shapes.dilation, strict=True)]


def _ends(shapes: Shapes) -> list[int]:
    """Padding that the last step of the kernel reaches, along every axis; negative where it stays inside."""
    axes = zip(shapes.reach, shapes.stride, _extents(shapes), shapes.space, shapes.padding, strict=True)
    return [(reach - 1) * step + extent - (space + pad) for reach, step, extent, space, pad in axes]


def _covers(shapes: Shapes) -> bool:
    """Whether the kernel always meets the input: no padding is as wide as it is."""
    axes = zip(_extents(shapes), shapes.padding, _ends(shapes), strict=True)
    return all(extent > pad and extent > end for extent, pad, end in axes)


def _fills_blocks(shapes: Shapes) -> bool:
    """Only the channels of one group can be padded."""
    return shapes.groups == 1 or (shapes.into // shapes.groups % BLOCK == 0 and shapes.out // shapes.groups % BLOCK == 0)


def _unrolls(shapes: Shapes) -> bool:
    """The conditions of the forward kernel."""
    into, out = shapes.into // shapes.groups, shapes.out // shapes.groups
    if shapes.groups > 1 and (out % BLOCK or (into >= BLOCK and into % BLOCK)):
        return False
    row = min(3, shapes.reach[-1])
    return _covers(shapes) and shapes.padding[-1] <= row


def _sums_directly(shapes: Shapes) -> bool:
    """The conditions of the kernel for the gradient of the weight."""
    if shapes.is_dilated or shapes.kernel[-1] > _WIDEST or not _covers(shapes) or not _fills_blocks(shapes):
        return False
    if len(shapes.space) == 3 and (shapes.padding[0] or _ends(shapes)[0] > 0):
        return False
    return all(size <= extent for size, extent in zip(shapes.kernel[:-1], shapes.space[:-1], strict=True))


def _is_by_points(shapes: Shapes) -> bool:
    """OneDNN's kernels for a kernel of one; strided ones only in the plane, where the stride divides the extents."""
    if not shapes.is_pointwise or any(shapes.padding) or shapes.groups > 1:
        return False
    divides = all(extent % step == 0 for extent, step in zip(shapes.space, shapes.stride, strict=True))
    return not shapes.is_strided or (len(shapes.space) == 2 and divides)
