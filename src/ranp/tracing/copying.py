"""Copying module trees: what ``copy.deepcopy`` does, without its price for the dozen empty dicts of every module."""

from __future__ import annotations

import copy
import types
from collections import OrderedDict
from functools import cache
from typing import Any

import torch
from torch import nn

_SHARED = (
    int, float, complex, bool, str, bytes, type(None), type, range, torch.dtype, torch.device, torch.Size,
    torch.memory_format, types.FunctionType, types.BuiltinFunctionType,
)  # fmt: skip


@cache
def _is_ordinary(kind: type[nn.Module]) -> bool:
    """True for classes that leave copying to their base: no state of their own to take apart or put together.

    Torch's own ``__setstate__`` methods only fill in what old files lack, which a living module has.
    """
    special = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__")
    for base in kind.__mro__[: kind.__mro__.index(nn.Module)]:
        own = vars(base)
        if any(name in own for name in special) or own.get("__slots__"):
            return False
        if "__setstate__" in own and not base.__module__.startswith("torch.nn.modules."):
            return False
    return True


def copy_tree(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A deep copy of a module; ``memo`` may hold replacements for some of its tensors, as for ``copy.deepcopy``."""
    known = memo.get(id(module))
    if known is not None:
        return known  # type: ignore[no-any-return]
    kind = type(module)
    if not _is_ordinary(kind):  # type: ignore[arg-type]
        other: nn.Module = copy.deepcopy(module, memo)
        return other
    twin = kind.__new__(kind)
    memo[id(module)] = twin
    state = {name: value for name, value in vars(module).items() if name != "_compiled_call_impl"}
    twin.__dict__.update({name: _copy_value(name, value, memo) for name, value in state.items()})
    return twin


def _copy_value(name: str, value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if isinstance(value, _SHARED):
        return value
    if kind is tuple and all(isinstance(item, _SHARED) for item in value):
        return value
    if kind is dict or kind is OrderedDict or kind is set:
        if not value:
            return kind()
        if name == "_modules":
            return kind((key, None if item is None else copy_tree(item, memo)) for key, item in value.items())
    return copy.deepcopy(value, memo)
