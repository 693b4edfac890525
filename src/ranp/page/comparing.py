"""Runs side by side: a table of all of them, and by task what they cost and how they learnt."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from ranp.costs.quantities import QUANTITIES
from ranp.files import atomic
from ranp.page import charts
from ranp.page.charts import Point
from ranp.page.curves import ALONE, Curve, Figure, curves_of, main_figure, percent
from ranp.page.gather import StoredRun, of_task
from ranp.page.material import Absent, Bill
from ranp.page.templates import Chart, Image, Section, render, table_of
from ranp.reporting.format import MIB, NOTHING, UNITS, figure, scaled, sentence, share, unit
from ranp.reporting.looks import FIGURES, method_name
from ranp.reporting.table import Group, Table

_STEP_TIME = QUANTITIES.get("step-time")
_LINES = 8
"""Lines that can be told apart on one chart."""


def comparison(runs: Sequence[StoredRun], bills: Mapping[str, Bill | Absent], *, listed: bool) -> Section:
    """The section that lays runs beside each other.

    Args:
        runs: Two or more.
        bills: What each costs, by label.
        listed: Whether to show the table of all runs; not where another table has them already.
    """
    tasks, drawn = [], []
    for number, (task, members) in enumerate(of_task(runs).items()):
        made = [*_costs(f"cost-{number}", members, bills), *_learning(f"learn-{number}", members)]
        tasks.append((task, made))
        drawn += made
    absent = dict.fromkeys(bill.reason for bill in bills.values() if isinstance(bill, Absent))
    table, long = _table(runs, bills) if listed else None, len(runs) > charts.MANY
    body = render("comparison.html", table=table, long=long, tasks=tasks, absent=list(absent))
    return Section("side-by-side", "Side by side", body, tuple(drawn))


def training(run: StoredRun) -> Section | None:
    """How a single run learnt; None if it was not trained."""
    made = _learning("learn", [run])
    if not made:
        return None
    said = [f"Last validation: {', '.join(_figure(name, found) for name, found in run.figures.items())}."]
    if (seconds := run.step_seconds) is not None:
        steps = max(int(record["step"]) for record in run.records)
        said.append(f"A step took {_STEP_TIME.format(seconds)}, the mean of {steps:,} while it trained.")
    last = " ".join(said if run.figures else said[1:])
    return Section("training", "Training", render("training.html", last=last, charts=made), tuple(made))


def table_section(found: Table, number: int, title: str) -> Section:
    """The section of a table that lay on disk, with its drawings, under a title."""
    images = [
        Image(atomic.read_bytes(path), path.suffix[1:], f"{found.title}: {path.stem}", path.stem.replace("-", " "))
        for path in map(Path, found.figures)
    ]
    return Section(f"table-{number}", title, render("table.html", table=found, images=images))


def _table(runs: Sequence[StoredRun], bills: Mapping[str, Bill | Absent]) -> Table:
    """Every run with its costs and figures; of several tasks, the main figure of each."""
    groups = of_task(runs)
    small = unit(int(statistics.median([bill.flops for bill in bills.values() if isinstance(bill, Bill)] or [0])))
    several = len(groups) > 1
    names = [] if several else list(dict.fromkeys(name for run in runs for name in run.figures))
    shares = {name: percent(name, [run.figures.get(name, 0) for run in runs]) for name in names}
    foretold = any(isinstance(bill, Bill) and bill.training is not None for bill in bills.values())
    timed = any(run.step_seconds is not None for run in runs)
    bodies = []
    for task, members in groups.items():
        main = main_figure(members)
        rows = []
        for run in members:
            bill = bills[run.label]
            costs = [NOTHING] * 4
            if isinstance(bill, Bill):
                peak = NOTHING if bill.training is None else scaled(int(bill.training), MIB)
                costs = [f"{bill.params:,}", scaled(bill.flops, UNITS[small]), scaled(bill.memory, MIB), peak]
            seconds = run.step_seconds
            costs = costs if foretold else costs[:3]
            costs += [NOTHING if seconds is None else f"{1e3 * seconds:,.1f}"] if timed else []
            figures = [
                figure(run.figures[name], percent=shares[name]) if name in run.figures else NOTHING for name in names
            ]
            removed = 0.0 if run.plan is None else run.plan.sparsity.of_channels
            last = [_main(main, run) or NOTHING] if several else figures
            rows.append((run.label, method_name(run.method), share(removed), *costs, *last))
        bodies.append(Group(task if several else "", tuple(rows)))
    columns = ["network", "method", "channels removed (%)", "parameters", small, "memory (MiB)"]
    columns += ["training memory (MiB)"] if foretold else []
    columns += ["step (ms)"] if timed else []
    columns += ["main figure"] if several else [FIGURES.get(name, name) for name in names]
    caption = f"{len(runs)} runs. A click on a column's name sorts by it."
    caption += " Training memory is the predicted peak of a step." if foretold else ""
    caption += " Step is the mean time of one while the run trained." if timed else ""
    return table_of(caption, columns, left=(0, 1), groups=tuple(bodies))


def _main(main: Figure | None, run: StoredRun) -> str:
    """The main figure of a run, if it has any."""
    return _figure(main.name, run.figures[main.name]) if main is not None and main.name in run.figures else ""


def _figure(name: str, found: float) -> str:
    return f"{FIGURES.get(name, name)} {figure(found, percent=percent(name, [found]))}"


def _costs(key: str, runs: Sequence[StoredRun], bills: Mapping[str, Bill | Absent]) -> list[Chart]:
    main = main_figure(runs)
    found = [(run, bills[run.label]) for run in runs]
    points = [
        Point(run.label, run.method, bill.flops, bill.memory, _main(main, run))
        for run, bill in found
        if isinstance(bill, Bill)
    ]
    if len({(point.flops, point.memory) for point in points}) < 2:
        return []
    rows = [
        [point.label, scaled(point.flops, 1e-6), scaled(point.memory, MIB), point.remark or NOTHING] for point in points
    ]
    return [
        Chart(
            key,
            charts.scatter(points),
            "What one call costs: FLOPs against memory of activations, one mark for each network. Down and to the left "
            "is cheaper; the axes show where the marks are, and need not begin at 0.",
            f"Scatter of FLOPs and memory of {len(points)} networks. The table below has the figures.",
            table_of("Costs", ("network", "MFLOPs", "memory (MiB)", "main figure"), rows),
        )
    ]


def _learning(key: str, runs: Sequence[StoredRun]) -> list[Chart]:
    """Charts of the training loss and of the main figure, if there are any."""
    made = []
    losses = curves_of(runs, None)
    if losses:
        smoothed = ", single steps smoothed" if len(runs) <= ALONE else ""
        caption = f"Training loss over epochs{smoothed}.{_remarks(losses)}"
        chart = charts.lines(losses[:_LINES], "training loss")
        made.append(Chart(f"{key}-loss", chart, caption, *_ends(losses, "loss", False)))
    main = main_figure(runs)
    figures = () if main is None else curves_of(runs, main.name)
    if main is not None and figures:
        shares = percent(main.name, [y for curve in figures for y in curve.y])
        title, better = FIGURES.get(main.name, main.name), "Higher" if main.higher_is_better else "Lower"
        several = max(len(curve.x) for curve in figures) > 1
        chart = (charts.lines if several else charts.ends)(figures[:_LINES], title, percent=shares)
        when = "over epochs" if several else "after the last epoch"
        caption = f"{sentence(title)} on the validation data {when}. {better} is better.{_remarks(figures)}"
        made.append(Chart(f"{key}-figure", chart, caption, *_ends(figures, title, shares)))
    return made


def _remarks(curves: Sequence[Curve]) -> str:
    band = " Lines are means over runs, bands reach from the least to the greatest."
    more = f" {_LINES} of {len(curves)} kinds of runs are drawn; the table has all."
    return (band if any(curve.low for curve in curves) else "") + (more if len(curves) > _LINES else "")


def _ends(curves: Sequence[Curve], title: str, shares: bool) -> tuple[str, Table]:
    """The chart in words, and the table behind it: where every curve begins and ends."""
    rows = [
        (method_name(curve.label), f"{curve.x[-1]:g}", *(figure(curve.y[end], percent=shares) for end in (0, -1)))
        for curve in curves
    ]
    words = "; ".join(f"{name} from {first} to {last}" for name, _, first, last in rows)
    columns = ("network", "epochs", f"first {title}", f"last {title}")
    return f"Line chart of {title}: {words}.", table_of(title, columns, rows)
