"""The arguments of an operator that are not tensors, as a value.

Sizes that repeat the shape of a tensor of the call are held as a reference to it (``"=O0"``: the shape of the first
output), so that the same operator at another width has the same settings wherever it can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ranp.costs.step.records import Sized

_SHAPES = frozenset("size self_size input_size input_sizes self_sizes bias_sizes normalized_shape shape sizes".split())
"""Names of list arguments that repeat a shape."""
_COUNTS = frozenset(["N", "C", "HxW"])
"""Names of the arguments by which group normalisation repeats the shape of its first input."""
_TENSOR = "T"


@dataclass(frozen=True, slots=True)
class Tag:
    """An argument that is neither a number nor a list: ``"text"``, ``"torch"`` (a constant), ``"device"`` and so on."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Settings:
    """All arguments of a call: None, flags, numbers, tuples of these, ``"T"`` for a tensor, references and tags.

    >>> given = Settings(("T", (2, 3), 1.5))
    >>> given.numbers, given.with_numbers([4, 6]).positional
    ((2, 3), ('T', (4, 6), 1.5))

    Attributes:
        positional: In order.
        named: By keyword.
    """

    positional: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Settings:
        """The settings of that text."""
        positional, *named = json.loads(text)
        return cls(tuple(map(_read, positional)), tuple((name, _read(value)) for name, value in dict(*named).items()))

    @property
    def numbers(self) -> tuple[int, ...]:
        """All whole numbers, in order."""
        found: list[int] = []
        _mapped((self.positional, self.named), int, found.append)
        return tuple(found)

    def with_numbers(self, numbers: Iterable[int]) -> Settings:
        """The same with other whole numbers, as many as there are."""
        given = iter(numbers)
        return Settings(*_mapped((self.positional, self.named), int, lambda _: next(given)))


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A nested value with each number of exactly that type changed."""
    if isinstance(value, tuple):
        return tuple(_mapped(item, kind, change) for item in value)
    return change(value) if type(value) is kind else value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_read, value))
    return Tag(*next(iter(value.items()))) if isinstance(value, dict) else value


def settings_of(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[Sized], outputs: Sequence[Sized]
) -> Settings:
    """The settings of a call."""
    names = [argument.name for argument in func._schema.arguments]
    return Settings(
        tuple(_encoded(value, name, inputs, outputs) for name, value in zip(names, args, strict=False)),
        tuple((name, _encoded(value, name, inputs, outputs)) for name, value in kwargs.items()),
    )


def _encoded(value: Any, name: str, inputs: Sequence[Sized], outputs: Sequence[Sized]) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, torch.Tensor):
        return _TENSOR
    if isinstance(value, int | torch.SymInt):
        number = int(value)
        if name in _COUNTS and inputs:
            axis = ("N", "C", "HxW").index(name)
            if _count(axis, inputs[0].shape) == number:
                return f"=N{axis}"
        return number
    if isinstance(value, list | tuple):
        reference = _reference([int(item) for item in value], inputs, outputs) if name in _SHAPES else ""
        return reference or tuple(_encoded(item, "", inputs, outputs) for item in value)
    if isinstance(value, str):
        return Tag("text", value)
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return Tag("torch", str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return Tag("device", value.type)
    if isinstance(value, complex):
        return Tag("complex", (value.real, value.imag))
    return Tag("unknown", type(value).__name__)


def _count(axis: int, shape: Sequence[int]) -> int:
    return prod(shape[2:]) if axis == 2 else shape[axis] if axis < len(shape) else -1


def _reference(sizes: list[int], inputs: Sequence[Sized], outputs: Sequence[Sized]) -> str:
    """The first tensor whose shape, or whose last extents, these sizes are."""
    for letter, tensors in (("O", outputs), ("I", inputs)):
        for index, tensor in enumerate(tensors):
            if sizes == list(tensor.shape):
                return f"={letter}{index}"
    for index, tensor in enumerate(inputs):
        if sizes and sizes == list(tensor.shape[-len(sizes) :]):
            return f"=I{index}:{len(sizes)}"
    return ""
