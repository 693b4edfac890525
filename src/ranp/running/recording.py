"""What a run of a network costs, written down while it runs: leaf calls, counted operators, tensors kept for backward.

Each recorder is a context manager over a copy of the network (its hooks never reach the user's model) and works
without data, on the meta device. Recorders only write down; ``ranp.costs.measuring`` turns what they saw into figures.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils._pytree import tree_leaves

from ranp.running.calling import named_modules

if TYPE_CHECKING:
    from typing_extensions import Self

LAYER_KIND = re.compile(r"Conv(Transpose)?[123]d|Linear")
"""Kinds that the paper counts as layers of neurons."""

NORM_KIND = re.compile(r"(Sync)?BatchNorm([123]d)?|InstanceNorm[123]d|GroupNorm|LayerNorm|RMSNorm")

POOL_KIND = re.compile(r"(Adaptive)?(Avg|Max)Pool[123]d|LPPool[123]d|FractionalMaxPool[23]d")


def kind_of(module: nn.Module) -> str:
    """Names the nearest public ``torch.nn`` class a module descends from, else its own class.

    A subclass counts as what it specialises: ``class StdConv(nn.Conv3d)`` is a ``"Conv3d"``.
    """
    return _kind(type(module))  # type: ignore[arg-type]


@cache
def _kind(module: type[nn.Module]) -> str:
    for base in module.__mro__:
        if base is nn.Module:
            break
        if getattr(nn, base.__name__, None) is base:
            return str(base.__name__)
    return module.__name__


def leaf_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that the paper's convention sees, by their first ``named_modules`` name.

    These are the modules without children, and every convolution, linear layer and norm: a parametrised or specialised
    one has children and still is one layer. What computes a parametrised weight is part of its layer, not a leaf.
    """
    leaves: dict[str, nn.Module] = {}
    inside: tuple[str, ...] = ()
    for name, module in named_modules(model):
        if isinstance(module, ParametrizationList):
            inside += (f"{name}.",)
        if name.startswith(inside) or isinstance(module, ParametrizationList):
            continue
        kind = kind_of(module)
        has_children = any(key != "parametrizations" and child is not None for key, child in module._modules.items())
        is_list = isinstance(module, nn.ModuleList | nn.ModuleDict)  # Never called, whatever it holds.
        if not (has_children or is_list) or LAYER_KIND.fullmatch(kind) or NORM_KIND.fullmatch(kind):
            leaves[name] = module
    return leaves


@dataclass(frozen=True, slots=True)
class LeafCall:
    """One call of a module without children, in eval mode: what the paper's convention counts."""

    module: str
    kind: str
    """Name of the nearest torch class, e.g. ``"Conv3d"`` for a subclass of ``nn.Conv3d``; else the class's own name."""
    weight: tuple[int, ...]
    """Shape of its ``weight``, empty without one."""
    bias: bool
    window: tuple[int, ...]
    """Pooling window, empty for anything but pooling."""
    input: tuple[int, ...]
    """Shape of the first tensor that went in."""
    output: tuple[int, ...]
    """Shape of the first tensor that came out."""
    groups: int = 1


