"""Which modules become blocks: a copy runs without data, and it is written down who keeps what.

Of all sets of disjoint blocks the one is wanted for which the inputs of blocks, which are kept, and what is computed
again at once are least together, at the worst moment of the backward pass. Sizes are taken per channel (dimension 1),
so that a network and its slim versions have the same blocks, and their steps are alike operator by operator.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from ranp.running import calling, copies, dataless, randomness
from ranp.running.operators import flat_tensors, written_tensors

logger = logging.getLogger(__name__)

_CLOSE = 1.05
"""Limits of what may be computed again at once are tried in steps of this factor."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the run of a copy showed.

    Attributes:
        blocks: Names of the modules to checkpoint, in the order in which they run.
        written: Names of the buffers that the run wrote to.
    """

    blocks: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()


def blocks(model: nn.Module, example: Any) -> tuple[str, ...]:
    """Names of the modules that ``checkpointed`` makes blocks of, in the order in which they run."""
    return choose(calling.unwrap(model), example).blocks


def choose(model: nn.Module, inputs: Any, *, splatted: bool = False) -> Choice:
    """Finds the blocks. A network that does not run without data is run with it, but nothing is kept.

    Args:
        model: The network, in the mode it will run in; it is not touched.
        inputs: Of one call, by the batch convention; ``(args, kwargs)`` if ``splatted``.
        splatted: See ``inputs``.
    """
    with _disable_current_modes(), randomness.untouched_rng(), torch.inference_mode(False), torch.enable_grad():
        try:
            return _chosen(_data_free(model), tree_map_only(Tensor, _bare, inputs), dataless.MetaMode(), splatted)
        except Exception as error:  # The network's own code may raise anything.
            refusal = error
        if any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in calling.tensors_in(inputs)):
            logger.warning("%s runs without checkpointing: %s", type(model).__name__, refusal)
            return Choice()
        copy = copies.sharing(model)
        inputs = tree_map_only(Tensor, lambda x: x.detach().clone(), inputs)
        return _chosen(copy, inputs, nullcontext(), splatted)


def _data_free(model: nn.Module) -> nn.Module:
    """A copy on the meta device, also of a network whose tensors are fake ones."""
    fakes: dict[int, Tensor] = {}
    for module in model.modules():
        for tensor in flat_tensors([*module.parameters(False), *module.buffers(False), *vars(module).values()]):
            if isinstance(tensor, FakeTensor) and not isinstance(tensor, nn.Parameter):
                fakes[id(tensor)] = _bare(tensor)
    return copies.copy_model(model, meta=True, twins=fakes)


def _bare(tensor: Tensor) -> Tensor:
    """A tensor without data in place of this one; integers, which may index something, keep the data they have."""
    if calling.is_floating(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=copies.META)
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if isinstance(tensor, FakeTensor) else tensor


def _chosen(copy: nn.Module, inputs: Any, mode: AbstractContextManager[Any], splatted: bool) -> Choice:
    try:
        record = _observed(copy, inputs, mode, splatted)
    except ValueError:  # Norms in train mode refuse a single value.
        record = _observed(copy, calling.at_least_two(inputs), mode, splatted)
    return Choice(record.cheapest(), frozenset(record.written))


def _observed(copy: nn.Module, inputs: Any, mode: AbstractContextManager[Any], splatted: bool) -> _Record:
    with _Record(copy, calling.tensors_in(inputs)) as record, mode, record.operators:
        output = copy(*inputs[0], **inputs[1]) if splatted else calling.call(copy, inputs)
        record.close()
    del output  # Until here it held the graph, and so decided what is kept.
    return record


@dataclass(slots=True, eq=False)
class _Call:
    """One call of a module: what it was given, and what was kept or called inside, in order."""

    name: str
    inputs: set[int] = field(default_factory=set)
    inside: list[_Call | weakref.ref[_Saved] | int] = field(default_factory=list)
    again: float = 0.0

    def below(self, stop: AbstractSet[str] = frozenset()) -> Iterator[_Call]:
        """The calls inside, each before those inside of it; nothing is looked for inside of those in ``stop``."""
        for item in self.inside:
            if isinstance(item, _Call):
                yield item
                if item.name not in stop:
                    yield from item.below(stop)


class _Saved:
    """Stands in the graph for a tensor that it keeps, and disappears with it."""

    __slots__ = ("__weakref__", "storage")

    def __init__(self, storage: int) -> None:
        self.storage = storage


class _Record:
    """Watches one run: calls of modules, what autograd keeps, and what is written to."""

    def __init__(self, model: nn.Module, inputs: list[Tensor]) -> None:
        self._model = model
        self._stack = ExitStack()
        self.root = _Call("")
        self._open = [self.root]
        self._sizes: dict[int, float] = {-1: 0.0}
        self._references: list[StorageWeakRef] = []  # as long as these live, no other storage has the same number
        self._readers: dict[int, list[str]] = {}
        self._unfit: set[str] = {""}
        self._buffers = {self._number(buffer): name for name, buffer in model.named_buffers()}
        self._parameters = {self._number(parameter) for parameter in model.parameters()}
        self.written: set[str] = set()
        self.operators = _Writes(self._wrote)
        for tensor in (*model.parameters(), *model.buffers(), *inputs):
            self._sizes[self._number(tensor)] = 0.0  # exists anyway

    def __enter__(self) -> _Record:
        for name, module in self._model.named_modules():
            if name and not isinstance(module, torch.jit.ScriptModule):  # takes no hooks
                before = module.register_forward_pre_hook(self._enter(name), with_kwargs=True)
                after = module.register_forward_hook(self._leave, always_call=True)
                self._stack.callback(before.remove)
                self._stack.callback(after.remove)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda saved: saved)
        self._stack.enter_context(hooks)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def close(self) -> None:
        """Reads what the graph keeps now, at the end of the forward pass."""

        def settle(call: _Call) -> set[int]:
            kept: set[int] = set()
            settled: list[_Call | weakref.ref[_Saved] | int] = []
            for item in call.inside:
                if isinstance(item, _Call):
                    kept |= settle(item)
                    settled.append(item)
                elif isinstance(item, weakref.ref) and (saved := item()) is not None:
                    kept.add(saved.storage)
                    settled.append(saved.storage)
            call.inside = settled
            call.again = self._size(kept - call.inputs)
            return kept

        settle(self.root)

    def cheapest(self) -> tuple[str, ...]:
        """The blocks for which least is held at the worst moment."""
        again: dict[str, float] = {}
        for call in self.root.below():
            again[call.name] = max(call.again, again.get(call.name, 0.0))
        best, chosen = self._worst(frozenset()), frozenset[str]()
        limit = 0.0
        for candidate in sorted(set(again.values())):
            if candidate < limit * _CLOSE or not candidate:
                continue
            limit = candidate
            fitting = {name for name, size in again.items() if size <= limit} - self._unfit
            names = frozenset(self._least_kept(self.root, fitting)[1])
            worst = self._worst(names)
            if worst < best:
                best, chosen = worst, names
        return tuple(dict.fromkeys(call.name for call in self.root.below(chosen) if call.name in chosen))

    def _least_kept(self, call: _Call, fitting: set[str]) -> tuple[float, list[str]]:
        """How little a call can keep if only fitting modules are blocks, and which are, then."""
        kept, names = 0.0, list[str]()
        for item in call.inside:
            if isinstance(item, _Call):
                inner, inner_names = self._least_kept(item, fitting)
                kept, names = kept + inner, names + inner_names
            elif isinstance(item, int):
                kept += self._sizes[item]
        if call.name in fitting and (whole := self._size(call.inputs)) < kept:
            return whole, [call.name]
        return kept, names

    def _worst(self, chosen: frozenset[str]) -> float:
        """The most that is held at once in the backward pass: what was kept before a block, and the block's inside."""
        kept: set[int] = set()
        held = worst = 0.0

        def keep(storages: set[int]) -> None:
            nonlocal held
            held += self._size(storages - kept)
            kept.update(storages)

        def walk(call: _Call) -> None:
            nonlocal worst
            if call.name in chosen:
                keep(call.inputs)
                worst = max(worst, held + call.again)
                return
            for item in call.inside:
                if isinstance(item, _Call):
                    walk(item)
                elif isinstance(item, int):
                    keep({item})

        walk(self.root)
        return max(worst, held)

    def _enter(self, name: str) -> Any:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            call = _Call(name, {self._number(tensor) for tensor in calling.tensors_in((args, kwargs))})
            for storage in call.inputs:
                self._readers.setdefault(storage, []).append(name)
            self._open[-1].inside.append(call)
            self._open.append(call)

        return enter

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if len(self._open) > 1:
            self._open.pop()

    def _save(self, tensor: Tensor) -> _Saved:
        saved = _Saved(self._number(tensor))
        self._open[-1].inside.append(weakref.ref(saved))
        return saved

    def _wrote(self, tensor: Tensor) -> None:
        storage = self._number(tensor)
        self._unfit.update(self._readers.get(storage, ()))
        if storage in self._buffers:
            self.written.add(self._buffers[storage])
        elif storage in self._parameters:
            self._unfit.update(call.name for call in self._open)

    def _number(self, tensor: Tensor) -> int:
        """A number for the tensor's storage; its size is written down when it is first seen."""
        if tensor.layout is not torch.strided:
            return -1
        storage = tensor.untyped_storage()
        number = int(storage._cdata)
        if number not in self._sizes:
            self._references.append(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            self._sizes[number] = storage.nbytes() / max(1, tensor.shape[1]) if tensor.dim() > 1 else 0.0
        return number

    def _size(self, storages: set[int]) -> float:
        return sum(self._sizes[storage] for storage in storages)


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Reports every tensor that an operator writes to."""

    def __init__(self, report: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._report = report

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in written_tensors(func, args, kwargs or {}):
            self._report(tensor)
        return func(*args, **(kwargs or {}))
