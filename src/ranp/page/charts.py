"""From values to figures for plotly: plain dictionaries, whose colours are variables of the style sheet."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ranp.page.curves import Curve
from ranp.page.templates import verbatim
from ranp.reporting.format import MIB, flops, mebibytes
from ranp.reporting.looks import look_of, method_name
from ranp.reporting.study import Study, Sweep

STAGES = {"raw": "raw", "balanced": "balanced over layers", "reweighted": "reweighted by cost"}
_MARKS = 40
"""Channels of a layer that are drawn; more of them would hide one another."""
_ROW, _LOW_ROW = 26, 17
MANY = 24
"""So many layers fit on a screen; more are drawn closer together, and scroll in boxes of their own."""
_NAMED = 4
"""So many names fit into the legend of a chart; those of more stand above it."""
_RIM = {"width": 1.5, "color": "var(--card)"}
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
    names = [safe(layer.name) for layer in study.layers]
    stages = [stage for stage in STAGES if any(stage in layer.scores for layer in study.layers)]
    traces: list[dict[str, Any]] = []
    for stage in stages:
        of_stage: dict[str, Any] = {"meta": stage, "visible": stage == stages[-1]}
        for kept, words in ((False, "removed channel"), (True, "kept channel")):
            marker = {"symbol": "line-ns-open", "size": 13, "line": {"width": 1.6}}
            marker["color"] = "var(--kept)" if kept else "var(--gone)"
            hover = "%{customdata}: %{x:.3g}<extra>" + words + "</extra>"
            if marks := _marks(study, stage, kept):
                y, x, channels = map(list, zip(*marks, strict=True))
                traces.append(_trace(words, x, y, hover, marker=marker, customdata=channels, **of_stage))
        means = [(index, mean(layer.scores.get(stage, ()))) for index, layer in enumerate(study.layers)]
        shown = {index: plain(mean) for index, mean in means if mean > 0}
        marker = {"symbol": "diamond", "size": 9, "color": "var(--ink)", "line": _RIM}
        hover = "%{customdata}: mean %{x:.3g}<extra></extra>"
        layers = [names[index] for index in shown]
        means_of = _trace("mean of the layer", list(shown.values()), list(shown), hover, marker=marker)
        traces.append(means_of | of_stage | {"customdata": layers})
    axes = {
        stage: logarithmic([x for trace in traces if trace["meta"] == stage for x in trace["x"]]) for stage in stages
    }
    frame = layout(height=110 + (_ROW if len(names) <= MANY else _LOW_ROW) * len(names))
    frame["xaxis"] |= {"title": titled("importance, log scale"), **axes[stages[-1]]}
    frame["yaxis"] |= {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": names, "showgrid": True}
    frame["yaxis"]["range"] = [len(names) - 0.4, -0.6]
    frame["meta"] = {"axes": axes, "names": names}
    return {"data": traces, "layout": frame}


def _trace(name: str, x: list[Any], y: list[Any], hover: str, mode: str = "markers", **more: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": mode, "name": safe(name), "x": x, "y": y, "hovertemplate": hover, **more}


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
    traces = []
    for number, one in enumerate(sweeps):
        steps, look = [step for step in one.steps if step.feasible], look_of(one.method, number)
        full = getattr(one.steps[0], resource) or 1
        x = [plain(100 * step.sparsity) for step in steps]
        y = [plain(100 * getattr(step, resource) / full) for step in steps]
        style = {
            "line": {"color": look.shade, "dash": look.dash, "width": 2.5},
            "marker": {"size": 5, "symbol": _SYMBOLS[number % len(_SYMBOLS)]},
        }
        hover = "%{x:.1f} % asked for: %{y:.1f} % left<extra>%{fullData.name}</extra>"
        traces.append(_trace(method_name(one.method), x, y, hover, "lines+markers", **style))
    frame = layout(height=270)
    frame["xaxis"] |= {"range": [0, 100], "title": titled("sparsity asked for (%)"), "dtick": 25}
    frame["yaxis"] |= {"range": [0, 104], "dtick": 25, "title": titled("% of the full network")}
    shade = {"type": "rect", "xref": "x", "yref": "paper", "fillcolor": "var(--forbidden)", "layer": "below"}
    place = {"x0": plain(100 * sweeps[0].largest), "x1": 100, "y0": 0, "y1": 1, "line": {"width": 0}}
    frame["shapes"] = [shade | place]
    return {"data": traces, "layout": frame}


def scatter(points: Sequence[Point]) -> dict[str, Any]:
    """FLOPs against memory, one mark for each network."""
    traces = []
    for number, method in enumerate(dict.fromkeys(point.method for point in points)):
        members = [point for point in points if point.method == method]
        words = [
            f"{safe(point.label)}: {flops(point.flops)}, {mebibytes(point.memory)}"
            + (f", {safe(point.remark)}" if point.remark else "")
            for point in members
        ]
        marker = {"size": 13, "color": look_of(method, number).shade, "line": _RIM}
        marker["symbol"] = _SYMBOLS[number % len(_SYMBOLS)]
        x, y = [point.flops / 1e6 for point in members], [plain(point.memory * MIB) for point in members]
        traces.append(_trace(method_name(method), x, y, "%{text}<extra></extra>", marker=marker, text=words))
    frame = layout(height=340)
    frame["showlegend"] = len(traces) <= _NAMED
    for axis, title, values in (
        ("xaxis", "MFLOPs", [point.flops / 1e6 for point in points]),
        ("yaxis", "memory (MiB)", [point.memory * MIB for point in points]),
    ):
        frame[axis] |= {"title": titled(title), **around(values)}
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
        look = look_of(curve.method, number)
        if curve.low:
            band = {"type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": look.shade, "opacity": 0.16}
            band |= {"line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
            x, y = [*curve.x, *reversed(curve.x)], [plain(factor * y) for y in (*curve.high, *reversed(curve.low))]
            traces.append(band | {"x": x, "y": y})
        stroke = look.dash if not before else _DASHES[before % len(_DASHES)]
        style = {
            "line": {"color": look.shade, "dash": stroke, "width": 2.5},
            "marker": {"size": 7, "color": look.shade, "symbol": _SYMBOLS[number % len(_SYMBOLS)]},
        }
        name, mode = method_name(curve.label) if alone else curve.label, "lines+markers"
        hover = "epoch %{x:.3g}: %{y:.4g}<extra>%{fullData.name}</extra>"
        x, y = [plain(x) for x in curve.x], [plain(factor * y) for y in curve.y]
        traces.append(_trace(name, x, y, hover, mode if len(x) < 30 else "lines", **style))
    frame = layout(height=320)
    frame["showlegend"] = len(curves) <= _NAMED
    frame["xaxis"] |= {"title": titled("epoch"), "rangemode": "tozero"}
    frame["yaxis"] |= {"title": titled(f"{title} (%)" if percent else title)}
    frame["yaxis"] |= {"rangemode": "nonnegative"} if percent else {}
    return {"data": traces, "layout": frame}


def ends(curves: Sequence[Curve], title: str, *, percent: bool = False) -> dict[str, Any]:
    """The last value of each curve as a bar, where there is nothing in between to draw a line through."""
    factor = 100 if percent else 1
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [plain(factor * curve.y[-1]) for curve in curves],
        "y": [safe(method_name(curve.label)) for curve in curves],
        "marker": {"color": [look_of(curve.method, number).shade for number, curve in enumerate(curves)]},
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


def mean(values: Sequence[float]) -> float:
    """0 where there is none."""
    return sum(values) / len(values) if values else 0.0


def layout(height: int) -> dict[str, Any]:
    """What all charts share: no background of their own, a legend above, axes that make room for their labels."""
    return {**json.loads(verbatim("chart.json")), "height": height}


def titled(words: str) -> dict[str, Any]:
    """The title of an axis."""
    return {"text": safe(words), "font": {"color": "var(--soft)", "size": 13}, "standoff": 8}


def around(values: Sequence[float]) -> dict[str, Any]:
    """An axis from the least to the greatest value, with room for the marks; it need not begin at 0."""
    low, high = min(values), max(values)
    edge = 0.1 * (high - low) or 0.05 * abs(high) or 1.0
    return {"range": [plain(max(low - edge, 0.0) if low >= 0 else low - edge), plain(high + edge)], "nticks": 6}


def logarithmic(values: Sequence[float]) -> dict[str, Any]:
    """An axis from the least to the greatest value, with a few round numbers on it."""
    good = [value for value in values if value > 0] or [1.0]
    low, high = math.log10(min(good)), math.log10(max(good))
    edge = max(0.06 * (high - low), 0.05)
    decades = high - low
    tick: dict[str, Any] = {"dtick": math.ceil(decades / 6), "exponentformat": "power", "tickformat": ""}
    if decades < 2.2:
        tick = {"dtick": "D2" if decades > 0.5 else "D1", "exponentformat": "none", "tickformat": "~r"}
    return {"type": "log", "range": [plain(low - edge), plain(high + edge)], **tick}


def safe(words: str) -> Markup:
    """Text for plotly, which reads tags in it; templates do not escape it again."""
    return Markup(html.escape(words, quote=False))


def plain(value: float) -> float:
    """A number with as many digits as a screen can show; never one that JSON cannot say."""
    return float(f"{value:.5g}") if math.isfinite(value) else 0.0