class ModuleStack:
    """Knows, while the network runs, the innermost module that is running.

    Attributes:
        current: Its ``named_modules`` name; empty for the network itself and outside of a run.
        module: The module itself.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._running: list[tuple[str, nn.Module]] = [("", model)]
        self._hooked: list[nn.Module] = []

    @property
    def current(self) -> str:
        """Name of the innermost running module."""
        return self._running[-1][0]

    @property
    def module(self) -> nn.Module:
        """The innermost running module."""
        return self._running[-1][1]

    def __enter__(self) -> Self:
        key = id(self)  # written down without torch's handles, which are slow to make by the hundred
        for name, module in named_modules(self._model):
            if not isinstance(module, torch.jit.ScriptModule):  # takes no hooks
                module._forward_pre_hooks[key] = self._enter(name)
                module._forward_hooks[key] = self._leave
                module._forward_hooks_always_called[key] = True
                self._hooked.append(module)
        return self

    def __exit__(self, *error: object) -> None:
        while self._hooked:
            _unhook(self._hooked.pop(), id(self))

    def _enter(self, name: str) -> Any:
        def enter(module: nn.Module, args: Any) -> None:
            self._running.append((name, module))

        return enter

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        # always_call also fires when the forward pass dies, even before the matching entry.
        if len(self._running) > 1:
            self._running.pop()


def _unhook(module: nn.Module, key: int) -> None:
    for hooks in (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._forward_hooks_always_called,
        module._forward_hooks_with_kwargs,
    ):
        hooks.pop(key, None)


class LeafRecorder(ExitStack):
    """Writes down every call of a leaf module, in order, as a ``LeafCall``.

    The figures come from tensors: a module whose attributes lie about its size is counted right.

        >>> net = nn.Sequential(nn.Conv3d(2, 4, 3), nn.ReLU())
        >>> with LeafRecorder(net) as recorder:
        ...     _ = net(torch.zeros(1, 2, 5, 5, 5))
        >>> [(call.kind, call.output) for call in recorder.calls]
        [('Conv3d', (1, 4, 3, 3, 3)), ('ReLU', (1, 4, 3, 3, 3))]

    Attributes:
        calls: What has been seen so far.
        kinds: Kind of every leaf, called or not.

    Args:
        model: The network, a copy.
        after: Gets the first tensor that each call returns, or None.
    """

    def __init__(self, model: nn.Module, after: Callable[[Tensor | None], None] | None = None) -> None:
        super().__init__()
        self.calls: list[LeafCall] = []
        self._after = after
        self._leaves = leaf_modules(model)
        self.kinds: dict[str, str] = {name: kind_of(module) for name, module in self._leaves.items()}

    def __enter__(self) -> Self:
        # A parametrised weight is computed when it is read: once, here, where no tracer takes it for an operator.
        with torch.no_grad():
            for name, module in self._leaves.items():
                if isinstance(module, torch.jit.ScriptModule):  # takes no hooks
                    continue
                weight, bias = weight_of(module), getattr(module, "bias", None)
                shape = tuple(weight.shape) if isinstance(weight, Tensor) else ()
                module._forward_hooks[id(self)] = self._hook(name, self.kinds[name], shape, isinstance(bias, Tensor))
                module._forward_hooks_with_kwargs[id(self)] = True
                self.callback(_unhook, module, id(self))
        return self

    def _hook(self, name: str, kind: str, weight: tuple[int, ...], bias: bool) -> Any:
        pools, convolves = POOL_KIND.fullmatch(kind), "Conv" in kind and LAYER_KIND.fullmatch(kind)

        def record(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            first = args[0] if args and isinstance(args[0], Tensor) else (args, kwargs)
            came, left = _first_shape(first, ()), _first_shape(output, (0,))
            window = _window(module, came, left) if pools else ()
            groups = _groups(kind, weight, came, left) if convolves else 1
            self.calls.append(LeafCall(name, kind, weight, bias, window, came, left, groups))
            if self._after is not None:
                self._after(_first(output))

        return record


def weight_of(module: nn.Module) -> Any:
    """The weight of a module, or what a hook computes it from: until the hook runs, the attribute may be an old one."""
    for name in ("weight_v", "weight_orig"):
        if isinstance(module._parameters.get(name), Tensor):
            return module._parameters[name]
    return getattr(module, "weight", None)


def _first_shape(tree: Any, default: tuple[int, ...]) -> tuple[int, ...]:
    found = _first(tree)
    return default if found is None else tuple(found.shape)


def _first(tree: Any) -> Tensor | None:
    """The first tensor of a pytree."""
    if isinstance(tree, Tensor):
        return tree
    return next((leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)), None)


def _groups(kind: str, weight: tuple[int, ...], came: tuple[int, ...], left: tuple[int, ...]) -> int:
    # Counted from the end, so that calls without a batch dimension are read right.
    channels = (left if "Transpose" in kind else came)[1 - len(weight)]
    return channels // weight[1]


def _window(module: nn.Module, came: tuple[int, ...], left: tuple[int, ...]) -> tuple[int, ...]:
    dims = int(kind_of(module)[-2])
    size = getattr(module, "kernel_size", None)
    if size is None:  # Adaptive pooling: as many inputs as each output averages over, at most.
        return tuple(ceil(i / o) if o else 0 for i, o in zip(came[-dims:], left[-dims:], strict=True))
    return (int(size),) * dims if isinstance(size, int) else tuple(int(k) for k in size)


@dataclass(frozen=True, slots=True)
class Kept:
    """How much one module keeps for the backward pass."""

    elements: int
    bytes: int


class _Saved:
    """A tensor that the autograd graph keeps. Only the graph holds it, so it disappears with its part of the graph."""

    __slots__ = ("__weakref__", "module", "tensor")

    def __init__(self, tensor: Tensor, module: str) -> None:
        self.tensor = tensor.detach()  # Shares the storage, but holds no graph in turn.
        self.module = module


class SavedRecorder:
    """Writes down what autograd keeps for the backward pass: whole storages, each once.

    Keep the output of the run alive until ``kept`` is called: with it goes the graph, and with the graph what it keeps.

    Args:
        stack: Knows which module is running.
        known: Tensors that exist without any graph (parameters, buffers, inputs); their storages are not counted.
    """

    def __init__(self, stack: ModuleStack, known: Iterable[Tensor]) -> None:
        self._stack = stack
        self._known = [tensor.untyped_storage() for tensor in known if tensor.layout is torch.strided]
        self._saved: list[weakref.ref[_Saved]] = []
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved.tensor)

    def __enter__(self) -> SavedRecorder:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> _Saved:
        saved = _Saved(tensor, self._stack.current)
        self._saved.append(weakref.ref(saved))
        return saved

    def kept(self) -> dict[str, Kept]:
        """What the living graph keeps, by the module that kept it first, in the order of the run."""
        kept: dict[str, Kept] = {}
        for module, tensor in self.living():
            size, before = tensor.element_size(), kept.get(module, Kept(0, 0))
            dense = tensor.layout is torch.strided
            elements = tensor.untyped_storage().nbytes() // size if dense else tensor.numel()
            kept[module] = Kept(before.elements + elements, before.bytes + elements * size)
        return kept

    def living(self) -> Iterator[tuple[str, Tensor]]:
        """The module that kept it, and a tensor of each storage that the living graph keeps."""
        seen = {storage._cdata for storage in self._known}
        for reference in self._saved:
            saved = reference()
            if saved is None:
                continue
            if saved.tensor.layout is torch.strided:
                key = saved.tensor.untyped_storage()._cdata
                if key in seen:
                    continue
                seen.add(key)
            yield saved.module, saved.tensor
