"""The section of one run: what it bought, layer by layer, why these channels, what had to stay, other sparsities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ranp.choosing.budgets import Spent
from ranp.costs.tuning import Tuned
from ranp.page import charts
from ranp.page.gather import StoredRun
from ranp.page.material import Absent
from ranp.page.templates import Chart, Section, render, table_of
from ranp.reporting.causes import listed
from ranp.reporting.figures import OTHERS, Amount, LayerReport
from ranp.reporting.fit import whether_fits, which_cards
from ranp.reporting.format import MIB, NOTHING, UNITS, factor, flops, less, mebibytes, scaled, sentence, share, unit
from ranp.reporting.looks import method_name
from ranp.reporting.report import Report
from ranp.reporting.study import Step, Study, Sweep
from ranp.reporting.table import Table

_SHOWN = ("budget", "budget_note", "floor_note", "of_step", "step", "shortfall", "tuned")
"""Settings that have a place of their own on the page."""
_RESOURCES = {"flops": "FLOPs", "memory": "memory", "params": "parameters"}
_STEP = {"train-memory": "Training memory", "step-time": "Step time, measured", "latency": "Latency, measured"}
"""Cards of what a step needs, in their order."""
_ROWS = ("channels removed", "FLOPs", "memory", "parameters")


def lede(run: StoredRun) -> str:
    """The run in a sentence or two."""
    report = run.report
    if report is None:
        return f"A full {run.model}: nothing was removed."
    flops, memory, params = (factor(one.before, one.after) for one in (report.flops, report.memory, report.params))
    kept = [
        f"{one.budget} ({one.figures[1]}, {share(one.used)} of what it allows)" for one in report.spent() if one.budget
    ]
    within = f"Within {' and '.join(kept)}: " if kept else ""
    return (
        f"{within}{method_name(run.method)} removed {share(report.sparsity.of_channels)} of the "
        f"{report.channels.before:,} channels of {run.model} before training. What is left needs {flops} times fewer "
        f"FLOPs, {memory} times less memory for activations and {params} times fewer parameters."
    )


def detail(
    run: StoredRun,
    key: str,
    study: Study | Absent,
    *,
    heading: str,
    introduced: bool = False,
    memory: float | None = None,
) -> Section:
    """The section of a run that pruned.

    Args:
        run: With a report.
        key: Names the section on the page.
        study: Of its scores, or why there is none.
        heading: What its title calls it.
        introduced: Whether the page has said already in a sentence what it is.
        memory: Bytes of a card, to say whether a training step fits it.
    """
    report = run.report
    assert report is not None
    spent = report.spent()
    of_step = sorted(
        (one for one in spent if one.quantity.name in _STEP), key=lambda one: [*_STEP].index(one.quantity.name)
    )
    layers = [
        row for row in report.layers if row.name != OTHERS or row.params.before or row.flops.before or row.memory.before
    ]
    pins = ([str(pin), listed(pin.layers), f"{pin.channels:,}"] for pin in report.pins)
    values: dict[str, Any] = {
        "key": key,
        "lede": "" if introduced else lede(run),
        "report": report,
        "spent": spent,
        "notes": report.budget_lines()[len(spent) :],
        "shortfall": report.settings.get("shortfall", ""),
        "fits": _fits(spent, memory),
        "cards": [*(_card(_STEP[one.quantity.name], one, *one.figures) for one in of_step), *_counted(report)],
        "tuned": _tuned(report),
        "layers": layers,
        "widths": _widths(report, layers),
        "widest": max((row.channels.before for row in layers), default=1) or 1,
        "many": charts.MANY,
        "pins": table_of("What had to stay", ("why", "layers", "channels"), pins, left=(0, 1)),
        "made": _made(run, report),
    }
    title = f"{heading}: what was pruned, and why"
    if isinstance(study, Absent):
        return Section(key, title, render("run.html", **values, absent=study.reason), link=heading)
    known = {stage for layer in study.layers for stage in layer.scores}
    stages = {stage: words for stage, words in charts.STAGES.items() if stage in known}
    why, slider = _why(study, key, list(stages)), slider_of(study, key, _place(study, report))
    groups = ([f"{len(group)} layers", ", ".join(group)] for group in study.groups)
    values |= {"absent": "", "study": study, "stages": stages, "why": why, "slider": slider}
    data = {"positions": slider["positions"], "channels": [layer.channels for layer in study.layers]}
    values["coupled"] = table_of("Coupled layers", ("group", "layers"), groups, left=(0, 1))
    return Section(key, title, render("run.html", **values), (why, *slider["charts"]), {key: data}, heading)


def _card(title: str, amount: Amount | Spent, before: str, after: str) -> tuple[str, float, float, str, str]:
    return title, amount.before, amount.after, before, after


def _counted(report: Report) -> list[tuple[str, float, float, str, str]]:
    """Cards of what every report tells."""
    small = unit(report.flops.after)
    return [
        _card(title, amount, scaled(amount.before, scale), f"{scaled(amount.after, scale)}{name}")
        for title, amount, scale, name in (
            ("FLOPs", report.flops, UNITS[small], f" {small}"),
            ("Memory of activations", report.memory, MIB, " MiB"),
            ("Parameters", report.params, 0, ""),
            ("Channels", report.channels, 0, ""),
        )
    ]


def _fits(spent: Sequence[Spent], memory: float | None) -> str:
    """Which cards hold a training step, and whether one of that memory does; empty where that is not known."""
    found = next((one for one in spent if one.quantity.name == "train-memory"), None)
    if found is None:
        return (
            "" if memory is None else "Whether a training step fits is not known: the run did not predict its memory."
        )
    sized = (found.before, found.after)
    own = [] if memory is None else [whether_fits(*sized, memory)]
    beyond = "These are predicted peaks; on a GPU leave some room for its context and workspaces."
    return " ".join([*own, which_cards(*sized), beyond])


def _place(study: Study, report: Report) -> float:
    """The sparsity at which the slider starts: the one asked for, or the one that comes nearest to the budget's."""
    if "budget" not in report.settings:
        return report.sparsity.requested
    steps = [step for step in study.sweeps[0].steps if step.feasible]
    return min(steps, key=lambda step: abs(step.removed - report.sparsity.of_channels)).sparsity


