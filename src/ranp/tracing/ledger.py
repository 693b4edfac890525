"""What a run leaves behind besides labels: one record for each operator, and what was seen on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ranp.tracing.constants import Values
from ranp.tracing.labels import Vector

Place = tuple[str, str, int]
"""Module, operator, and which one of its kind in that module: finds an operator in a run at another size too."""


@dataclass(frozen=True, slots=True)
class MetConstant:
    """A constant where it meets tensors that are none."""

    number: int
    """Of the tensor among the arguments."""
    values: Values
    """Its numbers; a dimension along which they are the same has size one."""
    labels: tuple[Vector | None, ...]
    """For each dimension the channels that it has, or meets one by one if the operator works element by element."""


@dataclass(frozen=True, slots=True)
class OpRecord:
    """What one operator took in: enough to name it, to pin it, and to compare it with the slim network's."""

    name: str
    where: str
    inputs: tuple[tuple[int, int, Vector], ...]
    """Number of the tensor among the arguments, dimension, labels."""
    numbers: tuple[int | float, ...] = ()
    """Plain numbers that meet the elements: one that depends on the count of channels is another one when some go."""
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    """Of each tensor among the arguments; None for those whose size does not matter, such as constants."""
    constants: tuple[MetConstant, ...] = ()
    """Constants that meet other tensors here."""


def places_of(records: Iterable[OpRecord]) -> list[Place]:
    """Where every operator of a run stands."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for record in records:
        key = (record.where, record.name)
        found.append((*key, seen[key]))
        seen[key] += 1
    return found


@dataclass(slots=True)
class Ledger:
    """What runs leave behind besides labels, operator by operator."""

    records: list[OpRecord] = field(default_factory=list)
    in_flight: bool = False
    """True while an operator runs: an error is then the operator's, otherwise of the Python code between two."""
    splits: set[int] = field(default_factory=set)
    """Views that split labelled channels over several dimensions."""
    depthwise: set[tuple[str, int]] = field(default_factory=set)
    """Convolutions with one channel in each group: which of their name, since a cut copy may need fewer views."""
    unknown: dict[str, None] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    """Parameters and buffers that some operator read."""
    consumers: dict[str, set[str]] = field(default_factory=dict)
    """Layer -> modules that consume its output (empty string: code outside of a norm)."""
    functional: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Weights used by function call -> (output dimension, input dimension)."""
    functional_at: dict[int, str] = field(default_factory=dict)
    """Operator -> the weight it used by function call."""
    decisions: dict[int, Any] = field(default_factory=dict)
    """Operator -> what data decided there: positions, comparisons, plain numbers. Only of runs with data."""
    decided_by: list[tuple[Vector, str]] = field(default_factory=list)
    """Channels whose values, reduced to a number, reached the code, and the module where they did."""
    outputs: dict[str, Vector] = field(default_factory=dict)
    """Layer module -> labels of its output channels, for layers whose weight is computed."""
    drew: bool = False
    """True if the code drew random numbers that may have decided its path."""

    def join(self, other: Ledger) -> None:
        """Takes in what another run of the same network left, but for the operators themselves."""
        self.unknown |= other.unknown
        self.touched |= other.touched
        for layer, where in other.consumers.items():
            self.consumers.setdefault(layer, set()).update(where)
        for name, dims in other.functional.items():
            self.functional.setdefault(name, dims)
        for layer, vector in other.outputs.items():
            self.outputs.setdefault(layer, vector)
        self.decided_by += other.decided_by


@dataclass(slots=True)
class Run:
    """One labelled run in one mode."""

    ledger: Ledger = field(default_factory=Ledger)
    failed: str = ""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of the outputs."""
