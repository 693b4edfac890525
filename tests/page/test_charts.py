"""Figures hold the values they are made from, and plotly takes every one of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from ranp.page import charts
from ranp.page.charts import Point
from ranp.page.curves import Curve
from ranp.page.templates import Chart, render
from tests.support.studies import STUDY

POINTS = (
    Point("full", "full", 2_000_000_000, 3_000_000),
    Point("<b>mine</b>", "own", 50_000_000, 900_000, "Dice 80.0 %"),
)
CURVES = (
    Curve("a", "full", (1.0, 2.0), (0.5, 0.25)),
    Curve("b", "own", (1.0, 2.0), (0.4, 0.3), (0.3, 0.2), (0.5, 0.4)),
)
FIGURES = {
    "importance": charts.importance(STUDY),
    "sweep": charts.sweep(STUDY.sweeps, "flops"),
    "scatter": charts.scatter(POINTS),
    "lines": charts.lines(CURVES, "Dice", percent=True),
    "ends": charts.ends(CURVES, "EPE"),
}


def coloured(value: Any) -> Any:
    """The figure with colours as plotly knows them: the page fills them in from its style sheet."""
    return json.loads(re.sub(r"var\(--[\w-]+\)", "#123456", json.dumps(value, allow_nan=False)))


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_takes_every_figure(name: str) -> None:
    figure = go.Figure(coloured(FIGURES[name]))
    assert len(figure.data) == len(FIGURES[name]["data"])


@pytest.mark.parametrize("name", FIGURES)
def test_every_colour_is_a_variable_that_the_style_sheet_has_for_light_and_dark(name: str) -> None:
    style = (Path(charts.__file__).parent / "template" / "page.css").read_text()
    used = set(re.findall(r"var\((--[\w-]+)\)", json.dumps(FIGURES[name])))
    assert used
    for variable in used:
        assert len(re.findall(rf"{variable}: #", style)) >= 2, variable
    assert not re.findall(r"#[0-9a-fA-F]{6}", json.dumps(FIGURES[name]))


def test_importance_marks_every_channel_once_as_kept_or_removed() -> None:
    for stage in charts.STAGES:
        traces = {trace["name"]: trace for trace in FIGURES["importance"]["data"] if trace["meta"] == stage}
        kept = list(zip(traces["kept channel"]["y"], traces["kept channel"]["x"], strict=True))
        gone = list(zip(traces["removed channel"]["y"], traces["removed channel"]["x"], strict=True))
        for index, layer in enumerate(STUDY.layers):
            values = layer.scores[stage]
            assert sorted(x for y, x in kept if y == index) == sorted(values[c] for c in layer.kept or ())
            others = [value for c, value in enumerate(values) if c not in (layer.kept or ()) and value > 0]
            assert sorted(x for y, x in gone if y == index) == sorted(others)
        means = traces["mean of the layer"]["x"]
        assert means == pytest.approx([sum(one.scores[stage]) / one.channels for one in STUDY.layers], rel=1e-4)


def test_only_the_last_stage_is_seen_at_first_and_every_stage_has_an_axis() -> None:
    seen = {trace["meta"] for trace in FIGURES["importance"]["data"] if trace["visible"]}
    assert seen == {"reweighted"}
    axes = FIGURES["importance"]["layout"]["meta"]["axes"]
    for stage, axis in axes.items():
        values = [value for layer in STUDY.layers for value in layer.scores[stage] if value > 0]
        low, high = axis["range"]
        assert 10**low < min(values) <= max(values) < 10**high


def test_a_large_layer_shows_channels_from_its_whole_ranking() -> None:
    from dataclasses import replace

    scores = tuple(float(value) for value in range(1, 1001))
    layer = replace(STUDY.layers[0], channels=1000, scores={"raw": scores}, kept=tuple(range(500, 1000)))
    figure = charts.importance(replace(STUDY, layers=(layer,)))
    drawn = [x for trace in figure["data"] if trace["name"].endswith("channel") for x in trace["x"]]
    assert len(drawn) == 40
    assert min(drawn) == 1.0
    assert max(drawn) > 960


def test_a_sweep_shows_shares_of_feasible_steps_and_shades_the_rest() -> None:
    own, other = FIGURES["sweep"]["data"]
    assert own["x"] == [0.0, 25.0, 50.0]
    assert own["y"] == pytest.approx([100.0, 100 * 3.21 / 6.01, 100 * 1.51 / 6.01], rel=1e-4)
    assert other["x"] == [0.0, 26.0]
    shade = FIGURES["sweep"]["layout"]["shapes"][0]
    assert (shade["x0"], shade["x1"]) == (50.0, 100)


def test_text_of_others_cannot_be_read_as_tags() -> None:
    told = json.dumps(FIGURES["scatter"])
    assert "<b>" not in told
    assert "&lt;b&gt;mine" in told


def test_a_mean_has_a_band_and_a_single_run_none() -> None:
    single, band, mean = FIGURES["lines"]["data"]
    assert single["y"] == [50.0, 25.0]
    assert mean["y"] == [40.0, 30.0]
    assert band["fill"] == "toself"
    assert sorted(band["y"]) == [20.0, 30.0, 40.0, 50.0]


def test_more_names_than_a_legend_holds_stand_above_the_chart() -> None:
    def drawn(figure: dict[str, Any]) -> str:
        chart = Chart("x", figure, "caption", "words")
        return render("training.html", last="", charts=[chart])

    methods = ("full", "ranp-f", "ranp-f", "vanilla", "random")
    curves = tuple(Curve(f"run {number} & co", method, (1.0,), (0.5,)) for number, method in enumerate(methods))
    figure = charts.lines(curves, "Dice")
    assert figure["layout"]["showlegend"] is False
    assert re.findall(r"</i>([^<]*)</li>", drawn(figure)) == [f"run {number} &amp; co" for number in range(5)]
    assert len({(trace["line"]["color"], trace["line"]["dash"]) for trace in figure["data"]}) == 5
    assert "legend" not in drawn(charts.lines(curves[:3], "Dice"))


@pytest.mark.parametrize("flops", [(80_000_000, 81_000_000), (50_000_000, 2_000_000_000), (7_000_000, 7_000_000)])
def test_a_scatter_shows_where_the_marks_are_and_they_are_all_inside(flops: tuple[int, int]) -> None:
    points = [Point(f"run {number}", "own", each, 3_000_000 + number) for number, each in enumerate(flops)]
    axis = charts.scatter(points)["layout"]["xaxis"]
    low, high = axis["range"]
    if axis.get("type") == "log":
        low, high = 10**low, 10**high
        assert "log scale" in axis["title"]["text"]
    x = [each / 1e6 for each in flops]
    assert low < min(x) <= max(x) < high
    if x[0] != x[1] and "log" not in axis["title"]["text"]:
        assert max(x) - min(x) > 0.8 * (high - low)
