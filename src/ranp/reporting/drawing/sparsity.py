"""What rising sparsity costs and saves: FLOPs and memory of the slim network, and how good it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ranp.costs.profiles import Profile
from ranp.errors import DataError
from ranp.reporting.drawing.style import ONE_COLUMN, TWO_COLUMNS, add_legend, drawn, percent, plain, title_of
from ranp.reporting.format import share
from ranp.reporting.looks import FULL, looks
from ranp.reporting.study import Step, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_RESOURCES = {"flops": "FLOPs", "memory": "Memory"}


def resources(sweeps: Sequence[Sweep], full: Step | Profile | None = None, *, width: float = TWO_COLUMNS) -> Figure:
    """FLOPs and memory against sparsity as shares of the full network's, up to the largest sparsity that is feasible.

    Args:
        sweeps: One for each method.
        full: What has the FLOPs and the memory of the full network; by default the first step, of sparsity 0.
        width: Inches; panels stand side by side where there is room for it.

    Raises:
        DataError: There is no sweep, one has no feasible step, or the full network costs nothing.
        UnsupportedError: Matplotlib is not installed.
    """
    if not sweeps:
        raise DataError("there is no sweep to draw. Pass at least one.")
    feasible = {sweep.method: [step for step in sweep.steps if step.feasible] for sweep in sweeps}
    for method, steps in feasible.items():
        if not steps:
            raise DataError(f"the sweep of {method!r} has no feasible step. Sweep from sparsity 0 on.")
    if full is None:
        full = feasible[sweeps[0].method][0]
    wide = width >= 5.0
    look = looks(list(feasible))
    with drawn(width, 2.15 if wide else 3.7) as figure:
        panels = figure.subplots(*((1, 2) if wide else (2, 1)), sharex=not wide)
        for axes, (name, label) in zip(panels, _RESOURCES.items(), strict=True):
            whole = getattr(full, name)
            if not whole > 0:
                raise DataError(f"the full network has {name}={whole}; shares need a number above 0.")
            for sweep in sweeps:
                steps, one = feasible[sweep.method], look[sweep.method]
                x, y = [step.sparsity for step in steps], [getattr(step, name) / whole for step in steps]
                title = f"{title_of(sweep.method)} (feasible up to {share(sweep.largest)})"
                axes.plot(x, y, color=one.colour, linestyle=one.dashes, label=title, zorder=3)
                axes.plot(x[-1:], y[-1:], color=one.colour, marker=one.marker, markersize=5, clip_on=False, zorder=4)
                axes.plot([x[-1]] * 2, [0, y[-1]], color=one.colour, linewidth=0.6, linestyle=(0, (1, 2)), zorder=2)
            axes.set_xlim(0, 1)
            axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
            axes.set_ylabel(f"{label} (share of full)")
            percent(axes.xaxis)
            percent(axes.yaxis)
            axes.grid(axis="y")
        for axes in panels if wide else panels[-1:]:
            axes.set_xlabel("sparsity: share of channels removed")
        add_legend(figure, *panels[0].get_legend_handles_labels())
    return figure


def accuracy(
    curves: Mapping[str, Sequence[tuple[float, float, float]]],
    figure_name: str,
    full: float | tuple[float, float] | None = None,
    *,
    width: float = ONE_COLUMN,
) -> Figure:
    """A figure of merit against sparsity: means as lines, a standard deviation to each side as a band.

    Args:
        curves: Sparsity, mean and standard deviation of each point, by the method's name.
        figure_name: What stands at the axis, with its unit.
        full: The full network's, or its mean and its standard deviation; None if it is not known.
        width: Inches.

    Raises:
        DataError: There is no curve, one has no point, or a number is not finite.
        UnsupportedError: Matplotlib is not installed.
    """
    if not curves:
        raise DataError("there is no curve to draw. Pass the points of at least one method.")
    for name, points in curves.items():
        if not points or not all(math.isfinite(value) for point in points for value in point):
            raise DataError(
                f"the curve of {name!r} has no point, or one that is not finite: {list(points)!r}. Mend it."
            )
    mean, std = full if isinstance(full, tuple) else (full, 0.0)
    look = looks(list(curves))
    with drawn(width, min(2.4, 0.68 * width + 0.1)) as figure:
        axes = figure.subplots()
        if mean is not None:
            if std:
                axes.axhspan(mean - std, mean + std, color="black", alpha=0.08, linewidth=0, zorder=1)
            axes.axhline(mean, color="black", linewidth=0.9, linestyle=(0, (4, 1.5)), label=title_of(FULL), zorder=2)
        for name, points in curves.items():
            x, y, spread = (list(column) for column in zip(*sorted(points), strict=True))
            low, high = ([b + sign * s for b, s in zip(y, spread, strict=True)] for sign in (-1, 1))
            one = look[name]
            axes.fill_between(x, low, high, color=one.colour, alpha=0.18, linewidth=0, zorder=2)
            axes.plot(x, y, color=one.colour, marker=one.marker, linestyle=one.dashes, label=title_of(name), zorder=3)
        axes.set_ylabel(plain(figure_name))
        axes.set_xlabel("sparsity: share of channels removed")
        percent(axes.xaxis)
        axes.grid(axis="y")
        add_legend(figure, *axes.get_legend_handles_labels())
    return figure
