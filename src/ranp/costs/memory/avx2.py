"""What oneDNN allocates for a convolution with AVX2: channels in blocks of 8.

Which kernel it takes follows the conditions of its own kernels (oneDNN 3.12 of torch 2.13), checked against its verbose
log over a thousand random convolutions. The kernels that unroll rows refuse padding as wide as a kernel, and the one
for the gradient of the weight any padding in depth: then matrix products take over.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ranp.costs.memory.layouts import (
    PAGE,
    Pass,
    batches,
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

BLOCK = 8
_FLAT = 3
"""Input channels that the gradient of the weight takes as they lie: those of a picture."""
_WIDEST = 13
"""Width of a kernel up to which oneDNN computes the gradient of its weights directly."""
_REGISTERS = 15


def forward_layouts(shapes: Shapes, cpu: Cpu, has_bias: bool = False) -> Pass:
    """The forward pass."""
    if shapes.is_transposed:
        layouts = data_layouts(shapes.mirrored(), cpu)
        return with_bias(shapes, layouts) if has_bias else layouts
    if shapes.is_last:
        out = BLOCK if is_channelwise(shapes) else _broad(shapes.out // shapes.groups)
        scratch = 0 if is_channelwise(shapes) else batches(shapes, cpu)
        return Pass(_weight(shapes, into=1, out=out), 0, scratch, held=_copied_weight(shapes))
    if is_channelwise(shapes) and len(shapes.space) == 3:
        if shapes.is_dilated:
            return forward_by_products(shapes, cpu)
        return Pass(data_to_last(shapes, out=False) + _weight(shapes), data_to_last(shapes, out=True), is_last=True)
    if not is_channelwise(shapes) and not _unrolls(shapes):
        return forward_by_products(shapes, cpu)
    if shapes.into // shapes.groups < BLOCK and not is_channelwise(shapes) and not is_by_points(shapes):
        return Pass(_weight(shapes, into=1), _data(shapes, out=True))
    scratch = thinned(shapes, cpu.threads, BLOCK)
    return Pass(_data(shapes, out=False) + _weight(shapes), _data(shapes, out=True), scratch)


def data_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the input."""
    if shapes.is_transposed:
        return forward_layouts(shapes.mirrored(), cpu)
    if is_channelwise(shapes):
        return _channelwise_data_layouts(shapes, cpu)
    is_stepping = shapes.is_strided and not shapes.is_dilated
    is_stepping = is_stepping and (shapes.groups == 1 or shapes.out // shapes.groups > BLOCK)
    is_unrolled = not shapes.is_strided and (shapes.is_last or _unrolls_back(shapes))
    if not is_stepping and not is_unrolled:
        return replace(data_by_products(shapes, cpu), held=_copied_weight(shapes))
    if not is_stepping and not shapes.is_last:
        return Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False))
    weight = _weight(shapes, into=_broad(shapes.into // shapes.groups), out=1)
    scratch = window(shapes, cpu, BLOCK) if shapes.is_strided else batches(shapes, cpu)
    result = 0 if shapes.is_last else data_to_last(shapes, out=False)
    return Pass(data_to_last(shapes, out=True) + weight, result, scratch, is_last=True, held=_copied_weight(shapes))


def _channelwise_data_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    if len(shapes.space) == 2 and not shapes.is_dilated:
        if shapes.is_last:
            return Pass(_weight(shapes), 0)
        return Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False))
    if shapes.is_last and not shapes.is_strided:  # a block of its own for every channel
        return Pass(blocked_weight(shapes, into=BLOCK, out=BLOCK), 0)
    return data_by_products(shapes, cpu)


