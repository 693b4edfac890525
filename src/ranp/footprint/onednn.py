"""What oneDNN allocates for a convolution on the CPU: operands in its own layouts, padded, and a scratchpad.

OneDNN computes with channels in blocks of 16 (8 without AVX-512), so that inputs, weights and results are reordered,
padded to whole blocks, while it runs; where it computes channels-last, the result is reordered twice. Which kernel it
takes is read off its verbose log (oneDNN 3.12 of torch 2.13, AVX-512) over some two thousand random convolutions; the
sizes of scratchpads are fitted to what was measured there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from ranp.footprint.shapes import Shapes

BLOCK = 16 if "512" in torch.backends.cpu.get_cpu_capability() else 8
"""Channels per block: as many numbers as a vector register holds."""
_WIDEST = 14
"""Width of a kernel up to which oneDNN computes the gradient of its weights directly."""
_REDUCTIONS = 4
"""Copies of the weights' gradient that the matrix-product convolution adds up, for every thread."""


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


def _padded(channels: int, block: int = BLOCK) -> int:
    return -(-channels // block) * block


def _data(shapes: Shapes, *, out: bool, block: int = BLOCK) -> int:
    """Bytes of the input or output with its channels in blocks."""
    channels, space = (shapes.out, shapes.reach) if out else (shapes.into, shapes.space)
    return shapes.batch * _padded(channels, block) * prod(space) * shapes.item


def _plain(shapes: Shapes, *, out: bool) -> int:
    """Bytes of the input or output brought to channels-last; none if that is how it lies."""
    channels, space = (shapes.out, shapes.reach) if out else (shapes.into, shapes.space)
    if shapes.is_last or channels == 1 or prod(space) == 1:
        return 0
    return shapes.batch * channels * prod(space) * shapes.item


def _weight(shapes: Shapes, *, into: int = BLOCK, out: int = BLOCK) -> int:
    """Bytes of the weight with its channels in blocks, those of a group for a grouped convolution."""
    groups = shapes.groups
    if shapes.is_depthwise:
        return _padded(groups, out) * (shapes.out // groups) * prod(shapes.kernel) * shapes.item
    if groups > 1:  # narrow groups come in narrow blocks
        into, out = min(into, 4), min(out, 4)
    channels = _padded(shapes.into // groups, into) * _padded(shapes.out // groups, out)
    return groups * channels * prod(shapes.kernel) * shapes.item


def _window(shapes: Shapes, channels: int, space: tuple[int, ...]) -> int:
    """The scratchpad of the channels-last kernels: a padded copy of one sample's operand for every thread."""
    overhang = [(size - 1) // step for size, step in zip(shapes.kernel, shapes.stride, strict=True)]
    extents = prod(extent + more for extent, more in zip(space, overhang, strict=True))
    return torch.get_num_threads() * (32792 + -(-channels * extents * shapes.item // 4096) * 4096)


def _patches(shapes: Shapes) -> int:
    """The scratchpad of the matrix-product convolution: the patches of one plane."""
    plane = prod(shapes.reach[-2:])
    return torch.get_num_threads() * plane * shapes.into // shapes.groups * prod(shapes.kernel) * shapes.item + 256


def forward_layouts(shapes: Shapes, has_bias: bool = False) -> Pass:
    """The forward pass."""
    if shapes.is_last:
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0)
    if shapes.is_transposed:
        layouts = data_layouts(shapes.mirrored())
        if (shapes.is_strided and not shapes.is_half) or not has_bias:
            return layouts
        return Pass(layouts.sources, layouts.result, _data(shapes, out=True) * 4 // shapes.item)
    if shapes.is_depthwise and len(shapes.space) == 3:
        if shapes.is_dilated or shapes.is_half:
            return _by_products(shapes, prod((shapes.batch, shapes.out, *shapes.reach)))
        return Pass(_plain(shapes, out=False) + _weight(shapes), _plain(shapes, out=True), is_last=True)
    if any(size > 6 and extent < 5 for size, extent in zip(shapes.kernel, shapes.space, strict=True)):
        return _by_products(shapes, prod((shapes.batch, shapes.out, *shapes.reach)))
    if shapes.groups == 1 and shapes.into < BLOCK and not _is_by_points(shapes):
        return Pass(_weight(shapes, into=2 if shapes.is_half else 1), _data(shapes, out=True))
    scratch = 2 * _data(shapes, out=True) // shapes.batch if shapes.is_half and _is_by_points(shapes) else 0
    scratch += _thinned(shapes)
    return Pass(_data(shapes, out=False) + _weight(shapes), _data(shapes, out=True), scratch)


def _is_by_points(shapes: Shapes) -> bool:
    """OneDNN's kernels for a kernel of one; strided ones only in the plane, where the stride divides the extents."""
    if not shapes.is_pointwise or any(shapes.padding) or shapes.groups > 1:
        return False
    divides = all(extent % step == 0 for extent, step in zip(shapes.space, shapes.stride, strict=True))
    return not shapes.is_strided or (len(shapes.space) == 2 and divides)


def _thinned(shapes: Shapes) -> int:
    """The scratchpad of strided kernels of one: the points of one sample that they use, for every thread."""
    if not shapes.is_strided or not _is_by_points(shapes):
        return 0
    return torch.get_num_threads() * _padded(shapes.into) * prod(shapes.reach) * shapes.item


def _by_products(shapes: Shapes, elements: int, copies: int = 0) -> Pass:
    """The matrix-product convolution: everything as it lies, but the result is copied."""
    width = max(shapes.item, 4)
    summed = copies * torch.get_num_threads() * elements * width
    return Pass(0, elements * shapes.item, _patches(shapes) + summed)


def data_layouts(shapes: Shapes) -> Pass:
    """The gradient of the input."""
    if shapes.is_last:
        scratch = _window(shapes, shapes.out, shapes.reach) if shapes.is_strided else 0
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0, scratch)
    if shapes.is_transposed:
        return forward_layouts(shapes.mirrored())
    if shapes.is_depthwise and (len(shapes.space) == 3 or shapes.is_dilated):
        return _by_products(shapes, prod((shapes.batch, shapes.into, *shapes.space)))
    if shapes.is_strided and not shapes.is_depthwise and not shapes.is_half:
        block = min(64, _padded(shapes.into)) if shapes.into < 32 else 32
        weight = _weight(shapes, into=block, out=1)
        sources = _plain(shapes, out=True) + weight
        return Pass(sources, _plain(shapes, out=False), _window(shapes, shapes.out, shapes.reach), is_last=True)
    scratch = 2 * _data(shapes, out=False) // shapes.batch if shapes.is_half and _is_by_points(shapes) else 0
    return Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False), scratch)


def weight_layouts(shapes: Shapes) -> Pass:
    """The gradient of the weight."""
    if shapes.is_last:
        return Pass(shapes.weight * shapes.item, _weight(shapes), _sums(shapes), is_last=True)
    if shapes.is_transposed:
        return weight_layouts(shapes.mirrored())
    dims = len(shapes.space)
    few = shapes.groups == 1 and shapes.into < BLOCK and not _is_by_points(shapes)
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
        return _by_products(shapes, shapes.weight, _REDUCTIONS)
    if first:
        return Pass(_data(shapes, out=True), _weight(shapes, into=1), _sums(shapes, is_first=True))
    block = BLOCK // 2 if few and not shapes.is_half else BLOCK
    sources = _data(shapes, out=True, block=block) + _data(shapes, out=False, block=block)
    return Pass(sources, _weight(shapes, into=block, out=block), _sums(shapes) + _thinned(shapes))


def _sums(shapes: Shapes, *, is_first: bool = False) -> int:
    """The scratchpad of half precision: the weights' gradient in single precision, one sample of both operands.

    Rows are padded: those of the input by what the kernel overhangs, those of the gradient to an even length.
    """
    if not shapes.is_half or shapes.is_depthwise or (_is_by_points(shapes) and len(shapes.space) == 2):
        return 0
    row, reach = shapes.space[-1], shapes.reach[-1]
    padded = _padded(row + 4, 4) if shapes.is_strided else row + 2 * shapes.padding[-1]
    samples = _data(shapes, out=True) * _padded(reach, 2) // reach
    samples += 0 if is_first else _data(shapes, out=False) * padded // row
    weight = _weight(shapes, into=1 if is_first else BLOCK)
    return 2 * weight + torch.get_num_threads() * samples // shapes.batch + 8704
