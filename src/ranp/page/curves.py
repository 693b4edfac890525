"""Curves of training from journals: loss and the main figure over epochs, of single runs or as means over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ranp.page.gather import StoredRun, kinds
from ranp.paper import tasks
from ranp.reporting.format import share
from ranp.reporting.looks import method_name

_POINTS = 160
"""Points of a curve of single steps; more cannot be told apart on a screen."""
ALONE = 6
"""So many runs of a task are drawn one by one; more become means over those that differ by their seed alone."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart.

    Attributes:
        label: What it is called.
        method: What pruned the network; decides the colour.
        x: Epochs.
        y: Values.
        low: The least of the runs behind each value; empty if it is one run.
        high: The greatest of them.
    """

    label: str
    method: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """The figure that says how good a network of a task is."""

    name: str
    higher_is_better: bool = True


def main_figure(runs: Sequence[StoredRun]) -> Figure | None:
    """The main figure of the runs of one task; the first that was measured if the task is not one of ours."""
    measured = [name for run in runs for name in run.figures]
    if not measured:
        return None
    if runs[0].task in tasks.names():
        metrics = tasks.get(runs[0].task).metrics
        if metrics.main in measured:
            return Figure(metrics.main, metrics.higher_is_better)
    return Figure(measured[0])


def percent(name: str, values: Sequence[float]) -> bool:
    """Whether figures of that name are shares: all of them between 0 and 1, and no error that just happens to be."""
    return "epe" not in name and all(0 <= value <= 1 for value in values)


def curves_of(runs: Sequence[StoredRun], figure: str | None) -> tuple[Curve, ...]:
    """One curve for each run, or where there are many one for those that differ by their seed alone.

    Args:
        runs: Of one task.
        figure: A validation figure; None for the training loss.
    """
    if len(runs) <= ALONE:
        single = [Curve(run.label, run.method, *_points(run, figure, fine=figure is None)) for run in runs]
        return tuple(curve for curve in single if curve.x)
    groups = [group for group in kinds(runs) if any(run.records for run in group)]
    means = [_mean(_label(group[0], groups), group, figure) for group in groups]
    return tuple(curve for curve in means if curve.x)


def _label(run: StoredRun, groups: Sequence[Sequence[StoredRun]]) -> str:
    """The method, with the network and the sparsity where others of the same method differ by it."""
    alike = [group[0] for group in groups if group[0].method == run.method]
    words = [method_name(run.method)]
    if len({other.model for other in alike}) > 1:
        words.append(run.model)
    if len({round(other.sparsity, 6) for other in alike}) > 1:
        words.append(f"at {share(run.sparsity)}")
    return " ".join(words)


def _mean(name: str, runs: Sequence[StoredRun], figure: str | None) -> Curve:
    values: dict[float, list[float]] = {}
    trained = 0
    for run in runs:
        x, y = _points(run, figure, fine=False)
        trained += bool(x)
        for epoch, value in zip(x, y, strict=True):
            values.setdefault(epoch, []).append(value)
    x = tuple(sorted(values))
    label = name if trained < 2 else f"{name} (mean of {trained})"
    mean, low, high = (tuple(of(values[epoch]) for epoch in x) for of in (statistics.fmean, min, max))
    return Curve(label, runs[0].method, x, mean, *((low, high) if trained > 1 else ()))


def _points(run: StoredRun, figure: str | None, *, fine: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Epochs and values: of every epoch, or of every step in as many bins as a screen shows, if it is ``fine``."""
    epochs = [record for record in run.records if record.get("kind") == "epoch"]
    steps = [record for record in run.records if record.get("kind") == "step"]
    found: list[tuple[Any, Any]]
    if figure is not None:
        found = [(record.get("epoch"), (record.get("valid") or {}).get(figure)) for record in epochs]
    elif not fine or not steps:
        found = [(record.get("epoch"), record.get("loss")) for record in epochs]
    else:
        per_epoch = (epochs[0]["step"] / max(epochs[0]["epoch"], 1)) if epochs else len(steps)
        found = [(record["step"] / per_epoch, record.get("loss")) for record in steps]
    good = [(float(x), float(y)) for x, y in found if _number(x) and _number(y)]
    if not fine or not steps:
        return tuple(x for x, _ in good), tuple(y for _, y in good)
    return _smoothed(good)


def _smoothed(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means over windows of a twentieth of the run, so that batches do not hide the course."""
    half = len(points) // 40
    sums = [0.0, *accumulate(y for _, y in points)]
    edges = [(max(0, i - half), min(len(points), i + half + 1)) for i in range(len(points))]
    means = [(sums[end] - sums[start]) / (end - start) for start, end in edges]
    every = math.ceil(len(points) / _POINTS)
    shown = sorted({*range(0, len(points), max(every, 1)), *([len(points) - 1] if points else [])})
    return tuple(points[i][0] for i in shown), tuple(means[i] for i in shown)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
