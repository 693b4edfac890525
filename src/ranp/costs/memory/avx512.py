"""What oneDNN allocates for a convolution with AVX-512: operands in blocks of 16 channels, and a scratchpad.

Where it computes channels-last, the result is reordered twice. Which kernel it takes is read off its verbose log
(oneDNN 3.12 of torch 2.13) over some two thousand random convolutions; the sizes of scratchpads are fitted to what was
measured there.
"""

from __future__ import annotations

from math import prod

from ranp.costs.memory.layouts import (
    Pass,
    blocked_data,
    blocked_weight,
    data_to_last,
    depthwise_weight,
    is_by_points,
    padded,
    thinned,
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


def _is_emulated(shapes: Shapes, cpu: Cpu) -> bool:
    """Half precision that the CPU does not multiply itself: oneDNN has fewer kernels for it."""
    return shapes.is_half and shapes.dtype not in cpu.native


def _window(shapes: Shapes, cpu: Cpu) -> int:
    """The scratchpad of the channels-last kernels: a padded copy of one sample of the output for every thread."""
    overhang = [(size - 1) // step for size, step in zip(shapes.kernel, shapes.stride, strict=True)]
    extents = prod(extent + more for extent, more in zip(shapes.reach, overhang, strict=True))
    return cpu.threads * (32792 + -(-shapes.out * extents * shapes.item // 4096) * 4096)


def _sample(shapes: Shapes, cpu: Cpu, *, out: bool) -> int:
    """The scratchpad of half precision by points: one sample of the result in single precision for every thread."""
    if not shapes.is_half or not is_by_points(shapes):
        return 0
    return cpu.threads * 2 * _data(shapes, out=out) // shapes.batch


def forward_layouts(shapes: Shapes, cpu: Cpu, has_bias: bool = False) -> Pass:
    """The forward pass."""
    if shapes.is_last:
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0)
    if shapes.is_transposed:
        layouts = data_layouts(shapes.mirrored(), cpu)
        if (shapes.is_strided and not _is_emulated(shapes, cpu)) or not has_bias:
            return layouts
        return Pass(layouts.sources, layouts.result, _data(shapes, out=True) * 4 // shapes.item)
    if shapes.is_depthwise and len(shapes.space) == 3:
        if shapes.is_dilated or _is_emulated(shapes, cpu):
            return forward_by_products(shapes, cpu)
        return Pass(data_to_last(shapes, out=False) + _weight(shapes), data_to_last(shapes, out=True), is_last=True)
    if any(size > 6 and extent < 5 for size, extent in zip(shapes.kernel, shapes.space, strict=True)):
        return forward_by_products(shapes, cpu)
    if shapes.groups == 1 and shapes.into < BLOCK and not is_by_points(shapes):
        return Pass(_weight(shapes, into=2 if shapes.is_half else 1), _data(shapes, out=True))
    scratch = _sample(shapes, cpu, out=True) + thinned(shapes, cpu.threads, BLOCK)
    return Pass(_data(shapes, out=False) + _weight(shapes), _data(shapes, out=True), scratch)


def data_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the input."""
    if shapes.is_last:
        scratch = _window(shapes, cpu) if shapes.is_strided else 0
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0, scratch)
    if shapes.is_transposed:
        return forward_layouts(shapes.mirrored(), cpu)
    is_last = shapes.is_strided and not _is_emulated(shapes, cpu) and (shapes.is_half or not shapes.is_depthwise)
    if shapes.is_depthwise and not is_last and (len(shapes.space) == 3 or shapes.is_dilated):
        return data_by_products(shapes, cpu)
    if is_last:
        block = min(64, padded(shapes.into, BLOCK)) if shapes.into < 32 else 32
        weight = _weight(shapes, into=block, out=1)
        sources = data_to_last(shapes, out=True) + weight
        return Pass(sources, data_to_last(shapes, out=False), _window(shapes, cpu), is_last=True)
    return Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False), _sample(shapes, cpu, out=False))


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
