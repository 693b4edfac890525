"""The page of a comparison: by budget every run as a dot, paired differences with intervals, costs and failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ranp.comparing.cells import Outcome
from ranp.comparing.comparison import Comparison, Row
from ranp.page.build import document
from ranp.page.charts import layout, plain, safe, titled
from ranp.page.templates import Chart, Section, render, table_of
from ranp.reporting.looks import look_of
from ranp.reporting.table import Table

_ROW = 34
"""Height of an arm on a chart."""
_DRAWN = "random widths"
_COSTS = 7
"""The first column of the table that is about costs."""
_CAPTION = "What the arms cost, as shares of the full network, and the learning rate of each."


def build(comparison: Comparison) -> str:
    """The page, as text.

    Raises:
        UnsupportedError: Plotly is not installed.
    """
    sections = [_section(comparison, budget, number) for number, budget in enumerate(comparison.budgets)]
    seeds = len({run.cell.seed for run in comparison.runs if not run.cell.arm.is_drawn})
    better = "higher" if comparison.measure.higher else "lower"
    summary = (
        f"{len(comparison.runs)} runs on {seeds} seeds, every arm at the same budget from the same initial weights. "
        f"Judged by {comparison.measure.name}, {better} is better."
    )
    return document(f"Ways to choose widths, at {' and '.join(comparison.budgets)}", summary, sections)


def _section(comparison: Comparison, budget: str, number: int) -> Section:
    rows, drawn = comparison.rows(budget), comparison.drawn(budget)
    made = [_dots(comparison, rows, drawn, f"dots-{number}")]
    compared = [row for row in rows if row.against is not None]
    if compared:
        made.append(_intervals(comparison, compared, f"intervals-{number}"))
    whole, figures = comparison.table(), comparison.figures()
    tables = [
        _part(whole, budget, range(1, _COSTS), whole.caption),
        *([] if figures is None else [_part(figures, budget, range(1, len(figures.columns)), figures.caption)]),
        _part(whole, budget, range(_COSTS, len(whole.columns)), _CAPTION),
    ]
    body = render("arms.html", charts=made, tables=tables, notes=whole.notes if number == 0 else ())
    return Section(f"budget-{number}", f"At {budget}", body, tuple(made))


def _part(whole: Table, budget: str, columns: Sequence[int], caption: str) -> Table:
    """The arms at one budget, and these columns of them."""
    (group,) = (group for group in whole.groups if group.title == budget)
    shown = (0, *columns)
    return table_of(
        caption, [whole.columns[at].name for at in shown], [[row[at] for at in shown] for row in group.rows]
    )


def _dots(comparison: Comparison, rows: Sequence[Row], drawn: Sequence[Outcome], key: str) -> Chart:
    """Every run, one line of dots for each arm."""
    measure = comparison.measure
    lines = [(row.arm.title, row.arm.method, row.runs) for row in rows]
    lines += [(_DRAWN, "random", tuple(drawn))] if drawn else []
    traces, cells = [], []
    for place, (title, method, runs) in enumerate(lines):
        good = [run for run in runs if math.isfinite(measure.of(run))]
        values = [measure.of(run) for run in good]
        look = look_of(method, place)
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers",
            "x": [plain(value) for value in values],
            "y": [plain(place + 0.3 * (((7 * run.cell.seed) % 11) / 10 - 0.5)) for run in good],
            "text": [safe(f"{run.cell.arm.name}, seed {run.cell.seed}, lr {run.cell.lr:g}") for run in good],
            "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
            "marker": {"size": 9, "opacity": 0.75, "color": look.shade},
        }
        traces.append(trace)
        if values:
            middle = plain(sum(values) / len(values))
            bar = {"x": [middle, middle], "y": [place - 0.35, place + 0.35], "line": {"color": look.shade, "width": 3}}
            traces.append({"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False, **bar})
        failed = sum(map(measure.failed, runs))
        listed = ", ".join(f"{value:.4g}" for value in values) or "none"
        cells.append((title, f"{len(runs)}", f"{failed}", listed))
    words = "; ".join(f"{title}: {values}" for title, _, _, values in cells)
    return Chart(
        key,
        {"data": traces, "layout": _frame([title for title, _, _ in lines], measure.name)},
        "Every run is a dot, the bar is the mean. Runs without a number are not drawn; they count as failed.",
        f"Dots of {measure.name} by arm: {words}.",
        table_of("Runs", ("arm", "runs", "failed", measure.name), cells, left=(0, 3)),
    )


def _intervals(comparison: Comparison, rows: Sequence[Row], key: str) -> Chart:
    """How much better than the reference, with 95 % intervals."""
    traces: list[dict[str, Any]] = []
    cells = []
    for place, row in enumerate(rows):
        found, look = row.against, look_of(row.arm.method, place)
        assert found is not None
        reach = {"type": "data", "symmetric": False, "thickness": 2.5, "width": 6, "color": look.shade}
        reach |= {"array": [plain(found.high - found.mean)], "arrayminus": [plain(found.mean - found.low)]}
        words = f"{found}, better in {found.wins} of {found.pairs}"
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [plain(found.mean)],
                "y": [place],
                "error_x": reach,
                "text": [safe(words)],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 11, "color": look.shade},
            }
        )
        cells.append((row.arm.title, words, "" if row.p is None else f"{row.p:.3f}"))
    frame = _frame([row.arm.title for row in rows], f"better than {comparison.reference}, {comparison.measure.name}")
    frame["xaxis"] |= {"zeroline": True, "zerolinecolor": "var(--soft)", "zerolinewidth": 2, "rangemode": "tozero"}
    return Chart(
        key,
        {"data": traces, "layout": frame},
        f"Differences to {comparison.reference} between runs of one seed, and their 95 % intervals. Right of 0 is "
        "better; an interval that reaches over 0 shows no difference.",
        "; ".join(f"{title}: {words}" for title, words, _ in cells) + ".",
        table_of("Differences", ("arm", "difference", "p (Holm)"), cells, left=(0, 1)),
    )


def _frame(titles: Sequence[str], axis: str) -> dict[str, Any]:
    frame = layout(height=90 + _ROW * len(titles))
    ticks = {"tickmode": "array", "tickvals": list(range(len(titles))), "ticktext": list(map(safe, titles))}
    frame["yaxis"] |= {**ticks, "range": [len(titles) - 0.4, -0.6], "showgrid": False}
    frame["xaxis"] |= {"title": titled(axis), "nticks": 6}
    frame["showlegend"] = False
    return frame
