"""How fast networks learn: loss and accuracy, epoch by epoch and second by second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ranp.errors import DataError
from ranp.reporting.drawing.style import TWO_COLUMNS, add_legend, drawn, plain, title_of
from ranp.reporting.drawing.values import Curve
from ranp.reporting.looks import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AXES = {"epoch": "epoch", "seconds": "training time (s)"}
_MINUTES = 600.0
"""Seconds from which on the axis counts minutes."""


def convergence(
    curves: Mapping[str, Curve],
    x: str | Sequence[str] = ("epoch", "seconds"),
    y: str | Sequence[str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    width: float = TWO_COLUMNS,
) -> Figure:
    """A row for each figure, a column for each way to count: by default loss and accuracy over epochs and seconds.

    Args:
        curves: By the network's name.
        x: ``"epoch"``, ``"seconds"``, or both.
        y: Figures, as the curves name them; by default the first two that all curves have.
        labels: What stands at the axis of a figure, with its unit, where that is not its name.
        width: Inches.

    Raises:
        DataError: There is no curve, or one has no such figure.
        UnsupportedError: Matplotlib is not installed.
    """
    if not curves:
        raise DataError("there is no curve to draw. Pass at least one.")
    across = (x,) if isinstance(x, str) else tuple(x)
    common = [name for name in next(iter(curves.values())).figures if all(name in c.figures for c in curves.values())]
    down = tuple(common[:2]) if y is None else (y,) if isinstance(y, str) else tuple(y)
    if not across or not down:
        raise DataError(f"x={x!r}, y={y!r}: there is no panel. Name at least one axis and one figure of the curves.")
    labels = labels or {}
    look = looks(list(curves))
    with drawn(width, 0.35 + 1.5 * len(down) * min(1.0, width / 5)) as figure:
        panels = figure.subplots(len(down), len(across), squeeze=False, sharey="row", sharex="col")
        for row, figure_name in zip(panels, down, strict=True):
            for axes, along in zip(row, across, strict=True):
                for name, curve in curves.items():
                    places, values = curve.points(along, figure_name)
                    line = look[name].line(linewidth=1.1, label=title_of(name))
                    line |= {"markersize": 4.5 if line["marker"] == "*" else 2.8}
                    line |= {} if len(places) <= 30 else {"marker": None}
                    axes.plot(places, values, **line)
                axes.grid(axis="y")
            row[0].set_ylabel(plain(labels.get(figure_name, figure_name)))
        for axes, along in zip(panels[-1], across, strict=True):
            axes.set_xlabel(_AXES[along])
            _count(axes, along)
        figure.align_ylabels(list(panels[:, 0]))
        add_legend(figure, *panels[0, 0].get_legend_handles_labels())
    return figure


def _count(axes: Axes, along: str) -> None:
    """Whole epochs; minutes or hours instead of many seconds."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    axes.set_xlim(left=0)
    if along == "epoch":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        return
    last = axes.get_xlim()[1]
    unit, name = (3600.0, "h") if last >= 3 * 3600 else (60.0, "min") if last >= _MINUTES else (1.0, "s")
    steps = [base * factor for base in (0.1, 1, 10, 100, 1000) for factor in (1, 2, 5)]
    step = next((step for step in steps if last / unit / step <= 6), steps[-1])
    axes.xaxis.set_major_locator(MultipleLocator(step * unit))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:.4g}"))
    axes.set_xlabel(f"training time ({name})")
