"""FLOPs against memory of all methods, a panel for each network: bottom-left is best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ranp.errors import DataError
from ranp.reporting.drawing.style import TWO_COLUMNS, add_legend, drawn, plain, title_of
from ranp.reporting.drawing.values import ScatterPoint
from ranp.reporting.looks import FULL, looks

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_TICKS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def scatter(points: Sequence[ScatterPoint], *, width: float = TWO_COLUMNS) -> Figure:
    """What each method leaves of FLOPs and memory, as shares of the full network's, on logarithmic axes.

    Shares make networks comparable whose costs are far apart; the full network's own figures stand above each panel.

    Args:
        points: Of any number of networks; each has one of the method ``"full"``. FLOPs in billions, memory in MB.
        width: Inches.

    Raises:
        DataError: There is no point, or a network has none of ``"full"``, or two of one method.
        UnsupportedError: Matplotlib is not installed.
    """
    networks: dict[str, dict[str, ScatterPoint]] = {}
    for point in points:
        methods = networks.setdefault(point.network, {})
        if point.method in methods:
            raise DataError(f"{point.network!r} has two points of {point.method!r}. Pass one of each method.")
        methods[point.method] = point
    if not networks:
        raise DataError("there is no point to draw. Pass at least one network's.")
    for network, methods in networks.items():
        if FULL not in methods:
            raise DataError(f"{network!r} has no point of {FULL!r}, of which the others are shares. Pass it too.")
    names = list(dict.fromkeys(point.method for point in points))
    rows = -(-len(networks) // max(1, round(width / 1.75)))
    columns = -(-len(networks) // rows)
    look = looks(names)
    with drawn(width, 0.45 + rows * (width / columns * 0.72 + 0.3)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        handles = {}
        for axes, (network, methods) in zip(panels.flat, networks.items(), strict=False):
            full = methods[FULL]
            for name, point in methods.items():
                mark = look[name].line(linestyle="none", markeredgecolor="white", markeredgewidth=0.4)
                above = 6 if name == FULL else 5 if name.startswith("ranp") else 4
                mark |= {"markersize": 7 if name == FULL else 5, "zorder": above}
                (handles[name],) = axes.plot([point.flops / full.flops], [point.memory / full.memory], **mark)
            axes.set_xscale("log")
            axes.set_xlim(_mark(axes.xaxis, [point.flops / full.flops for point in methods.values()]))
            axes.set_yscale("log")
            axes.set_ylim(_mark(axes.yaxis, [point.memory / full.memory for point in methods.values()]))
            axes.grid()
            costs = f"full: {_number(full.flops)} GFLOPs, {_number(full.memory)} MB"
            axes.set_title(f"{plain(network)}\n{costs}", loc="left", fontsize=6.0)
        figure.supxlabel("FLOPs, share of the full network's (bottom-left is best)", fontsize=7)
        figure.supylabel("memory, share of the full network's", fontsize=7)
        spare = panels.flat[len(networks) :]
        for axes in spare:
            axes.set_axis_off()
        shown = [handles[name] for name in names], [title_of(name) for name in names]
        if len(spare):
            spare[-1].legend(*shown, loc="center", borderaxespad=0)
        else:
            add_legend(figure, *shown)
    return figure


def _mark(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    """Limits of a logarithmic axis around all values, on which it marks two to five round shares."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    room = max(max(values) / min(values), 1.05) ** 0.09
    low, high = min(values) / room, max(values) * room
    inside = [tick for tick in _TICKS if low <= tick <= high]
    if len(inside) < 2:
        inside = sorted({min(values), max(values)})
    least = math.log(high / low) / 5  # ticks nearer to each other would touch
    ticks = inside[-1:]
    for tick in reversed(inside[:-1]):
        if math.log(ticks[-1] / tick) >= least:
            ticks.append(tick)
    axis.set_major_locator(FixedLocator(ticks[::-1]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    return low, high


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
