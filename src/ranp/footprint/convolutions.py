"""What a convolution on the CPU allocates beyond its results: columns of patches, or oneDNN's layouts and scratchpad.

Torch sends a convolution to oneDNN or to a kernel of its own. OneDNN computes in layouts in which channels come in
blocks of 16 (8 without AVX-512), so that inputs, weights and results are reordered, padded to whole blocks, while it
runs; where it computes channels-last, the result is reordered twice. Torch's own kernels unfold the input into columns.
The choices below are those of torch 2.13 with oneDNN 3.12 as its verbose log shows them, over about two thousand
random convolutions; the scratchpads are fitted to what was measured there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod

import torch

from ranp.rehearsal import Call, Sized

BLOCK = 16
"""Channels per block of oneDNN's layouts."""
_OWN_BELOW = 20480
"""Elements of one sample without its last axis up to which torch keeps a batch of one to itself."""
_REDUCTIONS = 4
"""Copies of the weights' gradient that oneDNN's matrix-product convolution adds up."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """A convolution as both passes see it: sizes in elements, ``into`` and ``out`` for the data.

    Attributes:
        batch: Samples.
        into: Channels of the input.
        out: Channels of the output.
        space: Extents of the input.
        reach: Extents of the output.
        kernel: Extents of the kernel.
        stride: Steps of the kernel.
        dilation: Gaps of the kernel.
        groups: Independent groups of channels.
        is_transposed: A transposed convolution.
        weight: Elements of the weight.
        item: Bytes of an element.
        dtype: Type of an element.
        is_last: The data lie with their channels last.
    """

    batch: int
    into: int
    out: int
    space: tuple[int, ...]
    reach: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    is_transposed: bool
    weight: int
    dtype: torch.dtype
    is_last: bool

    @property
    def item(self) -> int:
        return self.dtype.itemsize

    @property
    def is_half(self) -> bool:
        return self.item == 2

    @property
    def is_strided(self) -> bool:
        return any(step != 1 for step in self.stride)

    @property
    def is_dilated(self) -> bool:
        return any(gap != 1 for gap in self.dilation)

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.into

    @property
    def is_pointwise(self) -> bool:
        return prod(self.kernel) == 1

    def mirrored(self) -> Shapes:
        """The ordinary convolution of which this transposed one is the gradient."""
        return Shapes(
            self.batch, self.out, self.into, self.reach, self.space, self.kernel, self.stride, self.padding,
            self.dilation, self.groups, False, self.weight, self.dtype, self.is_last,
        )  # fmt: skip


def forward_transient(call: Call) -> int:
    """Bytes beyond the output at the worst moment of ``aten.convolution``."""
    x, weight, *_ = call.inputs
    y = call.outputs[0]
    shapes = _shapes(x, weight, y, json.loads(call.settings)[0][3:9])
    copies = _copies(x, weight)
    if not goes_to_onednn(shapes):
        return copies + _own_forward(shapes, y.bytes, len(call.inputs) > 2)
    return copies + _peak_of_pass(_forward_layouts(shapes, len(call.inputs) > 2), y.bytes) - y.bytes


def backward_transient(call: Call) -> int:
    """Bytes beyond the gradients at the worst moment of ``aten.convolution_backward``."""
    grad, x, weight, *_ = call.inputs
    arguments = json.loads(call.settings)[0]
    wants_data, wants_weight, wants_bias = arguments[10]
    shapes = _shapes(x, weight, grad, arguments[4:10])
    copies = _copies(grad, x, weight)
    data = x.bytes if wants_data else 0
    bias = shapes.out * shapes.item if wants_bias else 0
    weights = weight.bytes if wants_weight else 0
    made = data + weights + bias
    if not goes_to_onednn(shapes):
        return copies + _own_backward(shapes, data, weights, bias)
    peak = 0
    if wants_data:
        peak = _peak_of_pass(_data_layouts(shapes), data)
    if wants_weight or wants_bias:
        peak = max(peak, data + _peak_of_pass(_weight_layouts(shapes), weight.bytes) + 2 * bias)
    return copies + max(0, peak - made)


def _shapes(x: Sized, weight: Sized, y: Sized, arguments: list[object]) -> Shapes:
    stride, padding, dilation, is_transposed, _, groups = arguments
    dims = len(x.shape) - 2
    kernel = weight.shape[2:]

    def full(values: object) -> tuple[int, ...]:
        numbers = [int(value) for value in values]  # type: ignore[attr-defined]
        return tuple(numbers * dims if len(numbers) == 1 else numbers)

    return Shapes(
        x.shape[0], x.shape[1], y.shape[1], x.shape[2:], y.shape[2:], kernel, full(stride), full(padding),
        full(dilation), int(groups), bool(is_transposed), prod(weight.shape), x.dtype,  # type: ignore[call-overload]
        x.channels_last or weight.channels_last,
    )  # fmt: skip


def _copies(*tensors: Sized) -> int:
    """Inputs that kernels make contiguous first."""
    return sum(tensor.bytes for tensor in tensors if tensor.scattered)


def goes_to_onednn(shapes: Shapes) -> bool:
    """Torch's own choice (``ConvParams::use_mkldnn``)."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:  # type: ignore[no-untyped-call]
        return False
    if shapes.dtype in (torch.bfloat16, torch.float16):
        return True
    if shapes.dtype is not torch.float32:
        return False
    kernel = shapes.kernel
    last = kernel[-1] != 1 or (len(kernel) > 1 and kernel[-2] != 1)
    is_work = shapes.is_strided or shapes.is_dilated or shapes.batch >= 16 or last or torch.get_num_threads() > 1
    front = shapes.batch * shapes.into * prod(shapes.space[:2])
    large = len(kernel) > 1 and kernel[-1] > 3 and kernel[-2] > 3
    return is_work and (shapes.groups > 1 or large or shapes.batch > 1 or front > _OWN_BELOW)


