"""An operator of a step trace, called again on real tensors: what kernels do is compared with what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ranp.costs.step import Call, Sized
from ranp.costs.step.settings import _TENSOR, Tag, _count
from ranp.errors import UnsupportedError

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "torch": lambda name: getattr(torch, name),
    "device": torch.device,
    "complex": lambda parts: complex(*parts),
}


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
    if isinstance(value, tuple):
        return [_decoded(item, call, tensors) for item in value]
    if not isinstance(value, Tag):
        return value
    if value.kind not in _DECODERS:
        raise UnsupportedError(f"{call.op} cannot be run again: one of its arguments is a {value.value}")
    return _DECODERS[value.kind](value.value)


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

    Raises:
        UnsupportedError: Torch does not know the operator, or an argument cannot be made again.
    """
    space, name, overload = call.op.split(".")
    try:
        func = getattr(getattr(getattr(torch.ops, space), name), overload)
    except AttributeError as error:
        raise UnsupportedError(f"this torch ({torch.__version__}) has no operator {call.op!r}") from error
    tensors = iter([_drawn(tensor, device) for tensor in call.inputs])
    args = [_decoded(value, call, tensors) for value in call.settings.positional]
    kwargs = {name: _decoded(value, call, tensors) for name, value in call.settings.named}
    if "device" in kwargs:
        kwargs["device"] = torch.device(device)

    def run() -> Any:
        with torch.no_grad():
            return func(*args, **kwargs)

    return run
