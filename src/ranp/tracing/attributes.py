"""Tensors that modules hold as plain attributes, such as tables of positions: followed and cut as buffers are.

Such a tensor is in no state dict, moves with no ``.to()``, and keeps its data where all others have none, since code
may ask for its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ranp.running.calling import is_floating, named_modules, named_tensors


def plain_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every floating-point tensor that a module holds as a plain attribute, once, under its first name."""
    found = [
        (f"{name}.{key}" if name else key, value)
        for name, module in named_modules(model)
        for key, value in vars(module).items()
        if type(value) is torch.Tensor and is_floating(value)
    ]
    seen = {id(tensor) for _, tensor in named_tensors(model)} if found else set()
    for name, tensor in found:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def standing_alone(model: nn.Module) -> frozenset[str]:
    """Names of those that can be cut: what is computed from parameters, or shares memory with others, cannot."""
    found = {name: tensor for name, tensor in plain_tensors(model) if tensor.layout is torch.strided}
    if not found:
        return frozenset()
    memory = Counter(_memory(tensor) for tensor in found.values())
    memory.update(_memory(tensor) for _, tensor in named_tensors(model) if not is_lazy(tensor))
    return frozenset(
        name
        for name, tensor in found.items()
        if tensor.grad_fn is None and memory[_memory(tensor)] == 1 and not _computed(model, name)
    )


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def _computed(model: nn.Module, name: str) -> bool:
    """True for what a hook computes before every call: ``weight`` from ``weight_v`` and ``weight_g``, and the like."""
    owner, _, key = name.rpartition(".")
    return any(other.startswith(f"{key}_") for other in model.get_submodule(owner)._parameters)
