"""Running without data: tensors on the meta device, through any code, and the shapes of what comes out.

Torch's own data-free kernels for norms, activations and interpolation are Python decompositions that take milliseconds
a call; those here take microseconds and refuse the same wrong shapes. What is not here goes to torch's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ranp.running.calling import is_floating, map_tensors
from ranp.running.copies import META
from ranp.running.operators import Operator, flat_tensors, schema_of


def to_meta(inputs: Any) -> Any:
    """The same pytree with its floating-point tensors on the meta device (indices keep their values)."""
    return map_tensors(lambda x: x.detach().to(META) if is_floating(x) else x, inputs)


def execute(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], flat: Sequence[torch.Tensor] | None = None
) -> Any:
    """Runs one operator where some tensors hold no data: devices and stray real tensors are brought to meta.

    Tensors made from nothing become data-free if they are floating point; integer ones are really made, since code
    may index channels with them. ``flat`` are the tensors among the arguments, if somebody has looked for them.
    """
    flat = flat_tensors((args, kwargs)) if flat is None else flat
    if not flat:
        if "device" not in schema_of(func).names:
            return func(*args, **kwargs)
        kind = kwargs.get("dtype")
        if kind is None or kind.is_floating_point or kind.is_complex:
            out = func(*args, **{**kwargs, "device": META})
            if is_floating(out):
                return out
        return func(*args, **{**kwargs, "device": torch.device("cpu")})
    real = [x for x in flat if not x.is_meta]
    if len(real) == len(flat):
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "meta":
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return func(*args, **kwargs)
    if "device" in kwargs:
        kwargs = {k: META if k == "device" and v is not None else v for k, v in kwargs.items()}
    if real:
        args, kwargs = tree_map(
            lambda x: x.to(META) if isinstance(x, torch.Tensor) and not x.is_meta else x, (args, kwargs)
        )
    out = shortcut(func, args, kwargs)
    return func(*args, **kwargs) if out is None else out


class MetaMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, code written for any device runs on data-free tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return execute(func, args, kwargs or {})


SAME_TYPE = frozenset(
    "relu hardtanh leaky_relu elu gelu silu mish sigmoid tanh softplus hardswish hardsigmoid celu abs neg exp sqrt "
    "rsqrt log relu6 selu clamp clamp_min clamp_max threshold log1p square sign erf sin cos".split()
)
"""Unary pointwise operators whose result has the type of their floating-point input."""


SAME_PAIR = frozenset(["add", "sub", "mul", "div", "maximum", "minimum"])
"""Binary ones whose result has the type of two inputs of one floating-point type."""


def shortcut(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator on data-free tensors, or None where torch must work it out."""
    schema = schema_of(func)
    if schema.namespace != "aten":
        return None
    if schema.pointwise:
        return _pointwise(schema.name, args, kwargs)
    found = _TABLE.get(schema.name)
    return None if found is None else found(Operator(func, args, kwargs))


def _like(x: torch.Tensor) -> torch.Tensor:
    """A data-free tensor as an operator makes it of another (``torch.empty_like`` is a slow decomposition on meta).

    It lies as the other does; what is a part of a larger tensor has gaps, which a result has not.
    """
    if x.is_contiguous():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=META)
    if sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) >= x.numel() > 0:
        return torch.empty_like(x)
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=META)


def _of(x: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=x.dtype, device=META)


def _broadcast(a: torch.Tensor, b: torch.Tensor) -> torch.Size:
    return torch.broadcast_shapes(a.shape, b.shape)  # type: ignore[no-untyped-call,no-any-return]


