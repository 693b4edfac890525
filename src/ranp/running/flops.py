"""FLOPs as ``torch.utils.flop_counter`` counts them, operator by operator, at the sizes of a run or at others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ranp.running.operators import flat_tensors
from ranp.running.recording import ModuleStack


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor in the call of an operator, of which only the extents matter."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpCall:
    """One operator that ``torch.utils.flop_counter`` counts, in eval mode, with its count."""

    module: str
    """Innermost module that was running."""
    op: str
    flops: int
    output: int = 0
    """Elements of the result."""
    weight: str = ""
    """The parameter it multiplied with, where code used one by function call."""
    call: Any = None
    """``(arguments, keywords, result)`` with a ``Shape`` for each tensor; None where shapes do not tell the count."""


@cache
def _formulas() -> Mapping[Any, Any]:
    from torch.utils import flop_counter

    return flop_counter.flop_registry


def true_flops(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> int:
    """FLOPs of one operator as ``torch.utils.flop_counter`` counts them, 0 for one it has no formula for.

    To be called from inside a ``TorchDispatchMode`` for every operator it sees. A composite operator arrives whole only
    in inference mode; its parts are counted by running it once more on meta tensors.
    """
    if func is torch.ops.aten.convolution.default:  # by far the commonest: without taking its arguments apart
        from torch.utils.flop_counter import conv_flop_count

        return conv_flop_count([*args[0].shape], [*args[1].shape], [*out.shape], transposed=args[6])
    formula = _formulas().get(getattr(func, "_overloadpacket", func))
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=out))
    if not _is_composite(func):
        return 0
    args, kwargs = tree_map(
        lambda x: torch.empty_like(x, device="meta") if isinstance(x, Tensor) else x, (args, kwargs)
    )
    with OpRecorder() as parts:
        func.decompose(*args, **kwargs)
    return sum(op.flops for op in parts.ops)


def call_of(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
    """What ``flops_at`` needs to count an operator at other sizes: its call with shapes for tensors, or None."""
    tensors = flat_tensors((args, kwargs, out))
    if getattr(func, "_overloadpacket", func) not in _formulas() or any(tensor.is_nested for tensor in tensors):
        return None
    return _shaped((args, kwargs, out))


def _shaped(value: Any) -> Any:
    """The same with a ``Shape`` for each tensor."""
    if isinstance(value, Tensor):
        return Shape(tuple(value.shape))
    if isinstance(value, list):
        return [_shaped(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_shaped(item) for item in value)
    return {key: _shaped(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def flops_at(op: str, call: Any) -> int:
    """FLOPs of the operator of that name as ``torch.utils.flop_counter`` counts them, from the shapes in its call."""
    args, kwargs, out = tree_map(lambda x: x.sizes if isinstance(x, Shape) else x, call)
    return int(_formulas_by_name()[op](*args, **kwargs, out_val=out))


@cache
def _formulas_by_name() -> Mapping[str, Any]:
    return {str(func): formula for func, formula in _formulas().items()}


@cache
def _is_composite(func: Any) -> bool:
    if not isinstance(func, torch._ops.OpOverload):
        return False
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    name: str = func.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


class OpRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operator that ``torch.utils.flop_counter`` counts, with its count and the module it ran in.

    Attributes:
        ops: What has been seen so far.
    """

    def __init__(self, stack: ModuleStack | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stack = stack
        self.ops: list[OpCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        flops = true_flops(func, args, kwargs, out)
        if flops:
            module = self._stack.current if self._stack is not None else ""
            self.ops.append(OpCall(module, str(getattr(func, "_overloadpacket", func)), flops))
        return out
