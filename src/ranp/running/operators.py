"""Calls of operators: their arguments by name, and the tensors among them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch


def flat_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors among an operator's arguments, in order, looking into lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, torch.Tensor):
                yield item
            elif isinstance(item, list | tuple | dict):
                yield from flat_tensors(item)


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
def _signature(func: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of an operator's arguments, and the values of those that may be left out."""
    schema = func._schema.arguments
    return tuple(a.name for a in schema), {a.name: a.default_value for a in schema if a.has_default_value()}


class Operator:
    """A call of an operator: its arguments by name.

    >>> call = Operator(torch.ops.aten.mul.Tensor, (torch.ones(2), 3), {})
    >>> call.name, call["other"]
    ('mul', 3)
    """

    __slots__ = ("arguments", "func", "name")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func = func
        self.name: str = func._schema.name.split("::")[-1]
        names, defaults = _signature(func)
        self.arguments: dict[str, Any] = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Every tensor that went in."""
        return list(flat_tensors(self.arguments))