def _widths(report: Report, layers: Sequence[LayerReport]) -> Table:
    """Every layer before and after; the template draws the bars."""
    small = unit(max((row.flops.after for row in report.layers), default=0))
    rows = []
    lines: list[tuple[str, LayerReport | Report, str]] = [(row.name, row, row.kind) for row in layers]
    for name, row, kind in [*lines, ("all", report, "")]:
        costs = _change(row.params, 0), _change(row.flops, UNITS[small]), _change(row.memory, MIB)
        rows.append((name, _change(row.channels, 0), "", *costs, kind))
    return table_of(
        "Every layer before and after. The pale bar is the full width, the solid one stays; * had to stay.",
        ("layer", "channels", "width", "parameters", small, "memory (MiB)", "kind"),
        rows,
        left=(0, 2, 6),
    )


def _change(amount: Amount, scale: float) -> str:
    if not amount.before and not amount.after:
        return NOTHING
    before, after = scaled(amount.before, scale), scaled(amount.after, scale)
    return before if before == after else f"{before} → {after}"


def _why(study: Study, key: str, stages: Sequence[str]) -> Chart:
    columns = ("layer", "kept", "share of FLOPs", "share of memory", *(f"mean, {stage}" for stage in stages))
    flops, memory = (sum(getattr(layer, of) for layer in study.layers) or 1 for of in ("flops", "memory"))
    rows = [
        [
            layer.name,
            f"{layer.channels if layer.kept is None else len(layer.kept):,} of {layer.channels:,}",
            share(layer.flops / flops),
            share(layer.memory / memory),
            *(f"{charts.mean(scores):.3g}" if (scores := layer.scores.get(stage)) else NOTHING for stage in stages),
        ]
        for layer in study.layers
    ]
    return Chart(
        f"{key}-importance",
        charts.importance(study),
        "Importance of single channels by layer; each line is a channel (at most 40 of a layer, spread over its "
        "ranking), each diamond the mean of its layer. Channels without any importance are left out.",
        "Importance of channels by layer, kept and removed. The table below has the means of every layer.",
        table_of("Importance by layer", columns, rows),
    )


def _tuned(report: Report) -> Table | None:
    """The ways to run the slim network that were timed; None where none was."""
    if not (stored := report.settings.get("tuned")):
        return None
    found = Tuned(**stored)
    rows = [(way, f"{time:.3f}", "fastest" if way == found.name else "") for way, time in found.ratios.items()]
    caption = "Time of a step of the slim network over that of the plain way, measured where it was pruned."
    return table_of(caption, ("way to run it", "time", ""), rows, left=(0, 2))


def _made(run: StoredRun, report: Report) -> Table:
    settings: dict[str, Any] = {
        "folder": run.folder.name,
        "network": run.model,
        "inputs": run.recipe.get("inputs"),
        "task": run.task,
        **{name: value for name, value in report.settings.items() if name not in _SHOWN},
        "versions": run.recipe.get("versions"),
    }
    rows = [(key, _said(value)) for key, value in settings.items() if value not in (None, "", [], {})]
    return table_of("How this run was made", ("setting", "value"), rows, left=(0, 1))


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
