"""What oneDNN allocates for a convolution with AVX-512: operands in blocks of 16 channels, and a scratchpad.

Where it computes channels-last, the result is reordered twice. Which kernel it takes is read off its verbose log
(oneDNN 3.12 of torch 2.13) over some two thousand random convolutions; the sizes of scratchpads are fitted to what was
measured there.
"""

from __future__ import annotations

from ranp.costs.memory.layouts import (
    Pass,
    blocked_data,
    blocked_weight,
    data_to_last,
    depthwise_weight,
    is_by_points,
    padded,
    thinned,
    window,
    with_bias,
)
from ranp.costs.memory.products import data_by_products, forward_by_products, weight_by_products
from ranp.costs.memory.shapes import Shapes
from ranp.costs.step.cpu import Cpu

BLOCK = 16
_WIDEST = 14
"""Width of a kernel up to which oneDNN computes the gradient of its weights directly."""


def _data(shapes: Shapes, *, out: bool, block: int = BLOCK) -> int:
    return blocked_data(shapes, block, out=out)


def _weight(shapes: Shapes, *, into: int = BLOCK, out: int = BLOCK) -> int:
    if shapes.is_depthwise:
        return depthwise_weight(shapes, out)
    if shapes.groups > 1:  # narrow groups come in narrow blocks
        into, out = min(into, 4), min(out, 4)
    return blocked_weight(shapes, into=into, out=out)


def _is_converted(shapes: Shapes, cpu: Cpu) -> bool:
    """Without instructions for 16 bits the kernels that compute channels-last are not taken."""
    return shapes.is_half and cpu.level == "core"


def _stepping_block(shapes: Shapes) -> int:
    """Input channels in a block of the kernel that steps."""
    into = padded(shapes.into // shapes.groups, BLOCK)
    if shapes.is_half:
        return 2 * BLOCK if into == 3 * BLOCK else min(into, 4 * BLOCK)
    return min(into, 2 * BLOCK)


def forward_layouts(shapes: Shapes, cpu: Cpu, has_bias: bool = False) -> Pass:
    """The forward pass."""
    if shapes.is_last:
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0)
    if shapes.is_transposed:
        layouts = data_layouts(shapes.mirrored(), cpu)
        return with_bias(shapes, layouts) if has_bias else layouts
    if shapes.is_depthwise and len(shapes.space) == 3:
        if shapes.is_dilated or _is_converted(shapes, cpu):
            return forward_by_products(shapes, cpu)
        return Pass(data_to_last(shapes, out=False) + _weight(shapes), data_to_last(shapes, out=True), is_last=True)
    if any(size > 6 and extent < 5 for size, extent in zip(shapes.kernel, shapes.space, strict=True)):
        return forward_by_products(shapes, cpu)
    if shapes.groups == 1 and shapes.into < BLOCK and not is_by_points(shapes):
        return Pass(_weight(shapes, into=2 if shapes.is_half else 1), _data(shapes, out=True))
    scratch = 2 * _data(shapes, out=True) // shapes.batch if shapes.is_half and is_by_points(shapes) else 0
    scratch += thinned(shapes, cpu.threads, BLOCK)
    return Pass(_data(shapes, out=False) + _weight(shapes), _data(shapes, out=True), scratch)


def data_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the input."""
    if shapes.is_last:
        scratch = window(shapes, cpu, _stepping_block(shapes)) if shapes.is_strided else 0
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0, scratch)
    if shapes.is_transposed:
        return forward_layouts(shapes.mirrored(), cpu)
    if _is_stepping(shapes, cpu):
        block = _stepping_block(shapes)
        sources = data_to_last(shapes, out=True) + blocked_weight(shapes, into=block, out=2 if shapes.is_half else 1)
        return Pass(sources, data_to_last(shapes, out=False), window(shapes, cpu, block), is_last=True)
    if shapes.is_depthwise and (len(shapes.space) == 3 or shapes.is_dilated):
        return data_by_products(shapes, cpu)
    scratch = 2 * _data(shapes, out=False) // shapes.batch if shapes.is_half and is_by_points(shapes) else 0
    return Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False), scratch)


def _is_stepping(shapes: Shapes, cpu: Cpu) -> bool:
    """Whether the gradient of the input is computed channels-last: with strides, depthwise only in 16 bits."""
    if not shapes.is_strided or is_by_points(shapes) or _is_converted(shapes, cpu):
        return False
    return not shapes.is_depthwise or shapes.is_half


def weight_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the weight."""
    if shapes.is_last:
        return Pass(shapes.weight * shapes.item, _weight(shapes), _sums(shapes, cpu), is_last=True)
    if shapes.is_transposed:
        return weight_layouts(shapes.mirrored(), cpu)
    dims = len(shapes.space)
    few = shapes.groups == 1 and shapes.into < BLOCK and not is_by_points(shapes)
    first = few and (shapes.out % BLOCK == 0 if shapes.is_half else shapes.into < 4)
    is_padded = any(shapes.padding)
    if shapes.is_depthwise:
        by_products = dims == 3 or shapes.is_dilated or any(size != 3 for size in shapes.kernel)
    elif shapes.is_half:
        by_products = shapes.is_dilated or (few and not first)
    elif dims == 3:
        tight = any(pad > 0 and extent < pad + 2 for extent, pad in zip(shapes.space, shapes.padding, strict=True))
        by_products = tight or shapes.is_dilated or (few and not first and is_padded)
    else:
        by_products = few and not first and shapes.is_dilated
    if by_products or shapes.kernel[-1] > _WIDEST:
        return weight_by_products(shapes, cpu)
    if first:
        return Pass(_data(shapes, out=True), _weight(shapes, into=1), _sums(shapes, cpu, is_first=True))
    block = BLOCK // 2 if few and not shapes.is_half else BLOCK
    sources = _data(shapes, out=True, block=block) + _data(shapes, out=False, block=block)
    return Pass(
        sources, _weight(shapes, into=block, out=block), _sums(shapes, cpu) + thinned(shapes, cpu.threads, BLOCK)
    )


def _sums(shapes: Shapes, cpu: Cpu, *, is_first: bool = False) -> int:
    """The scratchpad of half precision: the weights' gradient in single precision, one sample of both operands.

    Rows are padded: those of the input by what the kernel overhangs, those of the gradient to an even length.
    """
    if not shapes.is_half or shapes.is_depthwise or (is_by_points(shapes) and len(shapes.space) == 2):
        return 0
    row, reach = shapes.space[-1], shapes.reach[-1]
    length = padded(row + 4, 4) if shapes.is_strided else row + 2 * shapes.padding[-1]
    samples = _data(shapes, out=True) * padded(reach, 2) // reach
    samples += 0 if is_first else _data(shapes, out=False) * length // row
    weight = _weight(shapes, into=1 if is_first else BLOCK)
    return 2 * weight + cpu.threads * samples // shapes.batch + 8704
