"""Budgets as people write them: ``flops=5%``, ``params=1M``, ``train-memory=8GiB``, ``step-time=4x``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ranp import arguments
from ranp.errors import UnsupportedError, unknown_name

_COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES = {
    **{unit: 1000.0**power for power, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: 1024.0**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))},
    "KB": 1e3,
}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_ELEMENT = 4
"""Bytes of an activation in the paper's convention."""

_AMOUNT = re.compile(r"([0-9][0-9_,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+)\s*(\S*)")


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a budget may be about.

    Attributes:
        name: As it is written in a budget.
        unit: Of its figures, for people.
        scales: Unit as written -> factor to the figure.
        description: One line for people.
    """

    name: str
    unit: str
    scales: Mapping[str, float]
    description: str


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("flops", "FLOPs", _COUNTS, "FLOPs in the paper's convention"),
        Quantity("macs", "multiply-adds", _COUNTS, "multiply-adds of convolutions and linear layers"),
        Quantity("params", "parameters", _COUNTS, "all parameters"),
        Quantity(
            "memory",
            "elements",
            {**_COUNTS, **{unit: scale / _ELEMENT for unit, scale in _BYTES.items()}},
            "activations in the paper's convention: elements, or bytes at 4 each",
        ),
        Quantity("train-memory", "bytes", _BYTES, "peak of one training step"),
        Quantity("step-time", "seconds", _SECONDS, "one training step on this machine"),
        Quantity("latency", "seconds", _SECONDS, "one inference on this machine"),
    )
}


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that the slim network may need of one resource.

    >>> Budget.parse("flops=5%").limit(200.0)
    10.0
    >>> Budget.parse("train-memory = 1.5 GiB").limit(0.0) == 1.5 * 2**30
    True
    >>> Budget.parse("step-time=4x").limit(2.0)
    0.5

    Attributes:
        resource: What it is about, a name of ``QUANTITIES``.
        share: The fraction of what the full network needs, or None.
        amount: The figure itself, where it is no share.
        text: As it was written.
    """

    resource: str
    share: float | None
    amount: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Reads ``resource=value``: a percentage, ``4x`` (a quarter), or a figure with its unit.

        Raises:
            UnsupportedError: It is no such text, the resource is unknown, or the value is not allowed.
        """
        name, equals, value = (part.strip() for part in str(text).partition("="))
        if not equals:
            raise UnsupportedError(f"budget {text!r} is not understood. Write resource=value, such as flops=5%.")
        if name not in QUANTITIES:
            raise UnsupportedError(unknown_name("resource of a budget", name, QUANTITIES))
        quantity = QUANTITIES[name]
        found = _AMOUNT.fullmatch(value)
        number = float(re.sub("[_,]", "", found[1])) if found else math.nan
        unit = found[2] if found else ""
        canonical = f"{name}={value}"
        if unit == "%" and 0 < number <= 100:
            return cls(name, number / 100, 0.0, canonical)
        if unit in ("x", "X") and 1 <= number < math.inf:
            return cls(name, 1 / number, 0.0, canonical)
        if unit in quantity.scales and 0 < number < math.inf:
            return cls(name, None, number * quantity.scales[unit], canonical)
        units = ", ".join(unit for unit in quantity.scales if unit)
        raise UnsupportedError(
            f"budget {text!r}: the value {value!r} is not allowed. Pass a share of the full network (5%, or 4x for a "
            f"quarter) or a number above 0 with a unit of {quantity.description} ({units})."
        )

    def limit(self, full: float) -> float:
        """The figure that may not be exceeded, given what the full network needs."""
        return self.amount if self.share is None else self.share * full

    @property
    def of_a_step(self) -> bool:
        """Whether it is about a training step, and so about the loss too."""
        return self.resource in ("train-memory", "step-time")

    @property
    def quantity(self) -> Quantity:
        """What it is about."""
        return QUANTITIES[self.resource]


def parse_all(budgets: str | Budget | Iterable[str | Budget]) -> tuple[Budget, ...]:
    """Reads one budget or several; several in one text are separated by commas or spaces.

    >>> [budget.resource for budget in parse_all("flops=5%, params=1M")]
    ['flops', 'params']

    Raises:
        UnsupportedError: None is given, one is wrong, or two are about the same resource.
    """
    given: tuple[str | Budget, ...] = arguments.several(
        "budget", budgets, (str, Budget), "text such as 'flops=5%', or a list of such texts"
    )
    found = []
    for item in given:
        parts = [item] if isinstance(item, Budget) else re.split(r"(?:\s*[,;]\s*|\s+)(?=[a-zA-Z-]+\s*=)", item.strip())
        found += [part if isinstance(part, Budget) else Budget.parse(part) for part in parts]
    if not found:
        raise UnsupportedError("the list of budgets is empty. Pass at least one, such as flops=5%.")
    seen: dict[str, Budget] = {}
    for budget in found:
        if budget.resource in seen:
            raise UnsupportedError(
                f"there are two budgets for {budget.resource}: {seen[budget.resource].text} and {budget.text}. "
                "Pass the smaller one."
            )
        seen[budget.resource] = budget
    return tuple(found)


def told(resource: str, figure: float) -> str:
    """A figure of a resource for people: ``11.89 GFLOPs``, ``1.50 GiB``, ``30.0 ms``."""
    unit = QUANTITIES[resource].unit
    if unit == "seconds":
        scale, name = next(((s, n) for n, s in (("s", 1.0), ("ms", 1e-3)) if figure >= s), (1e-6, "us"))
        return f"{figure / scale:.3g} {name}"
    if unit == "bytes":
        scale, name = next(
            ((1024.0**p, n) for p, n in ((3, "GiB"), (2, "MiB"), (1, "KiB")) if figure >= 1024**p), (1.0, "B")
        )
        return f"{figure / scale:.4g} {name}"
    scale, prefix = next(((s, n) for n, s in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if figure >= s), (1.0, ""))
    return f"{figure / scale:.4g} {prefix}{'' if unit == 'FLOPs' and prefix else ' ' if prefix else ''}{unit}".strip()


def written(resource: str, figure: float) -> str:
    """A budget of exactly that figure, as it would be written: asking for it is sure to allow the figure."""
    unit = QUANTITIES[resource].unit
    if unit == "seconds":
        return f"{resource}={math.ceil(figure * 1e6) + 1}us"
    return f"{resource}={math.ceil(figure)}{'B' if unit == 'bytes' else ''}"


def share_above(part: float, whole: float) -> str:
    """A percentage of four digits that is not below the share, so that it allows it."""
    percent = 100 * part / whole if whole else 100.0
    step = 10.0 ** (math.floor(math.log10(percent)) - 3) if percent > 0 else 1.0
    up = math.ceil(percent / step - 1e-12) * step
    while up / 100 * whole < part:
        up += step
    return f"{up:.10g}%"
