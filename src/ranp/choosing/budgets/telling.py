"""What became of budgets, in words, from what a plan remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ranp.choosing.budgets.parsing import told

REMEMBERED = ("budget", "step", "budget_note")
"""Settings of a plan that ``budget_lines`` tells."""


def budget_lines(settings: Mapping[str, Any]) -> list[str]:
    """What each budget allowed and how much of it is used, one line each; empty without budgets.

    Args:
        settings: Of the plan.
    """
    lines = []
    for entry in settings.get("budget", ()):
        name, after, limit = str(entry["resource"]), float(entry["after"]), float(entry["limit"])
        lines.append(
            f"budget {entry['budget']}: {told(name, after)} of {told(name, limit)} allowed "
            f"({after / limit:.1%} used), full network {told(name, float(entry['before']))}"
        )
    if lines and settings.get("step"):
        lines.append(f"one training step: {_step(settings['step'])}")
    note = settings.get("budget_note")
    return [*lines, f"no budget is used to the full: {note}"] if note else lines


def _step(step: Mapping[str, Any]) -> str:
    batch = [f"batch {step['batch']}"] if step.get("batch") else []
    extra = ["activation checkpointing"] if step.get("checkpointing") else []
    return ", ".join([" and ".join(step["inputs"]), *batch, str(step["optimiser"]), str(step["precision"]), *extra])
