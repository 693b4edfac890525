"""The section of one run: what it bought, layer by layer, why these channels, and what had to stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranp.page import charts
from ranp.page.gather import StoredRun
from ranp.page.rebuilding import Absent
from ranp.page.tables import Table, table_of
from ranp.page.templates import Chart, Section, render
from ranp.page.whatif import slider_of
from ranp.reporting.causes import listed
from ranp.reporting.figures import OTHERS, Amount, LayerReport
from ranp.reporting.format import MIB, NOTHING, UNITS, factor, scaled, share, unit
from ranp.reporting.looks import method_name
from ranp.reporting.report import Report

if TYPE_CHECKING:
    from ranp.reporting.study import Study

__all__ = ["detail", "lede"]


def lede(run: StoredRun) -> str:
    """The run in a sentence or two."""
    report = run.report
    if report is None:
        return f"A full {run.model}: nothing was removed."
    flops, memory, params = (factor(one.before, one.after) for one in (report.flops, report.memory, report.params))
    return (
        f"{method_name(run.method)} removed {share(report.sparsity.of_channels)} of the "
        f"{report.channels.before:,} channels of {run.model} before training. What is left needs {flops} times fewer "
        f"FLOPs, {memory} times less memory and {params} times fewer parameters."
    )


def detail(run: StoredRun, key: str, study: Study | Absent, *, heading: str, introduced: bool = False) -> Section:
    """The section of a run that pruned.

    Args:
        run: With a report.
        key: Names the section on the page.
        study: Of its scores, or why there is none.
        heading: What its title calls it.
        introduced: Whether the page has said already in a sentence what it is.
    """
    report = run.report
    assert report is not None
    small = unit(report.flops.after)
    layers = [row for row in report.layers if row.name != OTHERS or _any(row.params, row.flops, row.memory)]
    pins = ([str(pin), listed(pin.layers), f"{pin.channels:,}"] for pin in report.pins)
    values: dict[str, Any] = {
        "key": key,
        "lede": "" if introduced else lede(run),
        "report": report,
        "cards": [
            ("Channels", report.channels, 0, ""),
            ("Parameters", report.params, 0, ""),
            ("FLOPs", report.flops, UNITS[small], f" {small}"),
            ("Memory", report.memory, MIB, " MiB"),
        ],
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


def _any(*amounts: Amount) -> bool:
    return any(amount.before for amount in amounts)


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
        channels, *others = (
            _change(amount, scale)
            for amount, scale in ((row.channels, 0), (row.params, 0), (row.flops, UNITS[small]), (row.memory, MIB))
        )
        rows.append((name, channels, "", *others, kind))
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
            *(_mean(layer.scores.get(stage, ())) for stage in stages),
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


def _mean(values: tuple[float, ...]) -> str:
    return f"{sum(values) / len(values):.3g}" if values else NOTHING


def _made(run: StoredRun, report: Report) -> Table:
    settings: dict[str, Any] = {
        "folder": run.folder.name,
        "network": run.model,
        "inputs": run.recipe.get("inputs"),
        "task": run.task,
        **report.settings,
        "versions": run.recipe.get("versions"),
    }
    rows = [(key, _said(value)) for key, value in settings.items() if value not in (None, "", [], {})]
    return table_of("How this run was made", ("setting", "value"), rows, left=(0, 1))


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
