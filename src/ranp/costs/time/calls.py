"""What the time of a call depends on: which table it is in, and where.

Three kinds. *Free* calls make a view or an empty tensor: nothing but the cost of calling. *Heavy* ones (convolutions,
matrix products) have a table of their own for every size of their other dimensions, over widths. For all others time
goes with the amount of data: pointwise operators have one curve whatever the shapes, the rest one per spatial size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import torch

from ranp.costs.step import Call, Settings, Sized

_CONVOLUTION = "aten.convolution.default"
_CONVOLUTION_BACKWARD = "aten.convolution_backward.default"
_PRODUCTS = {"aten.mm.default": 0, "aten.addmm.default": 1, "aten.bmm.default": 0, "aten.baddbmm.default": 1}
"""Matrix products, and where in their inputs the two matrices begin."""
_EMPTY = frozenset(["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view"])
_LATTICE = (1, *(4**power for power in range(5, 11)))
"""Elements at which pointwise operators are measured: below 1024 of them the call is all there is."""


@dataclass(frozen=True, slots=True)
class Heavy:
    """A call whose time depends on several widths.

    Attributes:
        key: Its table.
        widths: Where it stands in it. Convolution: input and output channels, after the number of groups if there are
            several, whose channels they then are. Matrix product: rows, inner extent, columns.
        least: How far each of them may fall.
    """

    key: str
    widths: tuple[int, ...]
    least: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Light:
    """A call whose time depends on how much data it reads and writes.

    Attributes:
        key: Its curve.
        kind: The curve of all calls of the operator, for shapes that have no curve of their own.
        amount: Where it stands on it, in elements.
        is_pointwise: Whether the amount is that of the largest tensor, and shapes do not matter.
    """

    key: str
    kind: str
    amount: int
    is_pointwise: bool


def placed(call: Call) -> Heavy | Light | None:
    """The table of a call and its place in it; None if it is free."""
    op, settings, inputs, outputs = call.op, call.settings, call.inputs, call.outputs
    if op in (_CONVOLUTION, _CONVOLUTION_BACKWARD):
        return _convolution(call)
    if op in _PRODUCTS:
        return _product(call)
    if _is_free(op):
        return None
    types = ",".join(_type(tensor) for tensor in inputs)
    kind = f"{op} {types}"
    largest = max((prod(tensor.shape) for tensor in (*inputs, *outputs)), default=0)
    if _is_pointwise(op) and largest and all(_is_plain(tensor, largest) for tensor in inputs):
        roles = "".join("1" if prod(tensor.shape) == 1 else "n" for tensor in inputs)
        return Light(f"{kind} {settings.text(is_blank=True)} {roles}", kind, largest, True)
    shapes = " ".join(_shape_text(tensor.shape) for tensor in (*inputs, *outputs))
    amount = sum(prod(tensor.shape) for tensor in (*inputs, *outputs))
    return Light(f"{kind} {settings.text(is_blank=True)} {shapes}", kind, amount, False)


def _type(tensor: Sized) -> str:
    layout = "~" if tensor.scattered else "^" if tensor.channels_last else ""
    return str(tensor.dtype).removeprefix("torch.") + layout


def _is_plain(tensor: Sized, largest: int) -> bool:
    return not tensor.scattered and prod(tensor.shape) in (1, largest)


def _shape_text(shape: Sequence[int]) -> str:
    """A shape without its channels: the second extent, or the only one."""
    channels = 0 if len(shape) == 1 else 1
    return "x".join("*" if axis == channels else str(extent) for axis, extent in enumerate(shape))


@lru_cache(maxsize=4096)
def _operator(op: str) -> Any:
    try:
        space, name, overload = op.split(".")
        return getattr(getattr(getattr(torch.ops, space), name), overload)
    except (AttributeError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _is_free(op: str) -> bool:
    func = _operator(op)
    if op.split(".")[1:2] and op.split(".")[1] in _EMPTY:
        return True
    returns = [] if func is None else func._schema.returns
    return bool(returns) and all(result.alias_info is not None and not result.alias_info.is_write for result in returns)


@lru_cache(maxsize=4096)
def _is_pointwise(op: str) -> bool:
    func = _operator(op)
    return func is not None and torch.Tag.pointwise in func.tags


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution, forward or backward, by its parts."""

    batch: int
    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    groups: int
    is_transposed: bool
    inward: int
    """Input channels of a group."""
    outward: int


