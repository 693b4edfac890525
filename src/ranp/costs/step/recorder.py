"""Follows a step operator by operator: what is called, and when the memory of each tensor is made and given back."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from ranp.costs.step.records import Call, Sized, Storage
from ranp.costs.step.settings import settings_of
from ranp.costs.step.shortcuts import shortcut
from ranp.running.operators import flat_tensors
from ranp.running.recording import ModuleStack

_REAL_AT_MOST = 1 << 20
"""Elements up to which an integer tensor made from nothing is really made, since code may ask for its values."""


class _Followed:
    """A storage while it lives; frozen to a ``Storage`` when everything is known."""

    __slots__ = ("born", "dies", "dtype", "extra", "kind", "module", "reference", "shape")

    def __init__(self, tensor: Tensor, kind: str, born: int, module: str) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype
        self.kind = kind
        self.born = born
        self.dies: int | None = None
        self.module = module
        self.extra = tensor.untyped_storage().nbytes() - tensor.numel() * tensor.dtype.itemsize
        self.reference: weakref.ref[Any] | None = None


@cache
def _is_bookkeeping(func: Any) -> bool:
    """Questions about a tensor (``prim.device``) that eager execution answers without any operator, and marks."""
    return str(func).startswith(("prim.", "profiler."))


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operator above ``FakeTensorMode``, and the life of every storage.

    Tensors that hold data (indices, counters, the scalars of an optimiser) are computed for real among themselves, so
    that code may ask for their values; whatever meets a data-free tensor becomes data-free.

    Attributes:
        phase: Of the step, set by who runs it.
    """

    def __init__(self, stack: ModuleStack, owners: dict[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = "forward"
        self._stack = stack
        self._owners = owners
        self._calls: list[Call] = []
        self._begun = 0
        self._followed: list[_Followed] = []
        self._living: dict[int, int] = {}
        self._module_of_node: dict[int, str] = {}
        self._given: list[Tensor] = []
        self._is_silent = False

    def existing(self, tensors: Iterable[tuple[str, Tensor]], kind: str) -> None:
        """Registers what was there before the step, each under the module it belongs to."""
        for module, tensor in tensors:
            self._storage(tensor, kind, -1, module)

    def given(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A data-free tensor that counts as an input: there before the step, and after it."""
        self._is_silent = True
        try:
            made = torch.empty(shape, dtype=dtype, device=device)
        finally:
            self._is_silent = False
        self.existing([("", made)], "input")
        self._given.append(made)
        return made

    def relabel(self, tensor: Tensor, kind: str, module: str) -> None:
        """Says what a living storage that was made during the step turned out to be."""
        followed = self._followed[self._storage(tensor, kind, -1, module)]
        followed.kind, followed.module = kind, module

    def activations(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        """The numbers of the storages of these tensors that the step itself made."""
        found = (self._living.get(t.untyped_storage()._cdata, -1) for t in tensors if t.layout is torch.strided)
        return frozenset(number for number in found if number >= 0 and self._followed[number].kind == "activation")

    def calls(self) -> tuple[Call, ...]:
        """The operators so far."""
        return tuple(self._calls)

    def storages(self) -> tuple[Storage, ...]:
        """The storages so far; those that live now outlive the step."""
        end = len(self._calls)
        return tuple(
            Storage(f.shape, f.dtype, f.kind, f.born, end if f.dies is None else f.dies, f.module, f.extra)
            for f in self._followed
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._is_silent or _is_bookkeeping(func):
            return func(*args, **kwargs)
        self._begun += 1
        tensors = list(flat_tensors((args, kwargs)))
        module = self._module()
        inputs = tuple(self._sized(tensor, module) for tensor in tensors)
        if not module and self.phase == "optimiser" and inputs:
            module = self._followed[inputs[0].storage].module
        out = _executed(func, args, kwargs, tensors)
        outputs = tuple(self._sized(tensor, module) for tensor in flat_tensors(out))
        settings = settings_of(func, args, kwargs, inputs, outputs)
        self._calls.append(Call(str(func), inputs, outputs, settings, self.phase, module))
        return out

    def _module(self) -> str:
        module = self._stack.current
        if self.phase != "backward" or module:  # with a module, it is computed again inside of the backward pass
            # The first operator that sees a node's number is the one the node was made for.
            self._module_of_node.setdefault(torch._C._autograd._get_sequence_nr() - 1, module)
            return module
        node = torch._C._current_autograd_node()
        variable = getattr(node, "variable", None)
        if variable is not None:
            return self._owners.get(id(variable), "")
        return "" if node is None else self._module_of_node.get(node._sequence_nr(), "")

    def _sized(self, tensor: Tensor, module: str) -> Sized:
        shape = tuple(tensor.shape)
        if tensor.layout is not torch.strided:
            return Sized(shape, tensor.dtype)
        kind = "activation" if self.phase in ("forward", "loss") else "temporary"
        storage = self._storage(tensor, kind, self._begun - 1, module)
        if tensor.is_contiguous():
            return Sized(shape, tensor.dtype, False, storage)
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape))
        is_last = last is not None and tensor.is_contiguous(memory_format=last)
        return Sized(shape, tensor.dtype, is_last, storage, not is_last)

    def _storage(self, tensor: Tensor, kind: str, born: int, module: str) -> int:
        """The number of a tensor's storage, followed from now on if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._living.get(key)
        if known is not None:
            return known
        number = len(self._followed)
        followed = _Followed(tensor, kind, born, module)
        followed.reference = weakref.ref(storage, lambda _: self._died(key, followed))
        self._followed.append(followed)
        self._living[key] = number
        return number

    def _died(self, key: int, followed: _Followed) -> None:
        self._living.pop(key, None)
        followed.dies = self._begun - 1


def _executed(func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
    """Runs an operator: without data, unless all that it reads holds data or it makes a small integer tensor."""
    if tensors:
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            out = shortcut(func, args, kwargs)
            return func(*args, **kwargs) if out is None else out
        with unset_fake_temporarily():
            return func(*args, **kwargs)
    out = func(*args, **kwargs)
    if not isinstance(out, Tensor) or out.numel() > _REAL_AT_MOST:
        return out
    small = out.numel() == 1 or not (out.dtype.is_floating_point or out.dtype.is_complex)
    if not small or out.device.type != "cpu":
        return out
    with unset_fake_temporarily():
        return func(*args, **kwargs)


def owned(model: nn.Module, kind: str) -> list[tuple[str, Tensor]]:
    """Every parameter or buffer with the name of the module it belongs to."""
    named = model.named_parameters() if kind == "parameter" else model.named_buffers()
    return [(name.rpartition(".")[0], tensor) for name, tensor in named]