def _pointwise(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    first = args[0] if args else None
    if kwargs and set(kwargs) - {"alpha"}:
        return None
    if not isinstance(first, torch.Tensor) or not first.is_meta or not first.is_floating_point():
        return None
    others = [a for a in args[1:] if isinstance(a, torch.Tensor)]
    if name.endswith("_") and not name.startswith("_"):
        for other in others:
            if other.shape != first.shape and _broadcast(first, other) != first.shape:
                raise RuntimeError(f"{name}: {tuple(other.shape)} does not fit into {tuple(first.shape)}")
        return first
    if not others:
        pairs_up = name in SAME_PAIR and len(args) > 1 and isinstance(args[1], int | float)
        return _like(first) if name in SAME_TYPE or pairs_up else None
    if name in SAME_PAIR and len(others) == 1 and others[0].dtype == first.dtype:
        if others[0].shape == first.shape:
            return _like(first)
        if others[0].dim() > 0:
            shape = _broadcast(first, others[0])
            return torch.empty(shape, dtype=first.dtype, device=META)
    return None


def _fits(op: Operator, size: int, names: tuple[str, ...]) -> None:
    for name in names:
        tensor = op[name]
        if isinstance(tensor, torch.Tensor) and tensor.numel() != size:
            raise RuntimeError(f"{op.name}: {name} has {tensor.numel()} elements, the input {size} channels")


def _batch_norm(op: Operator) -> Any:
    x = op["input"]
    channels = x.shape[1]
    _fits(op, channels, ("weight", "bias", "running_mean", "running_var"))
    saved = _of(x, channels if op["training"] else 0)
    return _like(x), saved, _like(saved)


def _group_norm(op: Operator) -> Any:
    x, groups = op["input"], op["group"]
    _fits(op, x.shape[1], ("weight", "bias"))
    if x.shape[1] % groups:
        raise RuntimeError(f"{op.name}: {x.shape[1]} channels do not divide into {groups} groups")
    saved = _of(x, op["N"], groups)
    return _of(x, *x.shape), saved, _like(saved)


def _layer_norm(op: Operator) -> Any:
    x, shape = op["input"], list(op["normalized_shape"])
    lead = x.dim() - len(shape)
    if list(x.shape[lead:]) != shape:
        raise RuntimeError(f"{op.name}: normalized_shape {shape} does not fit {tuple(x.shape)}")
    for name in ("weight", "bias"):
        if isinstance(op[name], torch.Tensor) and list(op[name].shape) != shape:
            raise RuntimeError(f"{op.name}: {name} of shape {tuple(op[name].shape)} does not fit {shape}")
    saved = _of(x, *x.shape[:lead], *[1] * len(shape))
    return _of(x, *x.shape), saved, _like(saved)


def _upsample(op: Operator) -> Any:
    x, size = op["self"] if op["self"] is not None else op["input"], op["output_size"]
    if size is None or x.dim() != len(size) + 2:
        return None
    return _of(x, *x.shape[:2], *size)


def _convolution(op: Operator) -> Any:
    x, weight, bias, groups = op["input"], op["weight"], op["bias"], op["groups"]
    rank = weight.dim() - 2
    if x.dim() != rank + 2 or x.dtype != weight.dtype:
        return None
    transposed = op["transposed"]
    inputs = weight.shape[0] if transposed else weight.shape[1] * groups
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    if x.shape[1] != inputs or (weight.shape[0] % groups) or groups < 1:
        raise RuntimeError(
            f"{op.name}: weight {tuple(weight.shape)} in {groups} groups does not fit {x.shape[1]} input channels"
        )
    if bias is not None and bias.shape[0] != outputs:
        raise RuntimeError(f"{op.name}: bias of {bias.shape[0]} does not fit {outputs} output channels")
    size = [
        _extent(n, k, s, p, d, o, transposed)
        for n, k, s, p, d, o in zip(
            x.shape[2:],
            weight.shape[2:],
            *(_each(op[name], rank) for name in ("stride", "padding", "dilation", "output_padding")),
            strict=True,
        )
    ]
    if min(size) <= 0:
        raise RuntimeError(f"{op.name}: an input of {tuple(x.shape)} is too small for kernel {tuple(weight.shape[2:])}")
    return _of(x, x.shape[0], outputs, *size)


def _each(value: Any, rank: int) -> Sequence[int]:
    return list(value) * rank if len(value) == 1 else value


def _extent(n: int, k: int, s: int, p: int, d: int, o: int, transposed: bool) -> int:
    if transposed:
        return (n - 1) * s - 2 * p + d * (k - 1) + o + 1
    return (n + 2 * p - d * (k - 1) - 1) // s + 1


_TABLE: dict[str, Callable[[Operator], Any]] = {
    "convolution": _convolution,
    "native_batch_norm": _batch_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    **dict.fromkeys(
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
        "upsample_trilinear3d upsample_bicubic2d".split(),
        _upsample,
    ),
}
"""What stands for torch's own kernel, by operator; pointwise ones have a rule of their own."""
