"""Calls of operators: what their schemas say, their arguments by name, and the tensors among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


def flat_tensors(value: Any) -> list[torch.Tensor]:
    """Tensors among an operator's arguments, in order, looking into lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    if isinstance(value, list | tuple | dict):
        _collect(value.values() if isinstance(value, dict) else value, found)
    return found


_PLAIN = frozenset([int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format])
"""What most arguments are that hold no tensor."""


def _collect(items: Iterable[Any], found: list[torch.Tensor]) -> None:
    for item in items:
        if type(item) in _PLAIN:
            continue
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            _collect(item, found)
        elif isinstance(item, dict):
            _collect(item.values(), found)


@dataclass(frozen=True, slots=True)
class Schema:
    """What is known of an operator whatever it is called with.

    Attributes:
        name: Without namespace and overload.
        namespace: ``"aten"`` for torch's own.
        names: Of its arguments, in order.
        defaults: Values of the arguments that may be left out.
        mutable: It writes into some argument.
        in_place: It writes into its first argument and returns it.
        view: Its first result shares memory with an argument.
        pointwise: It works element by element.
        random: It draws from a generator.
    """

    name: str
    namespace: str
    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    mutable: bool
    in_place: bool
    view: bool
    pointwise: bool
    random: bool


@cache
def _written(func: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of the arguments that an operator writes to. Batch norms do not say that they do."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if (argument.alias_info is not None and argument.alias_info.is_write)
        or argument.name in ("running_mean", "running_var")
    )


def written_tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that a call of an operator writes to."""
    for position, name in _written(func):
        yield from flat_tensors(args[position] if position < len(args) else kwargs.get(name))


@cache
def schema_of(func: Any) -> Schema:
    """The schema of an operator, read once."""
    schema = func._schema
    shared = schema.returns[0].alias_info if schema.returns else None
    return Schema(
        name=schema.name.split("::")[-1],
        namespace=func.namespace,
        names=tuple(argument.name for argument in schema.arguments),
        defaults={a.name: a.default_value for a in schema.arguments if a.has_default_value()},
        mutable=schema.is_mutable,
        in_place=shared is not None and bool(shared.is_write),
        view=shared is not None,
        pointwise=torch.Tag.pointwise in func.tags,
        random=torch.Tag.nondeterministic_seeded in func.tags,
    )


class Operator:
    """A call of an operator: its arguments by name.

    >>> call = Operator(torch.ops.aten.mul.Tensor, (torch.ones(2), 3), {})
    >>> call.name, call["other"]
    ('mul', 3)
    """

    __slots__ = ("arguments", "func", "name", "schema")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func = func
        self.schema = schema = schema_of(func)
        self.name = schema.name
        self.arguments: dict[str, Any] = {**schema.defaults, **dict(zip(schema.names, args, strict=False)), **kwargs}

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Every tensor that went in."""
        return flat_tensors(self.arguments)
