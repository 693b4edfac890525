"""The stage on which a network is run without touching it and without its memory: a copy whose tensors hold no data."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from ranp.arguments import network
from ranp.errors import UnsupportedError
from ranp.tracing.copying import copy_tree
from ranp.tracing.operation import flat_tensors
from ranp.tracing.shapes import shortcut

META = torch.device("meta")


def unwrap(model: nn.Module) -> nn.Module:
    """Returns the network inside DataParallel, DistributedDataParallel and ``torch.compile`` wrappers.

    Raises:
        UnsupportedError: It is no network, or one that cannot be followed or cut.
    """
    network(model)
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _plain(leaf: torch.Tensor) -> torch.Tensor:
    """A tensor without the subclass that would wrap every result anew, and so lose what tensors carry (MetaTensor)."""
    if type(leaf) is torch.Tensor:
        return leaf
    if type(leaf).__torch_function__ is torch._C._disabled_torch_function_impl:  # such as parameters: leave no trace
        return leaf
    return leaf.as_subclass(torch.Tensor)


def call(model: nn.Module, inputs: Any) -> Any:
    """Calls the model by the batch convention: a tuple is splatted, a dict passed as keywords, else one argument."""
    inputs = map_tensors(_plain, inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(inputs)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """All tensors of a pytree, looking into dataclasses and plain objects that hold tensors as attributes too."""
    found: list[torch.Tensor] = []
    seen: set[int] = set()
    todo = [tree]
    while todo:
        for leaf in tree_flatten(todo.pop())[0]:
            if isinstance(leaf, torch.Tensor):
                found.append(leaf)
            elif hasattr(leaf, "__dict__") and not isinstance(leaf, type | nn.Module) and id(leaf) not in seen:
                seen.add(id(leaf))
                todo.append(list(vars(leaf).values()))
            elif isinstance(leaf, set | frozenset):
                todo.append(list(leaf))
            elif hasattr(type(leaf), "__slots__") and not isinstance(leaf, str | bytes | int | float | complex):
                names = [name for base in type(leaf).__mro__ for name in getattr(base, "__slots__", ())]
                if id(leaf) not in seen:
                    seen.add(id(leaf))
                    todo.append([getattr(leaf, name) for name in names if hasattr(leaf, name)])
    return found


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """The same pytree with every tensor replaced, in dataclasses and plain objects too, of which copies are made."""
    made: dict[int, Any] = {}

    def replaced(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return function(leaf)
        if not tensors_in(leaf) or isinstance(leaf, set | frozenset):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = twin = copy.copy(leaf)
            for name in _attributes(leaf):
                object.__setattr__(twin, name, map_tensors(function, getattr(leaf, name)))
        return made[id(leaf)]

    return tree_map(replaced, tree)


def _attributes(leaf: Any) -> list[str]:
    """Names of what an object that is no pytree holds, in its dictionary or in slots."""
    slots = [name for base in type(leaf).__mro__ for name in getattr(base, "__slots__", ())]
    return [*getattr(leaf, "__dict__", ()), *(name for name in slots if hasattr(leaf, name))]


def is_floating(tensor: torch.Tensor) -> bool:
    """True for tensors that carry activations or weights; indices and counters are not."""
    return tensor.is_floating_point() or tensor.is_complex()


def named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer once, under its first name, floating point or not."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def copy_model(model: nn.Module, *, meta: bool, twins: Mapping[int, torch.Tensor] | None = None) -> nn.Module:
    """Copies a network; with ``meta`` its floating-point tensors become data-free, so that nothing is allocated.

    ``twins`` are tensors to put in place of others, by the ``id`` of those, so that what is replaced is never copied.
    Integer buffers keep their values (they may index channels). Modules that hold a computed, non-leaf tensor as a
    plain attribute or in a container (weight norm by hook, features kept between calls) copy too, which
    ``copy.deepcopy`` alone refuses.
    """
    memo: dict[int, Any] = dict(twins or {})
    for name, tensor in named_tensors(model):
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise UnsupportedError(
                f"{name!r} is not initialised yet (lazy module): run the model once on an example, then again"
            )
        if id(tensor) in memo:
            continue
        if meta and is_floating(tensor):
            twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
            memo[id(tensor)] = (
                nn.Parameter(twin, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else twin
            )
        elif not tensor.is_leaf:
            memo[id(tensor)] = tensor.detach().clone()
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Tensor | list | tuple):
                for tensor in flat_tensors(value):
                    if id(tensor) not in memo and not tensor.is_leaf:
                        memo[id(tensor)] = tensor.detach().to(META) if meta else tensor.detach().clone()
    return copy_tree(model, memo)


def meta_copy(model: nn.Module) -> nn.Module:
    """Copies the structure of a network without its data: every floating-point tensor lives on the meta device."""
    return copy_model(model, meta=True)


def to_meta(inputs: Any) -> Any:
    """The same pytree with its floating-point tensors on the meta device (indices keep their values)."""
    return map_tensors(lambda x: x.detach().to(META) if is_floating(x) else x, inputs)


def at_least_two(inputs: Any, count: int = 2) -> Any:
    """The same pytree with a batch of one repeated, since train-mode norms refuse a single value."""

    def repeat(x: torch.Tensor) -> torch.Tensor:
        return x.repeat(count, *[1] * (x.dim() - 1)) if x.dim() > 1 and x.shape[0] == 1 else x

    return map_tensors(repeat, inputs)


def redrawn(inputs: Any, seed: int) -> Any:
    """The same pytree with other numbers of the same spread in its floating-point tensors."""
    generator = torch.Generator().manual_seed(seed)

    def draw(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point() or x.numel() < 2:
            return x
        noise = torch.randn(x.shape, generator=generator).to(x)
        return x.mean() + noise * x.std().clamp(min=1e-3)

    return map_tensors(draw, inputs)


def redraw_weights(model: nn.Module, seed: int) -> None:
    """Gives a copy other weights and biases, so that decisions by data fall otherwise; norms keep their statistics."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator).to(parameter)
                parameter.copy_(noise / max(1, parameter[0].numel() if parameter.dim() > 1 else 4) ** 0.5)


