"""Each figure against the values that it was made from: lines, points, limits, panels; and no label on another."""

from __future__ import annotations

import numpy as np
import pytest

from ranp.errors import DataError
from ranp.reporting import drawing
from ranp.reporting.drawing.style import MOST, short_names, thinned
from ranp.reporting.study import LayerStudy, Study

I3D = [
    *(f"conv{number}.conv" for number in (1, 2, 3)),
    *(f"stage{3 + number // 24}.{number // 6 % 4}.branch{number % 6}.1.conv" for number in range(54)),
    "classifier",
]
LONG = [f"features.backbone.inverted_residual_block_{number}.depthwise_convolution.conv" for number in range(53)]
UNET = [
    f"{side}.{level}.conv{number}.0" for side in ("encoders", "decoders") for level in range(4) for number in (1, 2)
]
slow = pytest.mark.slow
WIDTHS = (drawing.ONE_COLUMN, drawing.TWO_COLUMNS)
METHODS = ("snip", "random", "layerwise", "vanilla", "weighted", "ranp-m", "ranp-f")


def drawn(line):
    x, y = (np.ma.masked_invalid(np.asarray(values, dtype=float)) for values in line.get_data())
    keep = ~(np.ma.getmaskarray(x) | np.ma.getmaskarray(y))
    return np.asarray(x)[keep], np.asarray(y)[keep]


def includes(axes, x, y):
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    return bool(np.all((x >= left) & (x <= right) & (y >= bottom) & (y <= top)))


@pytest.mark.parametrize(
    ("names", "width"), [(UNET, 3.4), pytest.param(LONG, 7.0, marks=slow), pytest.param(I3D, 3.4, marks=slow)]
)
def test_importance_is_sound_at_both_widths(study, sound, names, width):
    figure = drawing.importance(study(names, lambda number: 8 + number), width=width)
    sound(figure)
    assert figure.get_size_inches()[0] == width


def test_importance_shows_every_channel_and_the_mean_of_every_layer(study):
    made = study(UNET)
    figure = drawing.importance(made)
    assert len(figure.axes) == 3
    for axes, stage in zip(figure.axes, ("raw", "balanced", "reweighted"), strict=True):
        points, _, line = axes.lines
        x, y = drawn(points)
        expected = [score for layer in made.layers for score in layer.scores[stage]]
        np.testing.assert_array_equal(y, expected)
        assert axes.get_yscale() == "log"
        np.testing.assert_array_equal(np.round(x), np.repeat(np.arange(1, len(UNET) + 1), 24))
        at, means = drawn(line)
        np.testing.assert_allclose(means, [np.mean(layer.scores[stage]) for layer in made.layers], rtol=1e-12)
        np.testing.assert_array_equal(at, np.arange(1, len(UNET) + 1))
        assert includes(axes, x, y)


def test_importance_has_a_panel_for_each_stage_there_is(study):
    made = study(UNET)
    layers = tuple(
        LayerStudy(
            **{name: getattr(layer, name) for name in LayerStudy.__slots__} | {"scores": {"raw": layer.scores["raw"]}}
        )
        for layer in made.layers
    )
    assert len(drawing.importance(Study(layers, (), (), "vanilla", 0.0, "mpmg-sum")).axes) == 1


def test_importance_of_many_channels_is_thinned_and_its_mean_is_not(study, sound):
    made = study(["wide.conv", "narrow.conv"], lambda number: (5 * MOST, 4)[number])
    figure = drawing.importance(made)
    sound(figure)
    points, _, line = figure.axes[0].lines
    wide = np.array(made.layers[0].scores["raw"])
    shown = drawn(points)[1]
    assert len(shown) == MOST + 4
    assert {wide.min(), wide.max()} <= set(shown[:MOST]) <= set(wide)
    np.testing.assert_allclose(drawn(line)[1][0], wide.mean(), rtol=1e-12)


def test_thinned_values_are_evenly_spaced_in_rank():
    np.testing.assert_array_equal(thinned(range(MOST)), np.arange(MOST))
    ranks = thinned(np.random.default_rng(0).permutation(10 * MOST))
    assert len(ranks) == MOST
    gaps = np.diff(ranks)
    assert gaps.min() >= 9
    assert gaps.max() <= 11