def weight_layouts(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the weight."""
    if shapes.is_transposed:
        return weight_layouts(shapes.mirrored(), cpu)
    is_plane = len(shapes.space) == 2 and len(set(shapes.stride)) == 1 and not shapes.is_dilated
    is_small = is_channelwise(shapes) and is_plane and all(size in (2, 3) for size in shapes.kernel)
    is_direct = is_small or is_by_points(shapes) or _sums_directly(shapes)
    if not is_direct:
        return replace(weight_by_products(shapes, cpu), held=_copied_weight(shapes))
    if shapes.is_last:
        weight = _weight(shapes) if is_small else blocked_weight(shapes, into=BLOCK, out=BLOCK)
        return Pass(shapes.weight * shapes.item, weight, is_last=True, held=_copied_weight(shapes))
    if shapes.into == _FLAT and shapes.groups == 1 and not is_by_points(shapes):
        return Pass(_data(shapes, out=True), _weight(shapes, into=1), _shared_sums(shapes, cpu, _FLAT))
    scratch = thinned(shapes, cpu.threads, BLOCK)
    if not is_small and not is_by_points(shapes):
        scratch = _shared_sums(shapes, cpu, BLOCK)
    return Pass(_data(shapes, out=True) + _data(shapes, out=False), _weight(shapes), scratch)


def _data(shapes: Shapes, *, out: bool) -> int:
    return blocked_data(shapes, BLOCK, out=out)


def _weight(shapes: Shapes, *, into: int = BLOCK, out: int = BLOCK) -> int:
    return depthwise_weight(shapes, out) if is_channelwise(shapes) else blocked_weight(shapes, into=into, out=out)


def _shared_sums(shapes: Shapes, cpu: Cpu, into: int) -> int:
    """The scratchpad of threads that share the sum of a block of the weight's gradient, if blocks do not go round.

    Threads are split into groups, each with as many blocks; the split with the least work for a thread is taken.
    """
    block = into * BLOCK * prod(shapes.kernel)
    per_group = -(-shapes.into // shapes.groups // into) * -(-shapes.out // shapes.groups // BLOCK)
    blocks, depth = shapes.groups * per_group, shapes.batch * prod(shapes.reach[:-2])
    most = max(1, 3 * 5 * 5 * 16 * 16 // block)
    least, shared = blocks * block * depth, 0
    for count in range(max(1, blocks // cpu.threads), max(blocks, 2)):
        groups = min(blocks // count, cpu.threads) or 1
        together, jobs = min(cpu.threads // groups, depth), -(-blocks // groups)
        work = block * jobs * (-(-depth // together) + (together != 1))
        if work < least and (together == 1 or jobs <= most):
            least, shared = work, (together - 1) * groups * jobs * block
    return shared * shapes.item + (3 * PAGE if shared else 0)


def _copied_weight(shapes: Shapes) -> int:
    """Torch brings the weight to the layout of the data first."""
    is_either = shapes.is_pointwise or shapes.is_depthwise
    if not shapes.is_last or shapes.is_last_weight or is_either:
        return 0
    return shapes.weight * shapes.item


def _broad(channels: int) -> int:
    """Channels in a block of the kernels that compute channels-last: up to four registers."""
    if channels <= 4 * BLOCK:
        return padded(channels, BLOCK)
    return min((4 * BLOCK, 3 * BLOCK), key=lambda block: padded(channels, block))


def _covers(shapes: Shapes) -> bool:
    """Whether the kernel always meets the input: no padding is as wide as it is."""
    axes = zip(extents_of(shapes), shapes.padding, last_padding(shapes), strict=True)
    return all(extent > pad and extent > end for extent, pad, end in axes)


def _fills_blocks(shapes: Shapes) -> bool:
    """Only the channels of a single group can be padded."""
    if shapes.groups == 1:
        return True
    return shapes.into // shapes.groups % BLOCK == 0 and shapes.out // shapes.groups % BLOCK == 0


def _unrolls(shapes: Shapes) -> bool:
    """The conditions of the forward kernel."""
    into, out = shapes.into // shapes.groups, shapes.out // shapes.groups
    if shapes.groups > 1 and (out % BLOCK or (into >= BLOCK and into % BLOCK)):
        return False
    return _covers(shapes) and shapes.padding[-1] <= min(3, shapes.reach[-1])


def _unrolls_back(shapes: Shapes) -> bool:
    """The conditions of the kernel for the gradient of the input, which has to find room in registers for a row."""
    if not _covers(shapes) or not _fills_blocks(shapes):
        return False
    row, overhang, end = shapes.space[-1], extents_of(shapes)[-1] - 1, last_padding(shapes)[-1]
    blocks = padded(shapes.into // shapes.groups, BLOCK) // BLOCK
    choices = [
        (count * points, points)
        for count in range(1, 5)
        for points in range(1, min(_REGISTERS // (count + 1), row) + 1)
        if blocks % count == 0 and (points == row or overhang - shapes.padding[-1] <= points)
    ]
    if not choices:
        return False
    points = max(choices)[1]
    return overhang - end - row % points <= points and (row == points or end + row % points >= 0)


def _sums_directly(shapes: Shapes) -> bool:
    """The conditions of the kernel for the gradient of the weight."""
    if shapes.is_dilated or shapes.kernel[-1] > _WIDEST or not _covers(shapes):
        return False
    if not shapes.is_last and not _fills_blocks(shapes):
        return False
    if len(shapes.space) == 3 and (shapes.padding[0] or last_padding(shapes)[0] > 0):
        return False
    return all(size <= extent for size, extent in zip(shapes.kernel[:-1], shapes.space[:-1], strict=True))
