"""From values to figures for plotly: plain dictionaries, whose colours are variables of the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranp.page.axes import layout, logarithmic, plain, safe, titled
from ranp.page.curves import Curve
from ranp.page.wording import colour, dash, flops, megabytes, method_name
from ranp.reporting.figures import MB

if TYPE_CHECKING:
    from ranp.reporting.study import Study, Sweep

__all__ = ["MANY", "STAGES", "Point", "ends", "importance", "lines", "scatter", "sweep"]

STAGES = {"raw": "raw", "balanced": "balanced over layers", "reweighted": "reweighted by cost"}
_MARKS = 40
"""Channels of a layer that are drawn; more of them would hide one another."""
_ROW, _LOW_ROW = 26, 17
MANY = 24
"""So many layers fit on a screen; more are drawn closer together, and scroll in boxes of their own."""
_NAMED = 4
"""So many names fit into the legend of a chart; those of more stand above it."""
_DASHES = ("solid", "dot", "dash", "dashdot", "longdash")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon", "pentagon")


@dataclass(frozen=True, slots=True)
class Point:
    """A network among others: what it costs."""

    label: str
    method: str
    flops: int
    memory: int
    remark: str = ""


def importance(study: Study) -> dict[str, Any]:
    """Scores of single channels, layer by layer, kept ones and removed ones, with the mean of each layer.

    Traces carry the stage they belong to in ``meta``; those of the last stage are seen at first.
    """
    stages = [stage for stage in STAGES if any(stage in layer.scores for layer in study.layers)]
    traces: list[dict[str, Any]] = []
    for stage in stages:
        seen = stage == stages[-1]
        for kept, words in ((False, "removed channel"), (True, "kept channel")):
            marks = _marks(study, stage, kept)
            if not marks:
                continue
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": words,
                    "meta": stage,
                    "visible": seen,
                    "x": [mark[1] for mark in marks],
                    "y": [mark[0] for mark in marks],
                    "marker": {
                        "symbol": "line-ns-open",
                        "size": 13,
                        "line": {"width": 1.6},
                        "color": "var(--kept)" if kept else "var(--gone)",
                    },
                    "customdata": [mark[2] for mark in marks],
                    "hovertemplate": "%{customdata}: %{x:.3g}<extra>" + words + "</extra>",
                }
            )
        means = [(index, _mean(layer.scores.get(stage, ()))) for index, layer in enumerate(study.layers)]
        shown = [(index, mean) for index, mean in means if mean > 0]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "mean of the layer",
                "meta": stage,
                "visible": seen,
                "x": [plain(mean) for _, mean in shown],
                "y": [index for index, _ in shown],
                "marker": {
                    "symbol": "diamond",
                    "size": 9,
                    "color": "var(--ink)",
                    "line": {"width": 1.5, "color": "var(--card)"},
                },
                "customdata": [safe(study.layers[index].name) for index, _ in shown],
                "hovertemplate": "%{customdata}: mean %{x:.3g}<extra></extra>",
            }
        )
    frame = layout(height=110 + (_ROW if len(study.layers) <= MANY else _LOW_ROW) * len(study.layers))
    axes = {
        stage: logarithmic([x for trace in traces if trace["meta"] == stage for x in trace["x"]]) for stage in stages
    }
    frame["xaxis"] |= {"title": titled("importance, log scale"), **axes[stages[-1]]}
    frame["yaxis"] |= {
        "range": [len(study.layers) - 0.4, -0.6],
        "tickmode": "array",
        "tickvals": list(range(len(study.layers))),
        "ticktext": [safe(layer.name) for layer in study.layers],
        "showgrid": True,
    }
    frame["meta"] = {"axes": axes, "names": [safe(layer.name) for layer in study.layers]}
    return {"data": traces, "layout": frame}


def _marks(study: Study, stage: str, kept: bool) -> list[tuple[int, float, str]]:
    """Layer, score and name of channels that are drawn, spread evenly over the ranking of their layer."""
    marks = []
    for index, layer in enumerate(study.layers):
        stays = set(range(layer.channels) if layer.kept is None else layer.kept)
        scores = layer.scores.get(stage, ())
        ranked = sorted(range(len(scores)), key=lambda channel: (scores[channel], channel))
        step = max(1.0, len(ranked) / _MARKS)
        for channel in (ranked[int(place * step)] for place in range(math.ceil(len(ranked) / step))):
            if (channel in stays) == kept and scores[channel] > 0:
                marks.append((index, plain(scores[channel]), f"{safe(layer.name)}, channel {channel}"))
    return marks


def sweep(sweeps: Sequence[Sweep], resource: str) -> dict[str, Any]:
    """What is left of a resource over the sparsity asked for, one line for each method; infeasible ground is shaded."""
    traces: list[dict[str, Any]] = []
    for number, one in enumerate(sweeps):
        steps = [step for step in one.steps if step.feasible]
        full = getattr(one.steps[0], resource) or 1
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(method_name(one.method)),
                "x": [plain(100 * step.sparsity) for step in steps],
                "y": [plain(100 * getattr(step, resource) / full) for step in steps],
                "line": {"color": colour(one.method, number), "dash": dash(one.method), "width": 2.5},
                "marker": {"size": 5, "symbol": _SYMBOLS[number % len(_SYMBOLS)]},
                "hovertemplate": "%{x:.1f} % asked for: %{y:.1f} % left<extra>%{fullData.name}</extra>",
            }
        )
    frame = layout(height=270)
    frame["xaxis"] |= {"range": [0, 100], "title": titled("sparsity asked for (%)"), "dtick": 25}
    frame["yaxis"] |= {"range": [0, 104], "dtick": 25, "title": titled("% of the full network")}
    limit = 100 * sweeps[0].largest
    frame["shapes"] = [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": plain(limit),
            "x1": 100,
            "y0": 0,
            "y1": 1,
            "fillcolor": "var(--forbidden)",
            "line": {"width": 0},
            "layer": "below",
        }
    ]
    return {"data": traces, "layout": frame}


def scatter(points: Sequence[Point]) -> dict[str, Any]:
    """FLOPs against memory, one mark for each network."""
    traces: list[dict[str, Any]] = []
    for number, method in enumerate(dict.fromkeys(point.method for point in points)):
        members = [point for point in points if point.method == method]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": safe(method_name(method)),
                "x": [point.flops / 1e6 for point in members],
                "y": [plain(point.memory * MB) for point in members],
                "marker": {
                    "size": 13,
                    "color": colour(method, number),
                    "symbol": _SYMBOLS[number % len(_SYMBOLS)],
                    "line": {"width": 1.5, "color": "var(--card)"},
                },
                "text": [
                    f"{safe(point.label)}: {flops(point.flops)}, {megabytes(point.memory)}"
                    + (f", {safe(point.remark)}" if point.remark else "")
                    for point in members
                ],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    frame = layout(height=340)
    frame["showlegend"] = len(traces) <= _NAMED
    for axis, title, values in (
        ("xaxis", "MFLOPs", [point.flops / 1e6 for point in points]),
        ("yaxis", "memory (MB)", [point.memory * MB for point in points]),
    ):
        frame[axis] |= {"title": titled(title), "rangemode": "tozero"}
        if min(values) > 0 and max(values) / min(values) > 4:
            frame[axis] |= {"title": titled(f"{title}, log scale"), **logarithmic(values)}
    return {"data": traces, "layout": frame}


def lines(curves: Sequence[Curve], title: str, *, percent: bool = False) -> dict[str, Any]:
    """Values over epochs, one line for each curve, with a band from the least to the greatest where it is a mean."""
    factor = 100 if percent else 1
    traces: list[dict[str, Any]] = []
    methods = [curve.method for curve in curves]
    for number, curve in enumerate(curves):
        alone, before = methods.count(curve.method) == 1, methods[:number].count(curve.method)
        shade = colour(curve.method, number)
        name = method_name(curve.label) if alone else curve.label
        stroke = dash(curve.method) if not before else _DASHES[before % len(_DASHES)]
        style = {"color": shade, "dash": stroke, "width": 2.5}
        if curve.low:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": [*curve.x, *reversed(curve.x)],
                    "y": [plain(factor * y) for y in (*curve.high, *reversed(curve.low))],
                    "fill": "toself",
                    "fillcolor": shade,
                    "opacity": 0.16,
                    "line": {"width": 0},
                    "hoverinfo": "skip",
                    "showlegend": False,
                }
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(curve.x) < 30 else "lines",
                "name": safe(name),
                "x": [plain(x) for x in curve.x],
                "y": [plain(factor * y) for y in curve.y],
                "line": style,
                "marker": {"size": 7, "color": shade, "symbol": _SYMBOLS[number % len(_SYMBOLS)]},
                "hovertemplate": "epoch %{x:.3g}: %{y:.4g}<extra>%{fullData.name}</extra>",
            }
        )
    frame = layout(height=320)
    frame["showlegend"] = len(curves) <= _NAMED
    frame["xaxis"] |= {"title": titled("epoch"), "rangemode": "tozero"}
    frame["yaxis"] |= {"title": titled(f"{title} (%)" if percent else title)}
    if percent:
        frame["yaxis"]["rangemode"] = "nonnegative"
    return {"data": traces, "layout": frame}


def ends(curves: Sequence[Curve], title: str, *, percent: bool = False) -> dict[str, Any]:
    """The last value of each curve as a bar, where there is nothing in between to draw a line through."""
    factor = 100 if percent else 1
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [plain(factor * curve.y[-1]) for curve in curves],
        "y": [safe(method_name(curve.label)) for curve in curves],
        "marker": {"color": [colour(curve.method, number) for number, curve in enumerate(curves)]},
        "text": [f"{factor * curve.y[-1]:.1f} %" if percent else f"{curve.y[-1]:.3f}" for curve in curves],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
        "width": 0.45,
    }
    frame = layout(height=320)
    frame["yaxis"] |= {"autorange": "reversed", "showgrid": False}
    frame["xaxis"] |= {"title": titled(f"{title} (%)" if percent else title), "rangemode": "tozero", "nticks": 5}
    frame["margin"] |= {"r": 64}
    return {"data": [trace], "layout": frame}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