def test_channels_without_importance_are_told_and_not_drawn(study, sound):
    made = study(UNET)
    first = made.layers[0]
    zeros = {stage: (0.0, 0.0, *values[2:]) for stage, values in first.scores.items()}
    dead = LayerStudy(**{name: getattr(first, name) for name in LayerStudy.__slots__} | {"scores": zeros})
    figure = drawing.importance(Study((dead, *made.layers[1:]), (), (), "ranp-f", 11.0, "mpmg-sum"))
    sound(figure)
    assert figure.axes[0].get_title(loc="right") == f"2 of {24 * len(UNET)} channels are 0 and not shown"
    assert len(drawn(figure.axes[0].lines[0])[1]) == 24 * len(UNET) - 2
    np.testing.assert_allclose(drawn(figure.axes[0].lines[2])[1][0], np.mean(zeros["raw"]))


def test_a_study_without_layers_or_importance_is_refused(study):
    with pytest.raises(DataError, match="no layer"):
        drawing.importance(Study((), (), (), "ranp-f", 11.0, "mpmg-sum"))
    layer = study(["one.conv"]).layers[0]
    dead = LayerStudy(
        **{name: getattr(layer, name) for name in LayerStudy.__slots__} | {"scores": {"raw": (0.0,) * 24}}
    )
    with pytest.raises(DataError, match="importance above 0"):
        drawing.importance(Study((dead,), (), (), "ranp-f", 11.0, "mpmg-sum"))


def test_initialisations_stand_side_by_side(study, sound):
    studies = {"Glorot": study(UNET), "orthogonal": study(UNET, seed=1)}
    figure = drawing.initialisation(studies)
    sound(figure)
    assert len(figure.axes) == 3
    for axes, stage in zip(figure.axes[:2], ("raw", "reweighted"), strict=True):
        means = {line.get_label(): drawn(line)[1] for line in axes.lines if line.get_label() in studies}
        for title, made in studies.items():
            np.testing.assert_allclose(means[title], [np.mean(layer.scores[stage]) for layer in made.layers])
        for line in axes.lines:
            assert includes(axes, *drawn(line))
    for line, made in zip(figure.axes[2].lines, studies.values(), strict=True):
        np.testing.assert_allclose(drawn(line)[1], [len(layer.kept) / layer.channels for layer in made.layers])


def test_initialisations_of_different_networks_are_refused(study):
    with pytest.raises(DataError, match="other layers"):
        drawing.initialisation({"Glorot": study(UNET), "orthogonal": study(I3D)})
    with pytest.raises(DataError, match="no study"):
        drawing.initialisation({})


@pytest.mark.parametrize(
    ("names", "methods", "width"),
    [
        (UNET, METHODS[-2:], 3.4),
        (UNET, METHODS, 3.4),
        pytest.param(LONG, METHODS[-2:], 7.0, marks=slow),
        pytest.param(I3D, METHODS, 7.0, marks=slow),
    ],
)
def test_retained_ratios_are_drawn_as_they_are(sound, names, methods, width):
    rng = np.random.default_rng(0)
    ratios = {name: rng.random(len(names)).tolist() for name in methods}
    figure = drawing.retained(ratios, names, width=width)
    sound(figure)
    if len(methods) == 2:
        shown = [drawn(line)[1] for line in figure.axes[0].lines]
    else:
        shown = [axes.patches[0].get_data().values for axes in figure.axes]
    for values, line in zip(ratios.values(), shown, strict=True):
        np.testing.assert_allclose(line, values)


@pytest.mark.parametrize("ratios", [{}, {"ranp-f": [0.5]}, {"ranp-f": [0.5, 1.5]}, {"ranp-f": [0.5, float("nan")]}])
def test_ratios_that_are_none_are_refused(ratios):
    with pytest.raises(DataError):
        drawing.retained(ratios, ["a", "b"])


@pytest.mark.parametrize("width", WIDTHS)
def test_resources_fall_to_the_largest_feasible_sparsity(sweep, sound, width):
    sweeps = [sweep("ranp-f", 0.9857), sweep("vanilla", 0.7824)]
    figure = drawing.resources(sweeps, width=width)
    sound(figure)
    for axes, power in zip(figure.axes, (2, 1), strict=True):
        for number, made in enumerate(sweeps):
            line, end, _ = axes.lines[3 * number : 3 * number + 3]
            x, y = drawn(line)
            assert x[0] == 0
            assert x[-1] == made.largest
            np.testing.assert_allclose(y, (1 - x) ** power, atol=1e-6)
            assert drawn(end)[0].tolist() == [made.largest]
            assert includes(axes, x, y)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["RANP-f (feasible up to 98.6 %)", "Vanilla NP (feasible up to 78.2 %)"]


