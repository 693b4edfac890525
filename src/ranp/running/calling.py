"""What a network is and how it is called: the batch convention, and the tensors of any inputs or outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from ranp.arguments import function, refused
from ranp.errors import UnsupportedError

TensorT = TypeVar("TensorT", bound=torch.Tensor)
_QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")


def checked_network(model: Any, name: str = "model") -> nn.Module:
    """A network whose code can be followed and whose weights can be cut."""
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise UnsupportedError(
            f"{name} is TorchScript, whose code cannot be followed. Pass the nn.Module it was made from, and script "
            "the slim network."
        )
    if not isinstance(model, nn.Module):
        function(name, model, "a network, an nn.Module")  # a class has a sentence of its own
        raise refused(name, model, "a network, an nn.Module")
    for place, module in named_modules(model):
        if type(module).__module__.startswith(_QUANTISED):
            raise UnsupportedError(
                f"{name} is quantised: {place!r} ({type(module).__name__}) holds packed weights, which can be neither "
                "scored nor cut. Prune the float network, then quantise the slim one."
            )
    return model


def unwrap(model: nn.Module) -> nn.Module:
    """Returns the network inside DataParallel, DistributedDataParallel and ``torch.compile`` wrappers.

    Raises:
        UnsupportedError: It is not a network, or one that cannot be followed or cut.
    """
    checked_network(model)
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def plain_tensor(leaf: torch.Tensor) -> torch.Tensor:
    """A tensor without the subclass that would wrap every result anew, and so lose what tensors carry (MetaTensor)."""
    if type(leaf) is torch.Tensor:
        return leaf
    if type(leaf).__torch_function__ is torch._C._disabled_torch_function_impl:  # such as parameters: leave no trace
        return leaf
    return leaf.as_subclass(torch.Tensor)


def call(model: nn.Module, inputs: Any) -> Any:
    """Calls the model by the batch convention: a tuple is splatted, a dict passed as keywords, else one argument."""
    inputs = map_tensors(plain_tensor, inputs)
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
            elif isinstance(leaf, set | frozenset):
                todo.append(list(leaf))
            elif not isinstance(leaf, type | nn.Module | str | bytes | int | float | complex) and id(leaf) not in seen:
                seen.add(id(leaf))
                todo.append([getattr(leaf, name) for name in attributes(leaf)])
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
            for name in attributes(leaf):
                object.__setattr__(twin, name, map_tensors(function, getattr(leaf, name)))
        return made[id(leaf)]

    return tree_map(replaced, tree)


def attributes(leaf: Any) -> list[str]:
    """Names of what an object that is not a pytree holds, in its dictionary or in slots."""
    slots = [name for base in type(leaf).__mro__ for name in getattr(base, "__slots__", ())]
    return [*getattr(leaf, "__dict__", ()), *(name for name in slots if hasattr(leaf, name))]


def is_floating(tensor: torch.Tensor) -> bool:
    """True for tensors that carry activations or weights; indices and counters are not."""
    return tensor.is_floating_point() or tensor.is_complex()


def named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """What ``model.named_modules()`` gives, without handing each module up through all those it lies in."""
    found = {id(model): ("", model)}

    def walk(prefix: str, children: Mapping[str, nn.Module | None]) -> None:
        for key, child in children.items():
            if child is not None and id(child) not in found:
                name = prefix + key
                found[id(child)] = name, child
                if child._modules:
                    walk(f"{name}.", child._modules)

    walk("", model._modules)
    return list(found.values())


def named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer once, under its first name, floating point or not."""
    modules = named_modules(model)
    yield from _once((prefix, module._parameters) for prefix, module in modules)
    yield from _once((prefix, module._buffers) for prefix, module in modules)


def named_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """What ``model.named_parameters()`` gives, as fast."""
    return _once((prefix, module._parameters) for prefix, module in named_modules(model))


def _once(held: Iterable[tuple[str, Mapping[str, TensorT | None]]]) -> Iterator[tuple[str, TensorT]]:
    seen: set[int] = set()
    for prefix, tensors in held:
        for name, tensor in tensors.items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{prefix}.{name}" if prefix else name, tensor


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


def first_line(error: BaseException, limit: int = 300) -> str:
    """The type of an error and the first line of what it says."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:limit]
