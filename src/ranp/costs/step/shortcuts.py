"""Results of the commonest operators on data-free tensors, made directly.

``FakeTensorMode`` works out every result by running torch's decompositions on it, which takes milliseconds for a norm.
What is here gives the same shapes, types and layouts in microseconds; everything else goes to torch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ranp.running.dataless import SAME_PAIR, SAME_TYPE

_GRADIENTS = frozenset(
    "threshold_backward leaky_relu_backward elu_backward gelu_backward silu_backward sigmoid_backward tanh_backward "
    "hardtanh_backward mish_backward softplus_backward hardswish_backward".split()
)
_INPLACE = frozenset("add_ sub_ mul_ div_ lerp_ addcmul_ addcdiv_ relu_ leaky_relu_ elu_ hardtanh_ sigmoid_".split())


@cache
def _name(func: Any) -> str:
    name: str = func._schema.name
    return name.removeprefix("aten::") if name.startswith("aten::") and func._overloadname != "out" else ""


def shortcut(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result, or None where torch must work it out."""
    name = _name(func)
    first = args[0] if args else None
    if name in _NORMS and not kwargs:
        return _NORMS[name](args) if isinstance(first, FakeTensor) and first.fake_device.type == "cpu" else None
    if not isinstance(first, FakeTensor) or not _is_plain(first):
        return None
    if name in _INPLACE:
        return first if _fits(first, args[1:]) else None
    if name in SAME_TYPE or name in SAME_PAIR or name in _GRADIENTS:
        if set(kwargs) - {"alpha"} or not _fits(first, args[1:], exactly=True):
            return None
        return _like(first)
    return None


def _is_plain(x: Any) -> bool:
    return isinstance(x, FakeTensor) and x.dtype.is_floating_point and x.is_contiguous()


def _fits(first: FakeTensor, others: tuple[Any, ...], *, exactly: bool = False) -> bool:
    """True if the result is like the first: the others have its shape, type and layout, or are numbers."""
    for other in others:
        if isinstance(other, Tensor):
            same = _is_plain(other) and other.shape == first.shape and other.dtype == first.dtype
            if not same:
                return False
        elif isinstance(other, complex | list | tuple) or (exactly and other is None):
            return False
    return True


def _made(like: FakeTensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> FakeTensor:
    with torch._C._DisableTorchDispatch():
        plain = torch.empty(shape, dtype=dtype or like.dtype, device="meta")
    return FakeTensor(like.fake_mode, plain, like.fake_device)


def _like(x: FakeTensor) -> FakeTensor:
    return _made(x, tuple(x.shape))


def _statistics(x: FakeTensor, tensors: tuple[Any, ...]) -> torch.dtype | None:
    """The type of a norm's statistics: that of its parameters, which may be wider; None if torch must work it out.

    Torch's data-free kernels keep the input's type, its kernels for the CPU do not.
    """
    dtypes = {t.dtype for t in tensors if t is not None}
    if x.dim() < 2 or len(dtypes) > 1 or not all(t is None or _is_plain(t) for t in tensors):
        return None
    dtype = next(iter(dtypes), x.dtype)
    return dtype if dtype in (x.dtype, torch.float32) else None


def _batch_norm(args: tuple[Any, ...]) -> Any:
    x, *parameters, is_training, _, _ = args
    dtype = _statistics(x, tuple(parameters))
    if not is_training or not _is_plain(x) or dtype is None:
        return None
    return _like(x), _made(x, (x.shape[1],), dtype), _made(x, (x.shape[1],), dtype)


def _batch_norm_backward(args: tuple[Any, ...]) -> Any:
    grad, x, *parameters, is_training, _, wanted = args
    if not is_training or not _is_plain(x) or not _is_plain(grad):
        return None
    dtype = _statistics(x, tuple(parameters))
    return None if dtype is None else _gradients(x, parameters[0], wanted, (x.shape[1],), dtype)


def _group_norm(args: tuple[Any, ...]) -> Any:
    x, weight, bias, batch, _, _, groups, _ = args
    dtype = _statistics(x, (weight, bias))
    if not _is_plain(x) or dtype is None:
        return None
    return _like(x), _made(x, (batch, groups), dtype), _made(x, (batch, groups), dtype)


def _group_norm_backward(args: tuple[Any, ...]) -> Any:
    _, x, mean, rstd, weight, _, channels, _, _, wanted = args
    dtype = _statistics(x, (mean, rstd, weight))
    return None if not _is_plain(x) or dtype is None else _gradients(x, weight, wanted, (channels,), dtype)


def _layer_norm(args: tuple[Any, ...]) -> Any:
    x, shape, weight, bias, _ = args
    dtype = _statistics(x, (weight, bias))
    if dtype is None:
        return None
    outer = (*x.shape[: x.dim() - len(shape)], *[1] * len(shape))
    return _like(x), _made(x, outer, dtype), _made(x, outer, dtype)


def _layer_norm_backward(args: tuple[Any, ...]) -> Any:
    _, x, shape, mean, rstd, weight, bias, wanted = args
    dtype = _statistics(x, (mean, rstd, weight, bias))
    return None if dtype is None else _gradients(x, weight, wanted, tuple(shape), dtype)


def _gradients(x: FakeTensor, weight: Any, wanted: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """Those of input, weight and bias; where there is no weight, torch works them out."""
    if weight is None and any(wanted[1:]):
        return None
    return (
        _like(x) if wanted[0] else None,
        _made(x, shape, dtype) if wanted[1] else None,
        _made(x, shape, dtype) if wanted[2] else None,
    )


_NORMS = {
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
}
