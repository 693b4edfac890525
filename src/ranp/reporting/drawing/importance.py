"""Layer by layer: importance, every channel a point, every layer's mean a line; and the share of channels retained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ranp.errors import DataError
from ranp.reporting.drawing.style import (
    TWO_COLUMNS,
    add_legend,
    drawn,
    name_layers,
    percent,
    plain,
    powers,
    room_for,
    thinned,
    title_of,
)
from ranp.reporting.looks import BLUE, VERMILLION, Look, looks
from ranp.reporting.study import LayerStudy, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_TITLES = {
    "raw": "Raw importance (vanilla NP)",
    "balanced": "Balanced over layers (weighted NP)",
    "reweighted": "Reweighted by what the layers cost",
}
_REWEIGHTED = {
    "ranp-f": "Reweighted by FLOPs (RANP-f)",
    "ranp-m": "Reweighted by memory (RANP-m)",
}
_VECTORS = 300
"""Points of a panel that are drawn as vectors; more of them become an image inside the file."""

_MARKED = 40
"""Layers whose means have markers; more of them would hide the line."""
_TOGETHER = 3
"""Lines that can be told apart in one panel; more methods have a panel each."""


def importance(study: Study, *, width: float = TWO_COLUMNS) -> Figure:
    """Importance of all channels by layer, a panel for each stage of the method, on logarithmic axes.

    A layer of more than ``drawing.style.MOST`` channels shows that many of them, evenly spaced in rank from the
    lowest to the highest; its mean is that of all. Channels of importance 0 cannot stand on such an axis: the panel
    says how many there are.

    Args:
        study: Of ``ranp.reporting.study``.
        width: Inches.

    Raises:
        DataError: There is no layer, or no importance above 0.
        UnsupportedError: Matplotlib is not installed.
    """
    layers = _of(study)
    stages = _stages(layers)
    names = [layer.name for layer in layers]
    with drawn(width, 0.35 + 1.1 * len(stages) + room_for(names, width)) as figure:
        from matplotlib.lines import Line2D

        panels = figure.subplots(len(stages), 1, sharex=True, squeeze=False)[:, 0]
        for axes, stage in zip(panels, stages, strict=True):
            _draw(axes, layers, stage, Look("", VERMILLION, "o"), points=BLUE)
            _settle(axes, _title(stage, {study.method}))
            _note_zeros(axes, layers, stage)
        name_layers(panels[-1], names, width)
        dot = Line2D([], [], **Look("", BLUE, "o", "none").line(markersize=2.5, alpha=0.7))
        add_legend(figure, [dot, panels[0].lines[-1]], ["a channel", "mean of the layer"])
    return figure


def initialisation(
    studies: Mapping[str, Study],
    retained: Mapping[str, Sequence[float]] | None = None,
    *,
    width: float = TWO_COLUMNS,
) -> Figure:
    """Importance under several ways to draw the first weights, before and after reweighting, and what is retained.

    Args:
        studies: By the name of the initialisation; all of one network.
        retained: Share of channels that each layer keeps, by any name; what the studies' plans keep by default. There
            is no such panel where no study has a plan.
        width: Inches.

    Raises:
        DataError: There is no study, or they are of different layers.
        UnsupportedError: Matplotlib is not installed.
    """
    if not studies:
        raise DataError("there is no study to compare. Pass at least one, by the name of its initialisation.")
    of = {name: _of(study) for name, study in studies.items()}
    names = [layer.name for layer in next(iter(of.values()))]
    for title, layers in of.items():
        if [layer.name for layer in layers] != names:
            raise DataError(f"{title!r} is a study of other layers than {next(iter(of))!r}. Compare one network.")
    stages = [stage for stage in ("raw", "reweighted") if all(stage in _stages(layers) for layers in of.values())]
    if retained is None:
        retained = {
            title: [len(layer.kept) / layer.channels if layer.kept is not None else 1.0 for layer in layers]
            for title, layers in of.items()
            if any(layer.kept is not None for layer in layers)
        }
    look = looks(list(dict.fromkeys([*of, *retained])))
    rows = len(stages) + bool(retained)
    with drawn(width, 0.35 + 1.1 * rows + room_for(names, width)) as figure:
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for axes, stage in zip(panels, stages, strict=False):
            for place, (title, layers) in enumerate(of.items()):
                one, shift = look[title], (place - (len(of) - 1) / 2) * 0.7 / len(of)
                _draw(axes, layers, stage, one, plain(title), shift=shift, spread=0.3 / len(of))
            _settle(axes, _title(stage, {study.method for study in studies.values()}))
        shown = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
        if retained:
            draw_ratios(panels[-1], retained, names, look)
            panels[-1].set_title("Retained channels", loc="left")
            for handle, label in zip(*panels[-1].get_legend_handles_labels(), strict=True):
                shown.setdefault(label, handle)
        panels[-1].tick_params(axis="x", bottom=True)
        name_layers(panels[-1], names, width)
        figure.align_ylabels(list(panels))
        add_legend(figure, list(shown.values()), list(shown))
    return figure


def _of(study: Study) -> tuple[LayerStudy, ...]:
    if not study.layers:
        raise DataError("the study has no layer, so there is nothing to draw. Pass a network with convolutions.")
    return study.layers


def _stages(layers: Sequence[LayerStudy]) -> list[str]:
    stages = [stage for stage in _TITLES if any(any(v > 0 for v in layer.scores.get(stage, ())) for layer in layers)]
    if not stages:
        raise DataError("no channel has an importance above 0, so there is nothing to draw. Score with other batches.")
    return stages


def _title(stage: str, methods: set[str]) -> str:
    method = methods.pop() if stage == "reweighted" and len(methods) == 1 else ""
    return _REWEIGHTED.get(method, _TITLES[stage])


def _draw(
    axes: Axes,
    layers: Sequence[LayerStudy],
    stage: str,
    look: Look,
    title: str = "",
    *,
    points: str = "",
    shift: float = 0.0,
    spread: float = 0.3,
) -> None:
    """Points of the channels, in a colour of their own if ``points``, and the line of the layers' means."""
    at = np.arange(1, len(layers) + 1) + shift
    places: list[float] = []
    values: list[float] = []
    means = np.full(len(layers), np.nan)
    for number, (place, layer) in enumerate(zip(at, layers, strict=True)):
        scores = np.asarray(layer.scores.get(stage, ()), dtype=np.float64)
        shown = thinned(scores[scores > 0])
        places.extend(place + spread * np.sin(2.4 * np.arange(len(shown))))  # beside each other, reproducibly
        values.extend(shown)
        if len(shown):
            means[number] = scores.mean()
    axes.set_yscale("log")
    dots = Look("", points or look.colour, "o", "none").line(markersize=1.5, alpha=0.3, zorder=2)
    axes.plot(places, values, **dots, rasterized=len(values) > _VECTORS)
    known = np.ma.masked_invalid(means)
    axes.plot(at, known, color="white", linewidth=2.2, zorder=3)
    line = look.line(linestyle="-", markersize=2.6, linewidth=1.0, zorder=4, label=title)
    axes.plot(at, known, **(line if len(layers) <= _MARKED else line | {"marker": None}))


