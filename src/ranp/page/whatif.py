"""The slider over sparsity: every position worked out beforehand, numbers and sentences included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ranp.page import charts
from ranp.page.tables import table_of
from ranp.page.templates import Chart
from ranp.reporting.format import NOTHING, flops, less, mebibytes, sentence, share
from ranp.reporting.looks import method_name

if TYPE_CHECKING:
    from ranp.reporting.study import Step, Study, Sweep

__all__ = ["positions", "slider_of"]

_RESOURCES = {"flops": "FLOPs", "memory": "memory", "params": "parameters"}
_ROWS = ("channels removed", "FLOPs", "memory", "parameters")


def step_at(sweep: Sweep, sparsity: float) -> Step:
    """The step of a sweep nearest to a sparsity, among those that are feasible if it is, else among the others."""
    feasible = sparsity <= sweep.largest
    alike = [step for step in sweep.steps if step.feasible == feasible] or sweep.steps
    return min(alike, key=lambda step: abs(step.sparsity - sparsity))


def positions(study: Study) -> list[dict[str, Any]]:
    """What the page shows at each position of the slider: the steps of the run's own method."""
    found = []
    for own in study.sweeps[0].steps:
        steps = [(sweep, step_at(sweep, own.sparsity)) for sweep in study.sweeps]
        found.append(
            {
                "label": share(own.sparsity),
                "at": round(100 * own.sparsity, 4),
                "text": " ".join(sentence(_described(sweep, step, own.sparsity, study)) for sweep, step in steps),
                "feasible": [step.feasible for _, step in steps],
                "cells": [_cells(sweep, step) for sweep, step in steps],
                "widths": [list(step.widths) for _, step in steps],
            }
        )
    return found


def _described(sweep: Sweep, step: Step, asked: float, study: Study) -> str:
    method = method_name(sweep.method)
    if not step.feasible:
        return (
            f"{method} is infeasible at {share(asked)}: some layer would lose all its channels. Its largest feasible "
            f"sparsity is {share(sweep.largest, 2)}."
        )
    full = sweep.steps[0]
    channels = sum(layer.channels for layer in study.layers)
    return (
        f"{method} at {share(step.sparsity)} keeps {sum(step.widths):,} of {channels:,} channels: "
        f"{flops(step.flops)} ({less(full.flops, step.flops)}), {mebibytes(step.memory)} "
        f"({less(full.memory, step.memory)}), {step.params:,} parameters ({less(full.params, step.params)})."
    )


def _cells(sweep: Sweep, step: Step) -> list[str]:
    if not step.feasible:
        return ["infeasible", NOTHING, NOTHING, NOTHING]
    full = sweep.steps[0]
    return [
        share(step.removed),
        f"{flops(step.flops)}\n{less(full.flops, step.flops)}",
        f"{mebibytes(step.memory)}\n{less(full.memory, step.memory)}",
        f"{step.params:,}\n{less(full.params, step.params)}",
    ]


def slider_of(study: Study, key: str, sparsity: float) -> dict[str, Any]:
    """The slider over the sparsities of a study: all its positions, and what stands beside it at first.

    Args:
        study: Of the run.
        key: Names it on the page.
        sparsity: Where the slider stands at first.
    """
    places = positions(study)
    start = min(range(len(places)), key=lambda index: abs(places[index]["at"] - 100 * sparsity))
    made = tuple(
        Chart(
            f"{key}-{resource}",
            charts.sweep(study.sweeps, resource),
            sentence(f"{words} left."),
            f"Line chart: {words} left over sparsity. The table below says the figures at the slider.",
        )
        for resource, words in _RESOURCES.items()
    )
    heads = ["", *(method_name(sweep.method) for sweep in study.sweeps)]
    rows = zip(_ROWS, *places[start]["cells"], strict=True)
    return {
        "positions": places,
        "start": start,
        "here": places[start],
        "table": table_of("At the slider: what is left", heads, rows),
        "charts": made,
        "widest": max(layer.channels for layer in study.layers),
    }
