"""Copies of networks: without data, sharing parameters, or deep; the user's own is never run or changed."""

from __future__ import annotations

import copy
import gc
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm
from torch.overrides import TorchFunctionMode

from ranp.errors import UnsupportedError
from ranp.running.calling import is_floating, named_modules, named_tensors

META = torch.device("meta")


def copy_model(model: nn.Module, *, meta: bool, twins: Mapping[int, torch.Tensor] | None = None) -> nn.Module:
    """Copies a network; with ``meta`` its floating-point tensors become data-free, so that nothing is allocated.

    ``twins`` are tensors to put in place of others, by the ``id`` of those, so that what is replaced is never copied.
    Integer buffers keep their values (they may index channels). Modules that hold a computed, non-leaf tensor as a
    plain attribute or in a container (weight norm by hook, features kept between calls) copy too, which
    ``copy.deepcopy`` alone refuses.
    """
    memo: dict[int, Any] = dict(twins or {})
    for name, tensor in named_tensors(model):
        _refuse_lazy(name, tensor)
        if id(tensor) in memo:
            continue
        if meta and is_floating(tensor):
            twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
            is_parameter = isinstance(tensor, nn.Parameter)
            memo[id(tensor)] = nn.Parameter(twin, requires_grad=tensor.requires_grad) if is_parameter else twin
        elif type(tensor) is torch.Tensor and tensor.dim() == 0 and not is_floating(tensor):
            memo[id(tensor)] = tensor.clone()  # a norm's counter, beforehand: copy.deepcopy is slow at them
    with _CopyComputed(META if meta else None), _keeping_garbage():
        return copy_tree(model, memo)


def _refuse_lazy(name: str, tensor: torch.Tensor) -> None:
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        raise UnsupportedError(
            f"{name!r} is not initialised yet (lazy module). Run the model once on an example first."
        )


def sharing(model: nn.Module) -> nn.Module:
    """A copy whose parameters share their storage with the original's; all else is copied."""
    shared = {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    return copy_model(model, meta=False, twins=shared)


def replicate(*modules: nn.Module) -> tuple[nn.Module, ...]:
    """Copies modules without the memory of a copy: parameters share their storage, everything else is copied.

    Modules that refer to one another still do so in the copies. Run the copies under a ``Guard`` of the parameters:
    it makes the shared storage safe against networks that rewrite their parameters while they run.

    Raises:
        UnsupportedError: A lazy parameter has no value yet, a parameter holds no data, or something in the modules
            cannot be copied.
    """
    memo: dict[int, Any] = {}
    for module in modules:
        for name, parameter in module.named_parameters():
            _refuse_lazy(name, parameter)
            if type(parameter) is nn.Parameter:
                data = parameter.clone() if parameter.is_inference() else parameter
                memo[id(parameter)] = nn.Parameter(data.detach(), parameter.requires_grad)
        for buffer in module.buffers():  # beforehand: copy.deepcopy is slow at them
            if type(buffer) is torch.Tensor:
                memo[id(buffer)] = buffer.detach().clone().requires_grad_(buffer.requires_grad)
    try:
        with _CopyComputed(), _keeping_garbage():
            return tuple(copy_tree(module, memo) for module in modules)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise UnsupportedError(
            f"the model cannot be copied ({error}). Remove what copy.deepcopy refuses (locks, open files, streams) "
            "from its attributes."
        ) from error


@contextmanager
def _keeping_garbage() -> Iterator[None]:
    """Collects no garbage: a copy makes thousands of objects and drops none, and each thousand is a reason to look."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _CopyComputed(TorchFunctionMode):
    """Lets ``copy.deepcopy`` copy tensors that have a history, wherever they hide; it refuses them otherwise."""

    def __init__(self, device: torch.device | None = None) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = tensor.detach().clone() if self.device is None else tensor.detach().to(self.device)
            return memo[id(tensor)]
        return func(*args, **(kwargs or {}))


_ATOMS = frozenset([int, float, bool, str, type(None)])
"""What most attributes of modules are."""
_CONTAINERS = frozenset([dict, OrderedDict, set])
"""What most of the others are, and mostly empty: hooks."""
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
    own = twin.__dict__
    own.update(vars(module))
    own.pop("_compiled_call_impl", None)  # made for the original
    for name, value in vars(module).items():
        held = type(value)
        if held in _ATOMS:
            continue
        if held in _CONTAINERS and not value:
            own[name] = held()
        elif name == "_modules":
            own[name] = held((k, None if item is None else copy_tree(item, memo)) for k, item in value.items())
        elif name in ("_parameters", "_buffers") and all(item is None or id(item) in memo for item in value.values()):
            own[name] = held((key, None if item is None else memo[id(item)]) for key, item in value.items())
        elif name != "_compiled_call_impl":
            own[name] = _copy_value(value, memo)
    return twin


def _copy_value(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, _SHARED) or (type(value) is tuple and all(isinstance(item, _SHARED) for item in value)):
        return value
    return copy.deepcopy(value, memo)


def materialise(network: nn.Module) -> None:
    """Turns every weight that is computed from others into a plain parameter, so that the effective weight is scored.

    Covers ``torch.nn.utils.parametrize`` (and with it the new weight and spectral norm), the old hooks of weight norm
    and spectral norm, and the masks of ``torch.nn.utils.prune``. Call it on a copy only, in the mode it will run in.
    """
    for module in list(network.modules()):
        if parametrize.is_parametrized(module):
            # Torch makes a class for every parametrised module and takes it apart here; the copy shares its original's.
            shared = type(module)
            own = {key: value for key, value in vars(shared).items() if key not in ("__dict__", "__weakref__")}
            module.__class__ = type(shared.__name__, shared.__bases__, own)
            for name in list(module.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(module, name, leave_parametrized=True)
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, WeightNorm):
                remove_weight_norm(module, hook.name)
            elif isinstance(hook, SpectralNorm):
                remove_spectral_norm(module, hook.name)
            elif isinstance(hook, prune.BasePruningMethod):
                prune.remove(module, hook._tensor_name)  # type: ignore[no-untyped-call]


def computes_weights(network: nn.Module) -> bool:
    """True if some weight is computed from others, so that ``materialise`` would change something."""
    hooks = (WeightNorm, SpectralNorm, prune.BasePruningMethod)
    return any(
        parametrize.is_parametrized(module)
        or any(isinstance(hook, hooks) for hook in module._forward_pre_hooks.values())
        for _, module in named_modules(network)
    )


def redraw_weights(model: nn.Module, seed: int) -> None:
    """Gives a copy other weights and biases, so that decisions by data fall otherwise; norms keep their statistics."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator).to(parameter)
                parameter.copy_(noise / max(1, parameter[0].numel() if parameter.dim() > 1 else 4) ** 0.5)


_SEVERAL = (list, set)


def holdings(model: nn.Module) -> list[tuple[int, ...]]:
    """What every module holds, by identity: differs after a run that left something behind, such as a cached tensor."""
    found = []
    for module in model.modules():
        held = {**vars(module), "training": None}.values()  # which a run changes itself
        ids = [id(module), *map(id, held)]
        for value in held:
            if isinstance(value, dict):
                ids.extend(map(id, value.values()))
            elif isinstance(value, _SEVERAL):
                ids.extend(map(id, value))
        found.append(tuple(ids))
    return found
