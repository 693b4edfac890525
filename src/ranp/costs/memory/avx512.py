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
    extents_of,
    is_by_points,
    is_channelwise,
    last_padding,
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

_BARRIERS = 8704
"""Bytes by which threads wait for each other."""
_SHORT = 14
"""Length of a row up to which kernels of one in 16 bits copy what they sum."""


def _block(shapes: Shapes) -> int:
    """Channels in a block; fewer where groups are narrow, none where they do not fill any."""
    if shapes.groups == 1 or is_channelwise(shapes):
        return BLOCK
    into, out = shapes.into // shapes.groups, shapes.out // shapes.groups
    return next((block for block in (BLOCK, BLOCK // 2, BLOCK // 4) if into % block == out % block == 0), 0)


def _data(shapes: Shapes, *, out: bool, block: int = BLOCK) -> int:
    return blocked_data(shapes, min(block, _block(shapes)), out=out)


def _weight(shapes: Shapes, *, into: int = BLOCK, out: int = BLOCK) -> int:
    if is_channelwise(shapes):
        return depthwise_weight(shapes, out)
    block = _block(shapes) or BLOCK
    return blocked_weight(shapes, into=min(into, block), out=min(out, block))


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
    if is_channelwise(shapes) and len(shapes.space) == 3:
        if shapes.is_dilated or _is_converted(shapes, cpu):
            return forward_by_products(shapes, cpu)
        return Pass(data_to_last(shapes, out=False) + _weight(shapes), data_to_last(shapes, out=True), is_last=True)
    if shapes.padding[-1] > shapes.reach[-1] or not _block(shapes):
        return forward_by_products(shapes, cpu)
    if shapes.groups == 1 and shapes.into < BLOCK and not is_by_points(shapes):
        return Pass(_weight(shapes, into=2 if shapes.is_half else 1), _data(shapes, out=True))
    scratch = _wide_results(shapes, cpu, out=True)
    scratch += thinned(shapes, cpu.threads, BLOCK)
    return Pass(_data(shapes, out=False) + _weight(shapes), _data(shapes, out=True), scratch)


def data_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the input."""
    if shapes.is_last:
        scratch = window(shapes, cpu, _stepping_block(shapes)) if shapes.is_strided else 0
        return Pass(_weight(shapes) + shapes.weight * shapes.item, 0, scratch, is_last=True)
    if shapes.is_transposed:
        return forward_layouts(shapes.mirrored(), cpu)
    if _is_stepping(shapes, cpu):
        block = _stepping_block(shapes)
        sources = data_to_last(shapes, out=True) + blocked_weight(shapes, into=block, out=2 if shapes.is_half else 1)
        return Pass(sources, data_to_last(shapes, out=False), window(shapes, cpu, block), is_last=True)
    if shapes.is_dilated and (shapes.is_strided or is_channelwise(shapes)) and not is_by_points(shapes):
        return data_by_products(shapes, cpu)
    if (is_channelwise(shapes) and len(shapes.space) == 3) or _overhangs(shapes) or not _block(shapes):
        return data_by_products(shapes, cpu)
    scratch = _wide_results(shapes, cpu, out=False)
    return Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False), scratch)


def _wide_results(shapes: Shapes, cpu: Cpu, *, out: bool) -> int:
    """The scratchpad of kernels of one in 16 bits: one sample of the result in single precision for every thread."""
    if not shapes.is_half or not is_by_points(shapes):
        return 0
    return 2 * cpu.threads * _data(shapes, out=out) // shapes.batch


def _is_stepping(shapes: Shapes, cpu: Cpu) -> bool:
    """Whether the gradient of the input is computed channels-last: with strides, narrow groups only in 16 bits."""
    if not shapes.is_strided or shapes.is_dilated or _is_converted(shapes, cpu):
        return False
    if shapes.groups == 1 or shapes.out // shapes.groups > BLOCK:
        return True
    return shapes.is_half and (is_channelwise(shapes) or not _block(shapes))


def _overhangs(shapes: Shapes) -> bool:
    """Whether a row is shorter than what the kernel needs beyond its padding."""
    return extents_of(shapes)[-1] - 1 - shapes.padding[-1] > shapes.space[-1]


def weight_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the weight."""
    if shapes.is_last:
        return Pass(shapes.weight * shapes.item, _weight(shapes), _sums(shapes, cpu), is_last=True)
    if shapes.is_transposed:
        return weight_layouts(shapes.mirrored(), cpu)
    if shapes.is_half and is_by_points(shapes):
        sources = _data(shapes, out=True) + _data(shapes, out=False)
        return Pass(sources, _weight(shapes), _sums_by_points(shapes, cpu) + thinned(shapes, cpu.threads, BLOCK))
    dims = len(shapes.space)
    few = shapes.groups == 1 and shapes.into < BLOCK and not is_by_points(shapes)
    is_narrow = shapes.kernel[-1] > 2 * shapes.space[-1]
    first = few and (shapes.out % BLOCK == 0 and not is_narrow if shapes.is_half else shapes.into < 4)
    is_padded = any(shapes.padding)
    if is_channelwise(shapes):
        sizes = zip(shapes.kernel, shapes.stride, strict=True)
        by_products = dims == 3 or shapes.is_dilated or any(size > 3 or size < step for size, step in sizes)
    elif _block(shapes) != BLOCK:
        by_products = True
    elif shapes.is_half:
        gaps = shapes.is_dilated and (shapes.is_strided or (dims == 3 and is_padded))
        by_products = gaps or (few and not first)
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
    sums = _sums(shapes, cpu) if block == BLOCK else 0
    return Pass(sources, _weight(shapes, into=block, out=block), sums + thinned(shapes, cpu.threads, BLOCK))


def _sums(shapes: Shapes, cpu: Cpu, *, is_first: bool = False) -> int:
    """The scratchpad of threads that share the samples: sums of their own, but for one of them in single precision.

    In half precision also one sample of both operands, whose rows are padded: those of the input by what the kernel
    overhangs, those of the gradient to an even length.
    """
    if is_channelwise(shapes) or is_by_points(shapes):
        return 0
    if not shapes.is_half:
        weight = _weight(shapes, into=1 if is_first else BLOCK)
        sample = prod((shapes.into if is_first else padded(shapes.into, BLOCK), *shapes.space)) * shapes.item
        sharing = _sharing(shapes, cpu, sample, _data(shapes, out=True) // shapes.batch, weight)
        return (sharing - 1) * weight + _BARRIERS if sharing > 1 else 0
    row, reach = shapes.space[-1], shapes.reach[-1]
    length = padded(row + shapes.kernel[-1] - 1, 2)
    if shapes.is_strided:
        length = padded(row, 4) + padded(shapes.stride[-1] * max(0, last_padding(shapes)[-1]) + 1, 4)
    gradient = _data(shapes, out=True) * padded(reach, 2) // reach // shapes.batch
    sample = _data(shapes, out=False) * length // row // shapes.batch
    weight = _weight(shapes, into=1 if is_first else BLOCK)
    sharing = _sharing(shapes, cpu, sample, gradient, weight)
    return sharing * (2 * weight + gradient + (0 if is_first else sample)) + _BARRIERS


def _sharing(shapes: Shapes, cpu: Cpu, sample: int, gradient: int, weight: int) -> int:
    """Threads that share samples, with sums of their own; the others share blocks of channels.

    The split is taken by which a thread reads and writes least, as oneDNN weighs it: by the bytes of one sample of the
    input, of the output's gradient, and of the weight.
    """
    jobs = shapes.batch * (shapes.reach[0] if shapes.is_half else 1)
    into, out = (padded(channels // shapes.groups, BLOCK) // BLOCK for channels in (shapes.into, shapes.out))
    of_input, of_gradient, of_weight = 4, 1, 8
    if shapes.is_half:
        scale = shapes.batch * (sample + gradient) / (4 * weight)
        of_input = max(into // out, 1) * (4 if scale < 1 else 1)
        of_gradient, of_weight = max(out // into, 1), max(int(scale), 1)

    def cost(sharing: int, by_out: int, by_into: int) -> float:
        share = shapes.batch * -(-jobs // sharing) / jobs
        some_into, some_out = -(-into // by_into) / into, -(-out // by_out) / out
        operands = of_input * sample * some_into / prod(shapes.stride) + of_gradient * gradient * some_out
        return share * operands + of_weight * weight * some_into * some_out

    splits = [(1, 1, 1)]
    for sharing in range(1, min(cpu.threads, jobs) + 1):
        left = cpu.threads // sharing
        splits += [(sharing, by_out, min(left // by_out, into)) for by_out in range(1, min(left, out) + 1)]
    sharing = min(reversed(splits), key=lambda split: cost(*split))[0]
    return min(jobs, cpu.threads) if sharing > cpu.threads // 2 else sharing


def _sums_by_points(shapes: Shapes, cpu: Cpu) -> int:
    """The same for a kernel of one: sums, and for every thread one sample of both operands, unless rows are long."""
    sums = 2 * _weight(shapes) + 128
    is_long = all(extent > _SHORT for extent in shapes.reach[-2:])
    if is_long and (len(shapes.space) == 2 or shapes.out <= 4 * BLOCK):
        return sums
    channels = padded(shapes.into, BLOCK) + padded(shapes.out, BLOCK)
    return sums + cpu.threads * channels * padded(prod(shapes.reach), 2) * shapes.item + 2 * 128