def _parts(call: Call) -> _Convolution:
    """Sizes from the tensors: where only shapes were cut, a depthwise layer's settings still tell the full groups."""
    given = call.settings.positional
    if call.op == _CONVOLUTION:
        data, weight, result = call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape
        is_transposed, groups = given[6], given[8]
    else:
        result, data, weight = (tensor.shape for tensor in call.inputs[:3])
        is_transposed, groups = given[7], given[9]
    if groups > 1:
        groups = (result if is_transposed else data)[1] // weight[1]
    outward = weight[1] if is_transposed else weight[0] // groups
    inward = data[1] // groups
    return _Convolution(data[0], data[2:], result[2:], weight[2:], groups, bool(is_transposed), inward, outward)


def _with_groups(call: Call, groups: int | str) -> Settings:
    return call.settings.with_argument(8 if call.op == _CONVOLUTION else 9, groups)


def _convolution(call: Call) -> Heavy:
    op, parts, types = call.op, _parts(call), ",".join(map(_type, call.inputs))
    space, kernel = "x".join(map(str, (parts.batch, *parts.input))), "x".join(map(str, parts.kernel))
    channels = (parts.inward, parts.outward)
    if parts.groups == 1:
        return Heavy(f"{op} {types} {space} {kernel} {call.settings.text()}", channels, (1, 1))
    # Depthwise layers lose groups, all others lose channels of their groups.
    least = (1, *channels) if parts.inward == 1 else (parts.groups, 1, 1)
    text = _with_groups(call, "g").text()
    return Heavy(f"{op} {types} {space} {kernel} {text}", (parts.groups, *channels), least)


def _product(call: Call) -> Heavy:
    left, right = call.inputs[_PRODUCTS[call.op] :][:2]
    types = ",".join(map(_type, call.inputs))
    ranks = ",".join(str(len(tensor.shape)) for tensor in call.inputs)
    batch = left.shape[0] if len(left.shape) == 3 else 1
    key = f"{call.op} {types} {ranks} {batch} {call.settings.text(is_blank=True)}"
    return Heavy(key, (*left.shape[-2:], right.shape[-1]), (1,) * 3)


def resized(call: Call, widths: tuple[int, ...]) -> Call:
    """A heavy call at other widths."""
    if call.op in _PRODUCTS:
        return _resized_product(call, widths)
    parts = _parts(call)
    groups, inward, outward = (1, *widths) if len(widths) == 2 else widths
    settings = call.settings if len(widths) == 2 else _with_groups(call, groups)
    data = (parts.batch, inward * groups, *parts.input)
    out = (parts.batch, outward * groups, *parts.output)
    weight = (
        (inward * groups, outward, *parts.kernel) if parts.is_transposed else (outward * groups, inward, *parts.kernel)
    )
    bias = (outward * groups,)
    if call.op == _CONVOLUTION:
        inputs, outputs = _shaped(call.inputs, (data, weight, bias)), _shaped(call.outputs, (out,))
    else:
        mask = settings.positional[10]
        made = [shape for shape, is_made in zip((data, weight, bias), mask, strict=True) if is_made]
        if len(call.outputs) == 3:  # what is not asked for may still be listed, without elements
            made = [shape if is_made else () for shape, is_made in zip((data, weight, bias), mask, strict=True)]
        inputs, outputs = _shaped(call.inputs, (out, data, weight)), _shaped(call.outputs, made)
    return replace(call, inputs=inputs, outputs=outputs, settings=settings)


def _shaped(tensors: tuple[Sized, ...], shapes: Sequence[tuple[int, ...]]) -> tuple[Sized, ...]:
    return tuple(replace(tensor, shape=shape) for tensor, shape in zip(tensors, shapes, strict=False))