# --- torch's own kernels -------------------------------------------------------------------------------------------


def _columns(shapes: Shapes) -> int:
    """Bytes of the patches of a whole batch; nothing is unfolded for a kernel of one."""
    if shapes.is_pointwise and not shapes.is_strided and not any(shapes.padding):
        return 0
    if shapes.is_transposed:
        return shapes.out // shapes.groups * prod(shapes.kernel) * prod(shapes.space) * shapes.item
    samples = 1 if shapes.is_dilated else shapes.batch
    return samples * shapes.into // shapes.groups * prod(shapes.kernel) * prod(shapes.reach) * shapes.item


def _own_forward(shapes: Shapes, result: int, has_bias: bool) -> int:
    joined = result if shapes.groups > 1 else 0  # the results of the groups, before they are joined
    ones = prod(shapes.reach) * shapes.item if shapes.is_transposed and has_bias else 0
    return joined + _columns(shapes) + ones


def _own_backward(shapes: Shapes, data: int, weights: int, bias: int) -> int:
    columns = _columns(shapes)
    joined = data + weights + bias if shapes.groups > 1 else 0
    patches = columns or (data // shapes.groups if len(shapes.space) == 3 else 0)
    peak = max(data + patches if data else 0, data + weights + bias + columns)
    return max(joined, peak - data - weights - bias)


# --- oneDNN --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pass:
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


def _peak_of_pass(layouts: _Pass, plain: int) -> int:
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
    channels = _padded(shapes.into // groups, into) * _padded(shapes.out // groups, out)
    return groups * channels * prod(shapes.kernel) * shapes.item


def _window(shapes: Shapes, channels: int, space: tuple[int, ...]) -> int:
    """The scratchpad of the channels-last kernels: a padded copy of one sample's operand for every thread."""
    overhang = [
        (size - 1) // step for size, step in zip(shapes.kernel, shapes.stride, strict=True)
    ]
    extents = prod(extent + more for extent, more in zip(space, overhang, strict=True))
    return torch.get_num_threads() * (32792 + -(-channels * extents * shapes.item // 4096) * 4096)


def _patches(shapes: Shapes) -> int:
    """The scratchpad of the matrix-product convolution: the patches of one plane."""
    plane = prod(shapes.reach[-2:])
    return torch.get_num_threads() * plane * shapes.into // shapes.groups * prod(shapes.kernel) * shapes.item + 256


def _forward_layouts(shapes: Shapes, has_bias: bool = False) -> _Pass:
    if shapes.is_transposed:
        layouts = _data_layouts(shapes.mirrored())
        if (shapes.is_strided and not shapes.is_half) or not has_bias:
            return layouts
        return _Pass(layouts.sources, layouts.result, _data(shapes, out=True) * 4 // shapes.item)
    if shapes.is_depthwise and len(shapes.space) == 3:
        if shapes.is_dilated or shapes.is_half:
            return _by_products(shapes, prod((shapes.batch, shapes.out, *shapes.reach)))
        return _Pass(_plain(shapes, out=False) + _weight(shapes), _plain(shapes, out=True), is_last=True)
    if any(size > 6 and extent < 5 for size, extent in zip(shapes.kernel, shapes.space, strict=True)):
        return _by_products(shapes, prod((shapes.batch, shapes.out, *shapes.reach)))
    if shapes.groups == 1 and shapes.into < BLOCK and not _is_by_points(shapes):
        return _Pass(_weight(shapes, into=2 if shapes.is_half else 1), _data(shapes, out=True))
    scratch = 2 * _data(shapes, out=True) // shapes.batch if shapes.is_half and _is_by_points(shapes) else 0
    return _Pass(_data(shapes, out=False) + _weight(shapes), _data(shapes, out=True), scratch)


def _is_by_points(shapes: Shapes) -> bool:
    """OneDNN's kernels for a kernel of one; strided ones only in the plane, where the stride divides the extents."""
    if not shapes.is_pointwise or any(shapes.padding) or shapes.groups > 1:
        return False
    divides = all(extent % step == 0 for extent, step in zip(shapes.space, shapes.stride, strict=True))
    return not shapes.is_strided or (len(shapes.space) == 2 and divides)


def _by_products(shapes: Shapes, elements: int, copies: int = 0) -> _Pass:
    """The matrix-product convolution: everything as it lies, but the result is copied."""
    width = max(shapes.item, 4)
    summed = copies * torch.get_num_threads() * elements * width
    return _Pass(0, elements * shapes.item, _patches(shapes) + summed)


def _data_layouts(shapes: Shapes) -> _Pass:
    if shapes.is_transposed:
        return _forward_layouts(shapes.mirrored())
    if shapes.is_depthwise and (len(shapes.space) == 3 or shapes.is_dilated):
        return _by_products(shapes, prod((shapes.batch, shapes.into, *shapes.space)))
    if shapes.is_strided and not shapes.is_depthwise and not shapes.is_half:
        block = min(64, _padded(shapes.into)) if shapes.into < 32 else 32
        weight = _weight(shapes, into=block, out=1)
        sources = _plain(shapes, out=True) + weight
        return _Pass(sources, _plain(shapes, out=False), _window(shapes, shapes.out, shapes.reach), is_last=True)
    scratch = 2 * _data(shapes, out=False) // shapes.batch if shapes.is_half and _is_by_points(shapes) else 0
    return _Pass(_data(shapes, out=True) + _weight(shapes), _data(shapes, out=False), scratch)


def _weight_layouts(shapes: Shapes) -> _Pass:
    if shapes.is_transposed:
        return _weight_layouts(shapes.mirrored())
    dims = len(shapes.space)
    few = shapes.groups == 1 and shapes.into < BLOCK and not _is_by_points(shapes)
    first = few and shapes.into < 4
    is_padded = any(shapes.padding)
    if shapes.is_depthwise:
        by_products = dims == 3 or shapes.is_dilated or any(size != 3 for size in shapes.kernel)
    elif dims == 3:
        tight = any(0 < pad and extent < pad + 2 for extent, pad in zip(shapes.space, shapes.padding, strict=True))
        by_products = tight or shapes.is_dilated or (few and not first and is_padded)
    else:
        by_products = few and not first and shapes.is_dilated
    if by_products:
        return _by_products(shapes, shapes.weight, _REDUCTIONS)
    if first:
        return _Pass(_data(shapes, out=True), _weight(shapes, into=1), _sums(shapes, into=1))
    block = BLOCK // 2 if few and not shapes.is_half else BLOCK
    sources = _data(shapes, out=True, block=block) + _data(shapes, out=False, block=block)
    return _Pass(sources, _weight(shapes, into=block, out=block), _sums(shapes))


def _sums(shapes: Shapes, into: int = BLOCK) -> int:
    """The scratchpad of half precision: the weights' gradient in single precision, one sample of both operands."""
    if not shapes.is_half or shapes.is_depthwise or _is_by_points(shapes):
        return 0
    samples = (_data(shapes, out=True) + _data(shapes, out=False) * 17 // 16) // shapes.batch
    return _weight(shapes, into=into) * 2 + torch.get_num_threads() * samples
