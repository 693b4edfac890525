"""Runs side by side: a table of all of them, and by task what they cost and how they learnt."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ranp.page import charts
from ranp.page.charts import Point
from ranp.page.choosing import of_task
from ranp.page.curves import ALONE, Curve, Figure, curves_of, main_figure, percent
from ranp.page.gather import RunFolder
from ranp.page.markup import Chart, Section, drawing, image, name, note, table, text
from ranp.page.rebuilding import Absent, Bill
from ranp.page.tables import Table
from ranp.page.wording import NOTHING, figure_name, method_name, sentence, share, value
from ranp.reporting.figures import MB, UNITS, scaled, unit

__all__ = ["comparison", "table_section", "training"]

_LINES = 8
"""Lines that can be told apart on one chart."""


def comparison(runs: Sequence[RunFolder], bills: Mapping[str, Bill | Absent], *, listed: bool) -> Section:
    """The section that lays runs beside each other.

    Args:
        runs: Two or more.
        bills: What each costs, by label.
        listed: Whether to show the table of all runs; not where another table has them already.
    """
    groups = of_task(runs)
    parts = [_table(groups, bills)] if listed else []
    drawn: list[Chart] = []
    for number, (task, members) in enumerate(groups.items()):
        if len(groups) > 1:
            parts.append(f"<h3>{text(task)}</h3>")
        made = [*_costs(f"cost-{number}", members, bills), *_learning(f"learn-{number}", members)]
        drawn += made
        parts.append(_grid(made))
    absent = dict.fromkeys(bill.reason for bill in bills.values() if isinstance(bill, Absent))
    parts += [note(reason) for reason in absent]
    return Section("side-by-side", "Side by side", "".join(parts), tuple(drawn))


def training(run: RunFolder) -> Section | None:
    """How a single run learnt; None if it was not trained."""
    made = _learning("learn", [run])
    if not made:
        return None
    figures = run.figures
    told = ", ".join(f"{figure_name(figure)} {_figure(figure, found)}" for figure, found in figures.items())
    last = f"<p>Last validation: {text(told)}.</p>" if told else ""
    return Section("training", "Training", last + _grid(made), tuple(made))


def _grid(made: Sequence[Chart]) -> str:
    kind = "three" if len(made) == 3 else "two"
    return f'<div class="{kind}">{"".join(drawing(chart) for chart in made)}</div>'


def table_section(found: Table, number: int, title: str) -> Section:
    """The section of a table that lay on disk, with its drawings, under a title."""
    groups = [(group.title, [[text(cell) for cell in row] for row in group.rows]) for group in found.groups]
    caption = found.caption or found.title
    parts = [table(found.columns, (), caption=caption, left=found.left, groups=groups)]
    if found.notes:
        parts.append(f'<ul class="notes">{"".join(f"<li>{text(words)}</li>" for words in found.notes)}</ul>')
    if found.figures:
        drawings = (image(path, f"{found.title}: {path.stem}", path.stem.replace("-", " ")) for path in found.figures)
        parts.append(f'<div class="gallery">{"".join(drawings)}</div>')
    if found.command:
        parts.append(f'<p class="quiet">Made with <code>{text(found.command)}</code></p>')
    return Section(f"table-{number}", title, "".join(parts))


def _table(groups: Mapping[str, Sequence[RunFolder]], bills: Mapping[str, Bill | Absent]) -> str:
    known = [bill for bill in bills.values() if isinstance(bill, Bill)]
    small = unit(int(statistics.median([bill.flops for bill in known] or [0])))
    several = len(groups) > 1
    names = ("main figure",) if several else tuple(dict.fromkeys(f for run in _all(groups) for f in run.figures))
    shares = {figure: percent(figure, [run.figures.get(figure, 0) for run in _all(groups)]) for figure in names}
    columns = (
        "network",
        "method",
        "channels removed (%)",
        "parameters",
        small,
        "memory (MB)",
        *map(figure_name, names),
    )
    bodies = []
    for task, members in groups.items():
        main = main_figure(members)
        rows = []
        for run in members:
            bill = bills[run.label]
            costs = (
                [f"{bill.params:,}", scaled(bill.flops, UNITS[small]), scaled(bill.memory, MB)]
                if isinstance(bill, Bill)
                else [NOTHING] * 3
            )
            if several:
                found = run.figures.get(main.name) if main else None
                figures = [text(_main(main, found))]
            else:
                figures = [
                    value(run.figures[figure], percent=shares[figure]) if figure in run.figures else NOTHING
                    for figure in names
                ]
            removed = 0.0 if run.plan is None else run.plan.sparsity.of_channels
            rows.append([name(run.label), text(method_name(run.method)), share(removed), *costs, *figures])
        bodies.append((task if several else "", rows))
    caption = f"{len(_all(groups))} runs. A click on a column's name sorts by it."
    long = len(_all(groups)) > charts.MANY
    return table(columns, (), caption=caption, left=2, groups=bodies, sortable=True, long=long)


def _main(main: Figure | None, found: float | None) -> str:
    return NOTHING if main is None or found is None else f"{figure_name(main.name)} {_figure(main.name, found)}"


def _figure(figure: str, found: float) -> str:
    return value(found, percent=percent(figure, [found]))


def _all(groups: Mapping[str, Sequence[RunFolder]]) -> list[RunFolder]:
    return [run for members in groups.values() for run in members]


def _costs(key: str, runs: Sequence[RunFolder], bills: Mapping[str, Bill | Absent]) -> list[Chart]:
    main = main_figure(runs)
    points = []
    for run in runs:
        bill = bills[run.label]
        if isinstance(bill, Bill):
            found = run.figures.get(main.name) if main else None
            remark = "" if found is None else _main(main, found)
            points.append(Point(run.label, run.method, bill.flops, bill.memory, remark))
    if len({(point.flops, point.memory) for point in points}) < 2:
        return []
    rows = [
        [name(point.label), scaled(point.flops, 1e-6), scaled(point.memory, MB), text(point.remark or NOTHING)]
        for point in points
    ]
    return [
        Chart(
            key,
            charts.scatter(points),
            "What one call costs: FLOPs against memory of activations, one mark for each network. Down and to the left "
            "is cheaper.",
            f"Scatter of FLOPs and memory of {len(points)} networks. The table below has the figures.",
            table(("network", "MFLOPs", "memory (MB)", "main figure"), rows, caption="Costs", shown=False),
        )
    ]


def _learning(key: str, runs: Sequence[RunFolder]) -> list[Chart]:
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
        title, better = figure_name(main.name), "Higher" if main.higher_is_better else "Lower"
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


def _ends(curves: Sequence[Curve], title: str, shares: bool) -> tuple[str, str]:
    """The chart in words, and the table behind it: where every curve begins and ends."""
    ends = [(curve, value(curve.y[0], percent=shares), value(curve.y[-1], percent=shares)) for curve in curves]
    words = "; ".join(f"{method_name(curve.label)} from {first} to {last}" for curve, first, last in ends)
    rows = [[name(method_name(curve.label)), f"{curve.x[-1]:g}", first, last] for curve, first, last in ends]
    columns = ("network", "epochs", f"first {title}", f"last {title}")
    return f"Line chart of {title}: {words}.", table(columns, rows, caption=title, shown=False)