def test_resources_are_shares_of_what_is_named(sweep):
    class Full:
        flops, memory = 2 * 10**9, 4 * 10**7

    figure = drawing.resources([sweep("ranp-f", 0.9)], Full())
    assert drawn(figure.axes[0].lines[0])[1][0] == pytest.approx(0.5)
    assert drawn(figure.axes[1].lines[0])[1][0] == pytest.approx(0.25)
    with pytest.raises(DataError, match="no sweep"):
        drawing.resources([])


@pytest.mark.parametrize("width", WIDTHS)
def test_accuracy_has_means_bands_and_the_full_network(sound, width):
    curves = {
        "ranp-f": [(0.9, 71.0, 2.0), (0.1, 80.0, 0.5), (0.5, 78.0, 1.0)],
        "vanilla": [(0.1, 79.0, 0.0), (0.78, 75.0, 0.0)],
    }
    figure = drawing.accuracy(curves, "mIoU (%)", (80.5, 0.25), width=width)
    sound(figure)
    (axes,) = figure.axes
    full, ours, vanilla = axes.lines
    assert set(full.get_ydata()) == {80.5}
    assert drawn(ours)[0].tolist() == [0.1, 0.5, 0.9]
    assert drawn(ours)[1].tolist() == [80.0, 78.0, 71.0]
    assert drawn(vanilla)[1].tolist() == [79.0, 75.0]
    corners = axes.collections[0].get_paths()[0].vertices
    for sparsity, mean, deviation in curves["ranp-f"]:
        band = corners[np.isclose(corners[:, 0], sparsity), 1]
        assert band.min() == pytest.approx(mean - deviation)
        assert band.max() == pytest.approx(mean + deviation)
    assert axes.get_ylabel() == "mIoU (%)"
    assert axes.get_ylim()[0] < 69


def test_curves_without_points_are_refused():
    for curves in ({}, {"ranp-f": []}, {"ranp-f": [(0.1, float("nan"), 0.0)]}):
        with pytest.raises(DataError):
            drawing.accuracy(curves, "mIoU (%)")


PAPER = {
    "ShapeNet, 3D-UNet": (
        (237.85, 997.00),
        (237.8, 996),
        (9.6, 590),
        (7.5, 470),
        (20.1, 700),
        (10.3, 450),
        (7.9, 220),
        (7.5, 262),
    ),
    "BraTS, 3D-UNet": (
        (478.13, 3628),
        (478, 3620),
        (18.6, 1400),
        (19, 1500),
        (27, 1600),
        (25, 1280),
        (17.2, 700),
        (17, 726),
    ),
    "UCF101, MobileNetV2": (
        (0.58, 157.5),
        (0.57, 155),
        (0.4, 120),
        (0.39, 118),
        (0.5, 140),
        (0.39, 112),
        (0.28, 88),
        (0.26, 88),
    ),
    "UCF101, I3D": (
        (27.88, 201.3),
        (27.76, 201),
        (20, 160),
        (19, 158),
        (25, 190),
        (18, 150),
        (14.4, 131),
        (13.97, 130),
    ),
    "SceneFlow, PSM": (
        (771, 5182),
        (760, 5100),
        (450, 3900),
        (440, 3850),
        (470, 4200),
        (430, 3800),
        (370, 3500),
        (362, 3456),
    ),
}


def points_of(networks):
    return [
        drawing.ScatterPoint(network, method, flops, memory)
        for network in networks
        for method, (flops, memory) in zip(("full", *METHODS), PAPER[network], strict=True)
    ]


@pytest.mark.parametrize(("count", "width"), [(1, 3.4), (2, 3.4), (4, 7.0), (5, 7.0)])
def test_scatter_has_shares_of_each_networks_own_cost(sound, count, width):
    networks = list(PAPER)[:count]
    figure = drawing.scatter(points_of(networks), width=width)
    sound(figure)
    panels = [axes for axes in figure.axes if axes.lines]
    assert len(panels) == count
    for axes, network in zip(panels, networks, strict=True):
        full = PAPER[network][0]
        expected = [(flops / full[0], memory / full[1]) for flops, memory in PAPER[network]]
        got = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
        np.testing.assert_allclose(got, expected)
        assert all(includes(axes, x, y) for x, y in got)
        assert f"full: {full[0]:.3g} GFLOPs" in axes.get_title(loc="left")
    assert "bottom-left is best" in figure.get_supxlabel()


