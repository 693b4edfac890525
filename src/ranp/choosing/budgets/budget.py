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


@dataclass(frozen=True, slots=True)
class Spent:
    """What the full and the slim network need of a quantity, and what a budget allowed.

    Attributes:
        quantity: Which one.
        before: Of the full network.
        after: Of the slim one.
        budget: As it was asked for; empty where none was.
        limit: What it allowed; infinite where there was none.
    """

    quantity: Quantity
    before: float
    after: float
    budget: str = ""
    limit: float = math.inf

    def __post_init__(self) -> None:
        """Refuses what nothing can need: reports are read from files."""
        if not (0 <= self.before < math.inf and 0 <= self.after < math.inf and self.limit > 0):
            raise ValueError(f"no network needs {self.before!r} or {self.after!r} of {self.limit!r}")

    @property
    def used(self) -> float:
        """The share of the budget."""
        return self.after / self.limit

    @property
    def figures(self) -> tuple[str, str]:
        """What the full and the slim network need, for people."""
        return self.quantity.format(self.before), self.quantity.format(self.after)

    def __str__(self) -> str:
        before, after = self.figures
        if not self.budget:
            foretold = "" if self.quantity.is_measured else "predicted "
            return f"{foretold}{self.quantity.description}: {before} -> {after}"
        return (
            f"budget {self.budget}: {after} of {self.quantity.format(self.limit)} allowed ({self.used:.1%} used), full "
            f"network {before}{', measured on this machine' if self.quantity.is_measured else ''}"
        )


def spent(settings: Mapping[str, Any]) -> list[Spent]:
    """What budgets allowed and what is used of them, then what else a training step of both networks needs.

    Args:
        settings: Of a plan or a report.
    """

    def read(entry: Mapping[str, Any], *limits: Any) -> Spent:
        return Spent(QUANTITIES.get(entry["resource"]), float(entry["before"]), float(entry["after"]), *limits)

    asked_for = [read(entry, str(entry["budget"]), float(entry["limit"])) for entry in settings.get("budget", ())]
    return [*asked_for, *map(read, settings.get("of_step", ()))]


def step_line(settings: Mapping[str, Any]) -> str:
    """What a training step is to the figures of ``spent``; empty where none is about one."""
    step = settings.get("step")
    if not step:
        return ""
    batch = [f"batch {step['batch']}"] if step.get("batch") else []
    extra = ["activation checkpointing"] if step.get("checkpointing") else []
    parts = [" and ".join(step["inputs"]), *batch, str(step["optimiser"]), str(step["precision"]), *extra]
    return f"one training step: {', '.join(parts)}"


def budget_lines(settings: Mapping[str, Any]) -> list[str]:
    """What each budget allowed and how much of it is used, and what else a step needs; empty where nothing is known.

    Args:
        settings: Of a plan or a report.
    """
    lines = list(map(str, spent(settings)))
    if lines and (step := step_line(settings)):
        lines.append(step)
    notes = (("no budget is used to the full", "budget_note"), ("least width", "floor_note"))
    return [*lines, *(f"{title}: {settings[name]}" for title, name in notes if settings.get(name))]