def _settle(axes: Axes, title: str) -> None:
    """Limits around all that is drawn, labels and grid."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.lines])
    shown = values[np.isfinite(values)]
    axes.set_ylim(shown.min() / 1.5, shown.max() * 1.5)
    powers(axes.yaxis)
    axes.grid(axis="y")
    axes.set_ylabel("importance")
    axes.set_title(title, loc="left")
    axes.tick_params(axis="x", bottom=False)


def _note_zeros(axes: Axes, layers: Sequence[LayerStudy], stage: str) -> None:
    scores = [score for layer in layers for score in layer.scores.get(stage, ())]
    zeros = sum(score <= 0 for score in scores)
    if zeros:
        words = f"{zeros} of {len(scores)} channels are 0 and not shown"
        axes.set_title(words, loc="right", fontsize=6, color="#555555")


def retained(ratios: Mapping[str, Sequence[float]], layers: Sequence[str], *, width: float = TWO_COLUMNS) -> Figure:
    """The share of channels that each layer retains: up to three methods as lines, more of them below each other.

    Args:
        ratios: From 0 to 1 by layer, by the method's name.
        layers: Names, in the order of the ratios.
        width: Inches.

    Raises:
        DataError: No method, no layer, a ratio too few or too many, or one that is not a share.
        UnsupportedError: Matplotlib is not installed.
    """
    if not ratios or not layers:
        raise DataError("there is nothing to draw: pass the ratios of at least one method and one layer.")
    for name, values in ratios.items():
        _refuse(name, values, layers)
    look = looks(list(ratios))
    together = len(ratios) <= _TOGETHER
    rows = 1 if together else len(ratios)
    with drawn(width, (1.7 if together else 0.15 + 0.5 * rows) + room_for(layers, width)) as figure:
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
    return figure


def draw_ratios(
    axes: Axes, ratios: Mapping[str, Sequence[float]], layers: Sequence[str], look: Mapping[str, Look]
) -> None:
    """A line for each method, in a panel of any figure.

    Raises:
        DataError: A ratio too few or too many, or one that is not a share.
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