def test_scatter_needs_the_full_network_once():
    points = points_of(["UCF101, I3D"])
    with pytest.raises(DataError, match="no point of 'full'"):
        drawing.scatter(points[1:])
    with pytest.raises(DataError, match="two points of 'ranp-f'"):
        drawing.scatter([*points, points[-1]])
    with pytest.raises(DataError, match="no point to draw"):
        drawing.scatter([])
    with pytest.raises(DataError, match="flops=0"):
        drawing.ScatterPoint("UCF101, I3D", "full", 0, 1)


def curve(epochs, pace, start):
    times = range(1, epochs + 1)
    return drawing.Curve(
        tuple(map(float, times)),
        tuple(pace * time for time in times),
        {
            "loss": tuple(start / time for time in times),
            "miou": tuple(1 - start / (time + 5) if time % 2 == 0 else None for time in times),
        },
    )


@pytest.mark.parametrize(("width", "epochs"), [(3.4, 100), (7.0, 6)])
def test_convergence_is_two_by_two_and_skips_what_was_not_measured(sound, width, epochs):
    curves = {"full": curve(epochs, 150.0, 2.0), "ranp-f": curve(epochs, 31.0, 1.5)}
    figure = drawing.convergence(curves, labels={"miou": "mIoU"}, width=width)
    sound(figure)
    assert len(figure.axes) == 4
    for axes, (y, x) in zip(figure.axes, [(y, x) for y in ("loss", "miou") for x in ("epoch", "seconds")], strict=True):
        for line, made in zip(axes.lines, curves.values(), strict=True):
            places, values = drawn(line)
            known = [n for n, value in enumerate(made.figures[y]) if value is not None]
            np.testing.assert_allclose(values, [made.figures[y][n] for n in known])
            np.testing.assert_allclose(places, [(made.epochs if x == "epoch" else made.seconds)[n] for n in known])
            assert includes(axes, places, values)


def test_convergence_of_one_figure_on_one_axis(sound):
    figure = drawing.convergence({"full": curve(5, 1.0, 1.0)}, x="seconds", y="miou", width=3.4)
    sound(figure)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "training time (s)"
    assert drawn(axes.lines[0])[0].tolist() == [2.0, 4.0]
    with pytest.raises(DataError, match="y='dice'"):
        drawing.convergence({"full": curve(5, 1.0, 1.0)}, y="dice")
    with pytest.raises(DataError, match="x='steps'"):
        drawing.convergence({"full": curve(5, 1.0, 1.0)}, x="steps")


def test_long_times_are_counted_in_minutes_and_hours():
    labels = []
    for pace in (10.0, 200.0, 4000.0):
        figure = drawing.convergence({"full": curve(5, pace, 1.0)}, x="seconds", y="loss")
        labels.append(figure.axes[0].get_xlabel())
        ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
        assert 2 <= len([tick for tick in ticks if tick]) <= 9
    assert labels == ["training time (s)", "training time (min)", "training time (h)"]


@pytest.mark.parametrize("names", [UNET, LONG, I3D, ["a"], ["a.b", "a"], ["x" * 60 + str(n) for n in range(9)]])
def test_short_names_are_short_and_different(names):
    short = short_names(names)
    assert len(set(short)) == len(names)
    assert max(map(len, short)) <= 24


def test_a_method_has_the_same_colour_in_every_figure(sweep):
    alone = drawing.resources([sweep("ranp-f", 0.9)]).axes[0].lines[0].get_color()
    beside = drawing.retained({"vanilla": [0.1], "RANP-f": [0.2]}, ["a"]).axes[0].lines[1].get_color()
    batched = drawing.accuracy({"Full, batch 1": [(0.1, 1, 0)], "RANP-f, batch 4": [(0.1, 1, 0)]}, "mIoU").axes[0].lines
    assert alone == beside == batched[1].get_color()
    assert batched[0].get_color() == "#000000"
    two = drawing.accuracy({"RANP-f, Acc-1": [(0.1, 1, 0)], "RANP-f, Acc-3": [(0.1, 1, 0)]}, "share (%)").axes[0].lines
    assert two[0].get_color() != two[1].get_color()


def test_a_figure_has_a_width_that_a_page_has(sweep):
    with pytest.raises(DataError, match=r"width=0\.5"):
        drawing.resources([sweep("ranp-f", 0.9)], width=0.5)
