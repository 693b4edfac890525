"""What share of its channels each layer keeps, method by method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ranp.errors import DataError
from ranp.reporting.drawing.layers import name_layers, room_for
from ranp.reporting.drawing.style import TWO_COLUMNS, add_legend, blank, finished, styled, title_of
from ranp.reporting.drawing.ticks import percent
from ranp.reporting.looks import Look, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_ratios", "retained"]

_TOGETHER = 3
"""Lines that can be told apart in one panel; more methods have a panel each."""


def retained(ratios: Mapping[str, Sequence[float]], layers: Sequence[str], *, width: float = TWO_COLUMNS) -> Figure:
    """The share of channels that each layer retains: up to three methods as lines, more of them below each other.

    Args:
        ratios: From 0 to 1 by layer, by the method's name.
        layers: Names, in the order of the ratios.
        width: Inches.

    Raises:
        DataError: No method, no layer, a ratio too few or too many, or one that is no share.
        UnsupportedError: Matplotlib is not installed.
    """
    if not ratios or not layers:
        raise DataError("there is nothing to draw: pass the ratios of at least one method and one layer.")
    for name, values in ratios.items():
        _refuse(name, values, layers)
    with styled():
        look = looks(list(ratios))
        together = len(ratios) <= _TOGETHER
        rows = 1 if together else len(ratios)
        figure = blank(width, (1.7 if together else 0.15 + 0.5 * rows) + room_for(layers, width))
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        if together:
            draw_ratios(panels[0], ratios, layers, look)
            add_legend(figure, *panels[0].get_legend_handles_labels())
        else:
            for axes, (name, values) in zip(panels, ratios.items(), strict=True):
                _draw_alone(axes, title_of(name), values, look[name])
            figure.supylabel("retained channels", fontsize=7)
        panels[-1].tick_params(axis="x", bottom=True)
        name_layers(panels[-1], layers, width)
        return finished(figure)


def draw_ratios(
    axes: Axes, ratios: Mapping[str, Sequence[float]], layers: Sequence[str], look: Mapping[str, Look]
) -> None:
    """A line for each method, in a panel of any figure.

    Raises:
        DataError: A ratio too few or too many, or one that is no share.
    """
    for order, (name, values) in enumerate(ratios.items()):
        _refuse(name, values, layers)
        line = look[name].line(markersize=3.0, linewidth=1.0, clip_on=False, zorder=3 + order, label=title_of(name))
        axes.plot(range(1, len(layers) + 1), values, **line)
    axes.set_ylim(0, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    percent(axes.yaxis)
    axes.set_ylabel("retained channels")
    axes.grid(axis="y")


def _draw_alone(axes: Axes, title: str, values: Sequence[float], look: Look) -> None:
    """One method as steps from the axis up, a step for each layer."""
    edges = [place + 0.5 for place in range(len(values) + 1)]
    axes.stairs(values, edges, fill=True, color=look.colour, alpha=0.85, linewidth=0, label=title)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1.0])
    percent(axes.yaxis)
    axes.tick_params(axis="y", labelsize=5.5)
    axes.tick_params(axis="x", bottom=False)
    axes.grid(axis="y")
    axes.set_title(title, loc="left", fontsize=6.5, pad=2)


def _refuse(name: str, values: Sequence[float], layers: Sequence[str]) -> None:
    if len(values) != len(layers):
        raise DataError(f"{name!r} has {len(values)} ratios for {len(layers)} layers; one for each is needed.")
    wrong = [value for value in values if not (math.isfinite(value) and 0 <= value <= 1)]
    if wrong:
        raise DataError(f"{name!r} has the ratio {wrong[0]}; a share of channels is from 0 to 1.")
