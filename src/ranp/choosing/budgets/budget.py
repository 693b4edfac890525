"""Budgets as people write them: ``flops=5%``, ``params=1M``, ``train-memory=8GiB``, ``step-time=4x``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ranp import arguments
from ranp.costs.quantities import QUANTITIES, Quantity, find
from ranp.errors import UnsupportedError

REMEMBERED = ("budget", "step", "budget_note", "floor", "floor_note")
"""Settings of a plan that ``budget_lines`` describes."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that the slim network may need of one quantity.

    >>> Budget.parse("flops=5%").limit(200.0)
    10.0
    >>> Budget.parse("train-memory = 1.5 GiB").limit(0.0) == 1.5 * 2**30
    True
    >>> Budget.parse("step-time=4x").limit(2.0)
    0.5

    Attributes:
        resource: What it is about, a name of ``ranp.costs.quantities``.
        share: The fraction of what the full network needs, or None.
        amount: The figure itself, where it is not a share.
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
            UnsupportedError: The text is not of this form, the resource is unknown, or the value is not allowed.
        """
        name, equals, value = (part.strip() for part in str(text).partition("="))
        if not equals:
            raise UnsupportedError(f"budget {text!r} is not understood. Write resource=value, such as flops=5%.")
        quantity = find(name, "resource of a budget", [one for one in QUANTITIES if _can_have_one(QUANTITIES.get(one))])
        try:
            share, amount = quantity.parse(value)
        except UnsupportedError as error:
            raise UnsupportedError(f"budget {text!r}: {error}") from error
        return cls(quantity.name, share, amount, f"{quantity.name}={value}")

    def limit(self, full: float) -> float:
        """The figure that may not be exceeded, given what the full network needs."""
        return self.amount if self.share is None else self.share * full

    @property
    def quantity(self) -> Quantity:
        """What it is about."""
        return QUANTITIES.get(self.resource)


def _can_have_one(quantity: Quantity) -> bool:
    return quantity.of_choice is not None or quantity.needs_step


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


def share_above(part: float, whole: float) -> str:
    """A percentage of four digits that is not below the share, so that it allows it."""
    percent = 100 * part / whole if whole else 100.0
    step = 10.0 ** (math.floor(math.log10(percent)) - 3) if percent > 0 else 1.0
    up = math.ceil(percent / step - 1e-12) * step
    while float(f"{up:.10g}") / 100 * whole < part:  # as it will be read
        up += step
    return f"{up:.10g}%"


def budget_lines(settings: Mapping[str, Any]) -> list[str]:
    """What each budget allowed and how much of it is used, one line each; empty without budgets.

    Args:
        settings: Of the plan.
    """
    lines = []
    for entry in settings.get("budget", ()):
        quantity, after, limit = QUANTITIES.get(entry["resource"]), float(entry["after"]), float(entry["limit"])
        lines.append(
            f"budget {entry['budget']}: {quantity.format(after)} of {quantity.format(limit)} allowed "
            f"({after / limit:.1%} used), full network {quantity.format(float(entry['before']))}"
            f"{', measured on this machine' if quantity.is_measured else ''}"
        )
    if lines and (step := settings.get("step")):
        batch = [f"batch {step['batch']}"] if step.get("batch") else []
        extra = ["activation checkpointing"] if step.get("checkpointing") else []
        parts = [" and ".join(step["inputs"]), *batch, str(step["optimiser"]), str(step["precision"]), *extra]
        lines.append(f"one training step: {', '.join(parts)}")
    notes = (("no budget is used to the full", "budget_note"), ("least width", "floor_note"))
    return [*lines, *(f"{title}: {settings[name]}" for title, name in notes if settings.get(name))]