@cache
def _places(func: Any) -> bool:
    """True if an operator can be told on which device to put its result."""
    return any(argument.name == "device" for argument in func._schema.arguments)


def execute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs one operator where some tensors hold no data: devices and stray real tensors are brought to meta.

    Tensors made from nothing become data-free if they are floating point; integer ones are really made, since code
    may index channels with them.
    """
    flat = list(flat_tensors((args, kwargs)))
    if not flat:
        if not _places(func):
            return func(*args, **kwargs)
        out = func(*args, **{**kwargs, "device": META})
        return out if is_floating(out) else func(*args, **{**kwargs, "device": torch.device("cpu")})
    real = [x for x in flat if x.device.type != "meta"]
    if len(real) == len(flat):
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "meta":
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return func(*args, **kwargs)
    if "device" in kwargs:
        kwargs = {k: META if k == "device" and v is not None else v for k, v in kwargs.items()}
    if real:
        args, kwargs = tree_map(
            lambda x: x.to(META) if isinstance(x, torch.Tensor) and x.device.type != "meta" else x, (args, kwargs)
        )
    out = shortcut(func, args, kwargs)
    return func(*args, **kwargs) if out is None else out


class MetaMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, code written for any device runs on data-free tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return execute(func, args, kwargs or {})


@contextmanager
def untouched_rng() -> Iterator[None]:
    """Leaves the global random state as it was found: torch's on CPU and CUDA, Python's and numpy's.

    So two runs inside draw the same numbers too, and a network that drops blocks at random drops the same ones.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 -- it is the global one that counts
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


@contextmanager
def written_out() -> Iterator[None]:
    """Lets torch's transformer layers run their ordinary operators, not the one fused operator of evaluation.

    Whether they take it depends on hooks, so the same network would run in two ways.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def in_double(model: nn.Module) -> nn.Module:
    """The same module in float64, complex tensors in complex128."""

    def convert(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(torch.complex128)
        return tensor.to(torch.float64) if tensor.is_floating_point() else tensor

    model._apply(convert)  # type: ignore[no-untyped-call]
    return model


AMBIENT = range(0x3A7B1D5E9C2F4000, 0x3A7B1D5E9C2F5000)
"""Where torch's generator starts in a run; another start means that the code has seeded it."""


def ambient_seed(number: int = 0) -> None:
    """Starts torch's generator, inside ``untouched_rng``, so that code which seeds it itself can be told."""
    torch.default_generator.manual_seed(AMBIENT[number])


def drawn_anew(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """True for operators whose numbers are other ones at every call: random, and not from a seed in the code.

    What code draws from a seed of its own are constants, one for each channel mostly.
    """
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    return kwargs.get("generator") is None and torch.default_generator.initial_seed() in AMBIENT


def seed_everything(seed: int) -> None:
    """Sets the global generators, inside ``untouched_rng``."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    ambient_seed(seed)


def drawn_so_far() -> tuple[Any, bytes, torch.Tensor]:
    """Where the global generators stand: Python's, numpy's, torch's."""
    state: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), state[1].tobytes() + str(state[2:]).encode(), torch.get_rng_state()


def holdings(model: nn.Module) -> list[tuple[int, ...]]:
    """What every module holds, by identity: differs after a run that left something behind, such as a cached tensor."""
    found = []
    for module in model.modules():
        ids = [id(module)]
        for name, value in vars(module).items():
            if name != "training":
                ids.append(id(value))
                if isinstance(value, dict | list | set):
                    ids.extend(map(id, value.values() if isinstance(value, dict) else value))
        found.append(tuple(ids))
    return found
