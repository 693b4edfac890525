"""Widths that a module keeps in an attribute: ``x.view(b, self.width, -1)``, ``if x.shape[1] != self.width: raise``.

Code that dies in a trial cut may only need the new width. Which attribute that is can be guessed, since a
guess is tried at once: a whole number that equals the number of channels, in the module that ran or one around it, is
cut like a tensor, and if the trial then comes further, it was the one. What is wrong in any other way is still found by
the comparison of channels, of numbers, and of outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import nn
from torch.utils.hooks import RemovableHandle

from ranp.running.calling import named_modules
from ranp.tracing.cuts import Births
from ranp.tracing.cutting import numbers_in
from ranp.tracing.labels import LabelSpace, Vector
from ranp.tracing.ledger import OpRecord
from ranp.tracing.operation import labels_of
from ranp.tracing.trace import Cause

Key = tuple[str, int]
"""``module.attribute``, and which of its numbers if it holds several."""

CANDIDATES = 12
"""Guesses at one failure; code seldom knows a width by more names."""


def width_attributes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Whole numbers that a module holds, alone, in a list or tuple, or among the arguments of a partial function.

    Layers of torch itself mirror their tensors, and are left out.
    """
    if isinstance(module, nn.MultiheadAttention):  # but for the one whose code asks for its width
        return {name: (getattr(module, name),) for name in ("embed_dim", "num_heads")}
    if type(module).__module__.startswith("torch.nn.modules."):
        return {}
    found = {name: numbers_in(module, name) for name in vars(module) if not name.startswith("_")}
    return {name: numbers for name, numbers in found.items() if numbers is not None}


def with_distinct(vectors: Sequence[Vector], roots: Vector) -> list[Vector]:
    """The vectors, and for those in which channels stand for several indices each, one index of every channel."""
    found = list(vectors)
    for vector in vectors:
        firsts = np.sort(np.unique(roots[vector], return_index=True)[1])
        if len(firsts) < len(vector):
            found.append(vector[firsts])
    return found


def owners_of(where: str) -> Iterator[str]:
    """A module and those around it, innermost first."""
    yield where
    while where:
        where = where.rpartition(".")[0]
        yield where


def attributes_near(model: nn.Module, record: OpRecord, vectors: list[Vector]) -> list[tuple[Key, Vector]]:
    """Attributes that may hold the number of the channels that an operator reads, the likeliest first."""
    found: list[tuple[Key, Vector]] = []
    modules = dict(named_modules(model))
    for owner in owners_of(record.where):
        for attribute, numbers in width_attributes(modules[owner]).items():
            for at, number in enumerate(numbers):
                vector = next((vector for vector in vectors if len(vector) == number > 1), None)
                if vector is not None:
                    found.append(((f"{owner}.{attribute}".lstrip("."), at), vector))
    return found[:CANDIDATES]


def transferred(key: Key, place: OpRecord, other: OpRecord) -> Key | None:
    """The same attribute of the module that plays the same part around another operator."""
    owner, _, attribute = key[0].rpartition(".")
    depth = place.where.count(".") - owner.count(".") if owner else None
    if depth is None:
        return None
    parts = other.where.split(".")
    return f"{'.'.join(parts[: len(parts) - depth])}.{attribute}", key[1]


def keep_projected(model: nn.Module, space: LabelSpace, births: Births) -> None:
    """Pins the states of an LSTM that projects them: torch takes it for one that does not if both are equally wide."""
    for name, module in named_modules(model):
        if isinstance(module, nn.LSTM) and module.proj_size:
            for (tensor, _), labels in births.items():
                if tensor.startswith(f"{name}.weight_hr_".lstrip(".")):
                    space.pin(labels, "must be wider than its projection", name, cause=Cause.CODE)


def watch_norms(model: nn.Module, space: LabelSpace, attributes: dict[Key, Vector]) -> Iterator[RemovableHandle]:
    """Lets norms that hold no tensor, so that no cut would reach their channel count, note what comes in.

    They still mirror that count in an attribute, which is cut like a tensor.
    """
    kinds = (nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
    for name, module in named_modules(model):
        bare = isinstance(module, kinds) and next(module.parameters(), None) is None
        if bare and getattr(module, "running_mean", None) is None:
            yield module.register_forward_pre_hook(_watch(name, module, space, attributes))


def _watch(
    name: str, module: nn.Module, space: LabelSpace, attributes: dict[Key, Vector]
) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    shaped = isinstance(module, nn.LayerNorm | nn.RMSNorm)
    attribute = "normalized_shape" if shaped else "num_channels" if isinstance(module, nn.GroupNorm) else "num_features"
    first = -len(getattr(module, attribute)) if shaped else 1

    def watch(module: nn.Module, args: tuple[Any, ...]) -> None:
        for dim, vector in labels_of(args[0] if args else None).items():
            at = dim - args[0].dim() - first if first < 0 else 0 if dim == 1 else -1
            if at >= 0:
                space.unite(attributes.setdefault((f"{name}.{attribute}", at), vector), vector)

    return watch
