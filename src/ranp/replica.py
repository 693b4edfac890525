"""The working copy on which a network is run for its gradients, so that the user's own is bit-identical afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ranp.errors import UnsupportedError
from ranp.tracing.copying import copy_tree


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
            if nn.parameter.is_lazy(parameter):
                raise UnsupportedError(
                    f"parameter {name!r} is not initialised yet (lazy module). Run the model once on an example first."
                )
            if type(parameter) is nn.Parameter:
                data = parameter.clone() if parameter.is_inference() else parameter
                memo[id(parameter)] = nn.Parameter(data.detach(), parameter.requires_grad)
        _prepare(module, memo)
    try:
        with _CopyComputed():
            return tuple(copy_tree(module, memo) for module in modules)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise UnsupportedError(
            f"the model cannot be copied ({error}). Remove what copy.deepcopy refuses (locks, open files, streams) "
            "from its attributes."
        ) from error


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


def _prepare(module: nn.Module, memo: dict[int, Any]) -> None:
    """Copies buffers beforehand, which ``copy.deepcopy`` is slow at."""
    for buffer in module.buffers():
        if type(buffer) is torch.Tensor:
            memo[id(buffer)] = buffer.detach().clone().requires_grad_(buffer.requires_grad)


class _CopyComputed(TorchFunctionMode):
    """Lets ``copy.deepcopy`` copy tensors that have a history, wherever they hide; it refuses them otherwise."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = tensor.detach().clone()
            return memo[id(tensor)]
        return func(*args, **(kwargs or {}))


class Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Copies on write: while active, the first write to a guarded tensor saves what it held; ``restore`` puts it back.

    Almost no network writes to its parameters or inputs in its forward pass, so almost always nothing is copied.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._always = _storages(tensors)
        self._guarded = self._always
        self._saved: dict[tuple[torch.device, int], torch.UntypedStorage] = {}

    @contextmanager
    def batch(self, tensors: Iterable[torch.Tensor]) -> Iterator[None]:
        """Guards these tensors too, and restores all that was written to at the end."""
        self._guarded = self._always | _storages(tensors)
        try:
            yield
        finally:
            self.restore()
            self._guarded = self._always

    def restore(self) -> None:
        """Puts back what guarded tensors held when they were first written to."""
        for key, saved in self._saved.items():
            self._guarded[key].copy_(saved)
        self._saved.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for position, name in _written(func):
            target = args[position] if position < len(args) else kwargs.get(name)
            for tensor in target if isinstance(target, list | tuple) else (target,):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    key = (storage.device, storage.data_ptr())
                    if key in self._guarded and key not in self._saved:
                        self._saved[key] = self._guarded[key].clone()  # type: ignore[no-untyped-call]
        return func(*args, **kwargs)


def _storages(tensors: Iterable[torch.Tensor]) -> dict[tuple[torch.device, int], torch.UntypedStorage]:
    """The storages behind the tensors by device and address, those that hold anything."""
    found = (tensor.untyped_storage() for tensor in tensors if tensor.layout == torch.strided)
    return {(storage.device, storage.data_ptr()): storage for storage in found if storage.nbytes()}


@cache
def _written(func: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of the arguments that an operator writes to."""
    arguments = enumerate(func._schema.arguments)
    return tuple((i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)


@contextmanager
def random_state_kept(devices: Iterable[torch.device]) -> Iterator[None]:
    """Leaves every global random state (torch on the CPU and these devices, numpy, Python) as it was found."""
    accelerators = sorted({device for device in devices if device.type not in ("cpu", "meta")}, key=str)
    python, legacy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    states = [_accelerator(device).get_rng_state(*_index(device)) for device in accelerators]
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        torch.set_rng_state(cpu)
        for device, state in zip(accelerators, states, strict=True):
            _accelerator(device).set_rng_state(state, *_index(device))


def reseed(seed: int, devices: Iterable[torch.device]) -> None:
    """Seeds every global generator that a forward pass on these devices may draw from; use it inside the above."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    # Not torch.manual_seed: it reseeds all accelerators, also those whose state was not kept.
    torch.default_generator.manual_seed(seed)
    for device in devices:
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            torch.cuda.default_generators[index].manual_seed(seed)
        elif device.type not in ("cpu", "meta"):
            _accelerator(device).manual_seed(seed)


def _accelerator(device: torch.device) -> Any:
    return torch.get_device_module(device)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    """The device as argument, where the device's module takes one: MPS is always a single device."""
    return () if device.type == "mps" else (device,)
