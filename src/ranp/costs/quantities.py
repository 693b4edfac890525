"""The quantities that reweighting, budgets, studies, reports and the command line know: one table of names.

A quantity of your own becomes a resource, a budget and a name in ``--help`` once it is registered:

>>> mine = Quantity(
...     "channels",
...     unit="channels",
...     description="output channels of all layers",
...     by_layer=lambda trace, convention: {layer.name: layer.channels for layer in trace.layers},
...     of_choice=lambda choice, convention: sum(map(len, choice.kept.values())),
... )
>>> mine.format(1.5e6), mine.exactly(12.2)
('1.5 M channels', 'channels=13')

Nothing here imports torch, so that the command line can tell the names without it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranp.errors import UnsupportedError, unknown_name
from ranp.progress import Progress
from ranp.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from ranp.costs.step import StepTrace
    from ranp.tracing.choice import Choice
    from ranp.tracing.trace import Trace


_COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES = {
    **{unit: 1000.0**power for power, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: 1024.0**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))},
    "KB": 1e3,
}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_SHOWN = {"seconds": ("s", "ms", "us"), "bytes": ("GiB", "MiB", "KiB", "B")}
_NUMBER = re.compile(r"([0-9][0-9_,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+)\s*(\S*)")


TRAINING, FORWARD, INFERENCE = "training", "forward", "inference"


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """Something that a network needs.

    Attributes:
        name: As it is written in a budget or as a resource.
        unit: Of its figures: ``"bytes"``, ``"seconds"``, or what is counted.
        description: One line for people.
        by_layer: What each layer needs, for reweighting: from the trace and, for a quantity of a step, the step of the
            full network, for one that is measured, the setup of a step, else the convention. None: it is no resource.
        of_choice: What the network with only these channels needs, exactly, for budgets: from a choice and the
            convention.
        of_network: The same from a network that is really cut, its inputs and the convention; checks ``of_choice``.
        of_step: From the step of the full network, and whom to tell of progress, to a function from a step to a figure:
            for what a trace does not tell; with ``of_choice`` too, in the convention ``"true"`` only.
        is_measured: Whether it is the time of real steps of networks that are really cut, instead of all these.
        part: Which part of a training step that is: ``TRAINING`` (all of it), ``FORWARD`` (the forward pass, with what
            it keeps for the backward pass) or ``INFERENCE`` (one inference instead).
        rises: Whether more channels never need less; not so of time, where 24 channels may be faster than 20.
        example: A budget of it.
    """

    name: str
    unit: str
    description: str
    by_layer: Callable[[Trace, Any], Mapping[str, float]] | None = None
    of_choice: Callable[[Choice, str], float] | None = None
    of_network: Callable[[nn.Module, Any, str], float] | None = None
    of_step: Callable[[StepTrace, Progress | None], Callable[[StepTrace], float]] | None = None
    is_measured: bool = False
    part: str = TRAINING
    rises: bool = True
    example: str = "50%"

    @property
    def scales(self) -> Mapping[str, float]:
        """Units in which a figure can be written, each with its factor."""
        return {"seconds": _SECONDS, "bytes": _BYTES}.get(self.unit, _COUNTS)

    @property
    def needs_step(self) -> bool:
        """Whether a trace alone does not tell it."""
        return self.of_choice is None and (self.of_step is not None or self.is_measured)

    @property
    def needs_loss(self) -> bool:
        """Whether it is about a whole training step, and so about the loss too."""
        return self.needs_step and self.part == TRAINING

    def format(self, figure: float) -> str:
        """A figure for people: ``11.89 GFLOPs``, ``1.5 GiB``, ``30.1 ms``."""
        names = _SHOWN.get(self.unit, ("G", "M", "k", ""))
        name = next((name for name in names if figure >= self.scales[name]), names[-1])
        number = f"{figure / self.scales[name]:.{3 if self.unit == 'seconds' else 4}g}"
        if self.unit in _SHOWN:
            return f"{number} {name}"
        return f"{number} {name}{' ' if name and self.unit != 'FLOPs' else ''}{self.unit}"

    def exactly(self, figure: float) -> str:
        """A budget of that figure, as it would be written: asking for it is sure to allow the figure."""
        if self.unit == "seconds":
            return f"{self.name}={math.ceil(figure * 1e6) + 1}us"
        return f"{self.name}={math.ceil(figure)}{'B' if self.unit == 'bytes' else ''}"

    def parse(self, text: str) -> tuple[float | None, float]:
        """Reads a share of the full network (``5%``, or ``4x`` for a quarter) or a figure with its unit.

        Returns:
            The share, or None and the figure.

        Raises:
            UnsupportedError: It is neither.
        """
        found = _NUMBER.fullmatch(text)
        number = float(re.sub("[_,]", "", found[1])) if found else math.nan
        unit = found[2] if found else ""
        if unit == "%" and 0 < number <= 100:
            return number / 100, 0.0
        if unit in ("x", "X") and 1 <= number < math.inf:
            return 1 / number, 0.0
        if unit in self.scales and 0 < number < math.inf:
            return None, number * self.scales[unit]
        if self.unit == "bytes" and (question := which_bytes(text)):
            raise UnsupportedError(f"{text!r} can mean two sizes: {question} Write the one you mean.")
        units = ", ".join(unit for unit in self.scales if unit)
        raise UnsupportedError(
            f"the value {text!r} is not allowed. Pass a share of the full network (5%, or 4x for a quarter) or a "
            f"number above 0 with a unit of {self.description} ({units})."
        )


def which_bytes(text: str) -> str:
    """The question that a size without its last letters raises; empty where there is none.

    >>> which_bytes("8G"), which_bytes("8GiB")
    ('8GiB or 8GB?', '')
    """
    found = _NUMBER.fullmatch(text)
    prefix = found[2].upper() if found else ""
    return f"{found[1]}{prefix}iB or {found[1]}{prefix}B?" if found and prefix in ("K", "M", "G", "T") else ""


QUANTITIES: Registry[Quantity] = Registry("quantity")
ALIASES = {"time": "step-time"}
"""Other names, by which resources are known in plans and at the command line."""


def register(quantity: Quantity) -> Quantity:
    """Makes a quantity known by its name, as a resource, for budgets and at the command line."""
    return QUANTITIES.register(quantity.name, quantity)


def resources(*, of_step: bool = True) -> tuple[str, ...]:
    """Names by which scores can be reweighted; without ``of_step`` those that a trace alone can tell."""
    found = (one for one in map(QUANTITIES.get, QUANTITIES) if one.by_layer and (of_step or not one.needs_step))
    short = {full: short for short, full in ALIASES.items()}
    return tuple(short.get(one.name, one.name) for one in found)


def budget_examples() -> str:
    """A budget of every quantity that can have one, for help texts."""
    found = map(QUANTITIES.get, QUANTITIES)
    return ", ".join(f"{one.name}={one.example}" for one in found if one.of_choice or one.needs_step)


def find(name: object, what: str, allowed: Sequence[str] | None = None) -> Quantity:
    """The quantity of that name.

    Raises:
        UnsupportedError: There is none, or it is not among those allowed.
    """
    names = tuple(QUANTITIES) if allowed is None else allowed
    full = ALIASES.get(name, name) if isinstance(name, str) else ""
    if full not in {ALIASES.get(one, one) for one in names}:
        raise UnsupportedError(unknown_name(what, name, names))
    return QUANTITIES.get(full)


def needs_loss(resource: object) -> bool:
    """True if the resource, or one of several, is about a training step."""
    if isinstance(resource, str):
        name = ALIASES.get(resource, resource)
        return name in QUANTITIES and QUANTITIES.get(name).needs_loss
    return isinstance(resource, Sequence) and any(map(needs_loss, resource))


def _by_layer(function: str) -> Callable[[Trace, Any], Mapping[str, float]]:
    def by_layer(trace: Trace, source: Any) -> Mapping[str, float]:
        from ranp.costs import layers

        found: Mapping[str, float] = getattr(layers, function)(trace, source)
        return found

    return by_layer


def _counted(name: str, figure: str, unit: str, description: str, example: str, **more: Any) -> Quantity:
    """What ``Prices`` tell of a choice and ``profile``, by the name of that figure, of a network."""

    def of_choice(choice: Choice, convention: str) -> float:
        from ranp.costs.prices import Prices

        return float(getattr(Prices.of(choice.trace, convention).at(choice), figure))

    def of_network(network: nn.Module, example: Any, convention: str) -> float:
        from ranp.costs.measuring import profile

        if name == "params":
            return sum(parameter.numel() for parameter in network.parameters())
        return float(getattr(profile(network, example, convention=convention), figure))

    return Quantity(name, unit, description, of_choice=of_choice, of_network=of_network, example=example, **more)


def _kept(_full: StepTrace, _progress: Progress | None) -> Callable[[StepTrace], float]:
    from ranp.costs.memory import kept_bytes

    return kept_bytes


def _peaks(_full: StepTrace, _progress: Progress | None) -> Callable[[StepTrace], float]:
    from ranp.costs.memory import peak

    return lambda step: peak(step).peak


_OUTPUTS, _KEPT, _SECONDS_EACH = map(_by_layer, ("memory_by_layer", "kept_by_layer", "seconds_by_layer"))
for _quantity in (
    _counted("flops", "flops", "FLOPs", "FLOPs of one call", "5%", by_layer=_by_layer("flops_by_layer")),
    _counted("macs", "macs", "multiply-adds", "multiply-adds of one call", "7.5G"),
    _counted("params", "params", "parameters", "all parameters", "1M", by_layer=_by_layer("params_by_layer")),
    _counted(
        "memory", "memory_bytes", "bytes", "activations kept for the backward pass", "25%",
        by_layer=_OUTPUTS, of_step=_kept, part=FORWARD,
    ),
    Quantity("train-memory", "bytes", "peak of one training step", _KEPT, of_step=_peaks, example="8GiB"),
    Quantity(
        "step-time", "seconds", "one training step, measured on this machine", _SECONDS_EACH,
        is_measured=True, rises=False, example="4x",
    ),
    Quantity(
        "latency", "seconds", "one inference, measured on this machine",
        is_measured=True, part=INFERENCE, rises=False, example="30ms",
    ),
):  # fmt: skip
    register(_quantity)
del _quantity