def _resized_product(call: Call, widths: tuple[int, ...]) -> Call:
    rows, inner, columns = widths
    first = _PRODUCTS[call.op]
    stack = call.inputs[first].shape[:-2]
    shapes = [(*stack, rows, inner), (*stack, inner, columns)]
    out = (*stack, rows, columns)
    if first:  # what is added: a row for all, or as large as the result
        added = call.inputs[0].shape
        old = (call.inputs[1].shape[-2], call.inputs[2].shape[-1])
        swap = {0: rows, 1: columns}
        last = [
            extent if extent == 1 else swap[axis] if extent == old[axis] else extent
            for axis, extent in zip((0, 1)[-min(len(added), 2) :], added[-2:], strict=True)
        ]
        shapes.insert(0, (*added[:-2], *last))
    return replace(call, inputs=_shaped(call.inputs, shapes), outputs=_shaped(call.outputs, [out]))


def last_group(call: Call) -> Call | None:
    """A depthwise call of which one channel is left, an ordinary convolution then; None for any other call."""
    place = placed(call)
    if not isinstance(place, Heavy) or len(place.widths) < 3 or call.op in _PRODUCTS or place.widths[1] > 1:
        return None
    return resized(call, (1, *place.widths[1:]))


def pointwise_amounts(amount: int, known: int) -> list[int]:
    """Elements at which to measure a pointwise operator so that up to ``amount`` of them are covered.

    Args:
        amount: The largest number asked for.
        known: The largest that was measured already.
    """
    wanted = [number for number in _LATTICE if number < amount]
    while wanted and _LATTICE[-1] <= wanted[-1] < amount / 4:
        wanted.append(4 * wanted[-1])
    if amount <= known:
        return wanted
    return [*wanted, next((number for number in _LATTICE if number >= amount), amount)]


def pointwise_at(call: Call, amount: int) -> Call:
    """A pointwise call on that many elements."""
    largest = max(prod(tensor.shape) for tensor in (*call.inputs, *call.outputs))

    def flat(tensor: Sized) -> Sized:
        shape = tensor.shape if prod(tensor.shape) == 1 < largest else (amount,)
        return replace(tensor, shape=shape, channels_last=False)

    return replace(call, inputs=tuple(map(flat, call.inputs)), outputs=tuple(map(flat, call.outputs)))


def thinned(call: Call, divisor: int) -> Call | None:
    """A light call at a fraction of its channels; None if they do not divide."""
    tensors = (*call.inputs, *call.outputs)
    channels = {tensor.shape[1] for tensor in tensors if len(tensor.shape) > 1 and tensor.shape[1] > 1}
    if not channels or any(extent % divisor for extent in channels):
        return None

    def thin(tensor: Sized) -> Sized:
        axis = 0 if len(tensor.shape) == 1 else 1
        shape = list(tensor.shape)
        if axis < len(shape) and shape[axis] in channels:
            shape[axis] //= divisor
        return replace(tensor, shape=tuple(shape))

    return replace(call, inputs=tuple(map(thin, call.inputs)), outputs=tuple(map(thin, call.outputs)))


def kernel_of(call: Call, widths: tuple[int, ...]) -> str:
    """The kernel that torch would take for a heavy call at these widths; empty where it does not tell."""
    if call.op not in (_CONVOLUTION, _CONVOLUTION_BACKWARD):
        return ""
    at = resized(call, widths)
    given = at.settings.positional
    data, weight = at.inputs[:2] if call.op == _CONVOLUTION else at.inputs[1:3]
    stride, padding, dilation, is_transposed, extra, groups = given[3:9] if call.op == _CONVOLUTION else given[4:10]
    # One element seen as a tensor of that size: the choice looks at shapes only.
    seen, seen_weight = (torch.empty(1, dtype=tensor.dtype).expand(tensor.shape) for tensor in (data, weight))
    try:
        backend = torch._C._select_conv_backend(
            seen, seen_weight, None, stride, padding, dilation, is_transposed, extra, groups
        )
    except (AttributeError, RuntimeError, TypeError):
        return ""
    return str(backend).rpartition(".")[2]
