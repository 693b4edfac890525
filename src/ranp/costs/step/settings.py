"""The arguments of an operator that are not tensors, as one line of text; and the operator called again from it.

Text, since it can be compared, hashed and stored. Sizes that repeat the shape of a tensor of the call are written as a
reference to it (``"=O0"``: the shape of the first output), so that the same operator at another width has the same text
wherever it can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import torch

from ranp.costs.step.records import Call, Sized
from ranp.errors import UnsupportedError

_SHAPES = frozenset("size self_size input_size input_sizes self_sizes bias_sizes normalized_shape shape sizes".split())
"""Names of list arguments that repeat a shape."""
_COUNTS = frozenset(["N", "C", "HxW"])
"""Names of the arguments by which group normalisation repeats the shape of its first input."""
_TENSOR = "T"


def described(func: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[Sized], outputs: Any) -> str:
    """The text of a call's settings."""
    names = [argument.name for argument in func._schema.arguments]
    positional = [_encoded(value, name, inputs, outputs) for name, value in zip(names, args, strict=False)]
    named = {name: _encoded(value, name, inputs, outputs) for name, value in kwargs.items()}
    return json.dumps([positional, named] if named else [positional], separators=(",", ":"))


def _encoded(value: Any, name: str, inputs: Sequence[Sized], outputs: Sequence[Sized]) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, torch.Tensor):
        return _TENSOR
    if isinstance(value, int | torch.SymInt):
        number = int(value)
        if name in _COUNTS and inputs:
            axis = ("N", "C", "HxW").index(name)
            if _count(axis, inputs[0].shape) == number:
                return f"=N{axis}"
        return number
    if isinstance(value, list | tuple):
        if name in _SHAPES:
            reference = _reference([int(item) for item in value], inputs, outputs)
            if reference:
                return reference
        return [_encoded(item, "", inputs, outputs) for item in value]
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return {"unknown": type(value).__name__}


def _count(axis: int, shape: Sequence[int]) -> int:
    return prod(shape[2:]) if axis == 2 else shape[axis] if axis < len(shape) else -1


def _reference(sizes: list[int], inputs: Sequence[Sized], outputs: Sequence[Sized]) -> str:
    """The first tensor whose shape, or whose last extents, these sizes are."""
    for letter, tensors in (("O", outputs), ("I", inputs)):
        for index, tensor in enumerate(tensors):
            if sizes == list(tensor.shape):
                return f"={letter}{index}"
    for index, tensor in enumerate(inputs):
        if sizes and sizes == list(tensor.shape[-len(sizes) :]):
            return f"=I{index}:{len(sizes)}"
    return ""


def _decoded(value: Any, call: Call, tensors: Iterator[torch.Tensor]) -> Any:
    if value == _TENSOR:
        return next(tensors)
    if isinstance(value, str):
        kind, rest = value[1], value[2:]
        if kind == "N":
            return _count(int(rest), call.inputs[0].shape)
        index, _, last = rest.partition(":")
        shape = (call.outputs if kind == "O" else call.inputs)[int(index)].shape
        return list(shape[-int(last) :] if last else shape)
    if isinstance(value, list):
        return [_decoded(item, call, tensors) for item in value]
    if isinstance(value, dict):
        kind, item = next(iter(value.items()))
        if kind == "text":
            return item
        if kind == "torch":
            return getattr(torch, item)
        if kind == "device":
            return torch.device(item)
        if kind == "complex":
            return complex(*item)
        raise UnsupportedError(f"{call.op} cannot be run again: one of its arguments is a {item}")
    return value


def _drawn(tensor: Sized, device: str) -> torch.Tensor:
    """A real tensor of this size and layout: random numbers, and zeros for integers, which are valid as any index."""
    shape, dtype = tensor.shape, tensor.dtype
    if tensor.scattered:
        return _scattered(shape, dtype, device)
    filled = _filled(shape, dtype, device)
    if not tensor.channels_last:
        return filled
    return filled.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)


def _filled(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, device=device, dtype=torch.float32).to(dtype)
    return torch.zeros(shape, device=device, dtype=dtype)


def _scattered(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every tensor of which only a part is read: along the outermost axis that makes a difference, as a slice is."""
    for axis in range(1, len(shape)):
        wide = _filled((*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]), dtype, device)
        part = wide.narrow(axis, 0, shape[axis])
        if not part.is_contiguous():
            return part
    return _filled(shape, dtype, device)


def rerun(call: Call, *, device: str = "cpu") -> Callable[[], Any]:
    """Makes real tensors for a call and returns a function that runs its operator on them, as often as wanted.

    >>> size = Sized((2, 3), torch.float32)
    >>> rerun(Call("aten.relu.default", (size,), (size,), '[["T"]]', "forward", ""))().shape
    torch.Size([2, 3])

    Raises:
        UnsupportedError: Torch does not know the operator, or an argument cannot be made again.
    """
    space, name, overload = call.op.split(".")
    try:
        func = getattr(getattr(getattr(torch.ops, space), name), overload)
    except AttributeError as error:
        raise UnsupportedError(f"this torch ({torch.__version__}) has no operator {call.op!r}") from error
    tensors = iter([_drawn(tensor, device) for tensor in call.inputs])
    positional, *named = json.loads(call.settings)
    args = [_decoded(value, call, tensors) for value in positional]
    kwargs = {name: _decoded(value, call, tensors) for name, value in (named[0] if named else {}).items()}
    if "device" in kwargs:
        kwargs["device"] = torch.device(device)

    def run() -> Any:
        with torch.no_grad():
            return func(*args, **kwargs)

    return run
