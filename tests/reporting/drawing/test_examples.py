"""Example predictions: what a panel shows is what it was given, and rows, bars and legends are where they belong."""

from __future__ import annotations

import numpy as np
import pytest

from ranp.errors import DataError
from ranp.reporting import drawing
from ranp.reporting.drawing import Panel, Picture, Scale
from ranp.reporting.drawing.examples import OVERLAYS, UNKNOWN, image_of


def colour(text):
    return np.array([int(text[place : place + 2], 16) for place in (1, 3, 5)])


def test_an_overlay_tints_what_is_labelled_and_nothing_else():
    scan = np.linspace(0, 1, 100).reshape(10, 10)
    labels = np.zeros((10, 10), dtype=int)
    labels[2:5, 3:6], labels[7, 7] = 1, 3
    shown = image_of(Panel("Truth", "overlay", scan, labels, ("a", "b", "c")), 10).astype(float)
    grey = np.round(scan * 255)[..., None].repeat(3, axis=-1)
    for label, tint in ((0, None), (1, OVERLAYS[0]), (3, OVERLAYS[2])):
        where = labels == label
        expected = grey[where] if tint is None else 0.4 * grey[where] + 0.6 * colour(tint)
        assert np.abs(shown[where] - expected).max() <= 1


def test_numbers_are_coloured_by_their_scale_and_the_unknown_is_grey():
    scale = Scale("error (px)", 0.0, 3.0, error=True)
    values = np.array([[0.0, 1.5, 3.0], [9.0, np.nan, 0.0]])
    shown = image_of(Panel("Error", "image", values, scale=scale), 2)
    np.testing.assert_array_equal(shown[1, 1], colour(UNKNOWN))
    np.testing.assert_array_equal(shown[0, 2], shown[1, 0])
    np.testing.assert_array_equal(shown[0, 0], shown[1, 2])
    assert shown[0, 0].min() > 235
    assert shown[0, 0].sum() > shown[0, 1].sum() > shown[0, 2].sum()


def test_small_images_keep_their_pixels_and_large_ones_their_mean():
    image = np.random.default_rng(0).random((7, 5, 3))
    shown = image_of(Panel("Scene", "image", image), 24)
    assert shown.shape == (21, 15, 3)
    np.testing.assert_array_equal(shown[::3, ::3], (image * 255).round())
    large = np.random.default_rng(0).random((120, 60, 3))
    small = image_of(Panel("Scene", "image", large), 30)
    assert small.shape == (30, 15, 3)
    np.testing.assert_allclose(small, 255 * large.reshape(30, 4, 15, 4, 3).mean(axis=(1, 3)), atol=2)


def test_bars_say_what_is_likely_and_mark_the_truth(sound):
    names = ("HorseRiding", "PullUps", "HandstandPushups, of a class with a name that is much too long", "a", "b")
    panel = Panel("Full", "bars", np.array([0.5, 0.2, 0.15, 0.1, 0.05]), legend=names, marked=1)
    figure = drawing.examples([Picture("Truth: PullUps", (panel, panel))], width=3.4)
    sound(figure)
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == [0.5, 0.2, 0.15, 0.1, 0.05]
    colours = [bar.get_facecolor() for bar in bars]
    assert len({c for place, c in enumerate(colours) if place != 1}) == 1
    assert colours[1] != colours[0]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[:4] == ["50 %", "HorseRiding", "20 %", "PullUps"]
    assert texts[5].startswith("HandstandPush")
    assert texts[5].endswith("…")


def rows(kind, names, count=2, lines=1):
    rng = np.random.default_rng(0)
    scale = Scale("disparity (px)", 0, 60)
    grid = np.where(rng.random((6, 6, 6)) < 0.4, rng.integers(0, 3, (6, 6, 6)), -1)
    made = []
    for number in range(count):
        panels = []
        for name in names:
            if kind == "voxels":
                panels.append(Panel(name, kind, grid, note="mIoU 81.2 %"))
            elif kind == "overlay":
                labels = rng.integers(0, 4, (30, 24))
                legend = ("whole tumour (WT)", "tumour core (TC)", "enhancing tumour (ET)")
                panels.append(Panel(name, kind, rng.random((30, 24)), labels, legend, note="Dice 80.0 %"))
            else:
                panels.append(Panel(name, kind, 60 * rng.random((20, 40)), scale=scale, note="EPE 1.02 px"))
        made.append(Picture(f"Sample {number + 1}", tuple(panels), lines=lines))
    return made


@pytest.mark.parametrize("width", [3.4, 7.0])
@pytest.mark.parametrize(("kind", "lines"), [("voxels", 1), ("overlay", 1), ("image", 2)])
def test_rows_of_panels_are_sound(sound, kind, lines, width):
    names = ["Truth", "Full", "RANP-f (sparsity 98.57 %)", "Layer-wise NP"]
    figure = drawing.examples(rows(kind, names, lines=lines), width=width)
    sound(figure)
    assert figure.get_size_inches()[0] <= width + 1e-9
    assert len(figure.axes) == 2 * (len(names) + (lines if kind == "image" else 0))
    for axes in figure.axes:
        box = axes.get_position()
        assert min(box.x0, 1 - box.x1, box.y0, 1 - box.y1) >= 0
    if kind == "overlay":
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [
            "whole tumour (WT)",
            "tumour core (TC)",
            "enhancing tumour (ET)",
        ]


def test_panels_go_down_a_column_first():
    figure = drawing.examples(rows("image", ["a", "ranp-f: error", "c", "full"], count=1, lines=2))
    places = {text.get_text(): text.get_position() for text in figure.texts}
    assert places["a"][0] == places["RANP-f: error"][0] < places["c"][0] == places["Full"][0]
    assert places["a"][1] == places["c"][1] > places["RANP-f: error"][1] == places["Full"][1]


def test_pictures_stay_small():
    rng = np.random.default_rng(0)
    noise = [Panel(f"Network {number}", "image", rng.random((200, 300, 3))) for number in range(5)]
    assert len(drawing.rendered(drawing.examples([Picture("Noise", tuple(noise))] * 2))) < 150_000


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "film", "values": np.zeros((2, 2))}, "allowed are image, overlay, voxels, bars"),
        ({"kind": "image", "values": np.zeros(3)}, "2 or 3 dimensions"),
        ({"kind": "voxels", "values": np.zeros((2, 2))}, "3 dimensions"),
        ({"kind": "voxels", "values": np.zeros((2, 2, 2)), "views": ()}, "need a view"),
        ({"kind": "overlay", "values": np.zeros((2, 2))}, "one for each pixel"),
        ({"kind": "overlay", "values": np.zeros((2, 2)), "labels": np.zeros((2, 3))}, "one for each pixel"),
        ({"kind": "bars", "values": np.zeros(3), "legend": ("a",)}, "name each of them"),
    ],
)
def test_panels_that_cannot_be_drawn_are_refused(fields, words):
    with pytest.raises(DataError, match=words):
        Panel("Truth", **fields)


def test_pictures_and_scales_that_cannot_be_drawn_are_refused():
    panel = Panel("Truth", "image", np.zeros((2, 2)))
    for make in (
        lambda: Picture("Sample", ()),
        lambda: Picture("Sample", (panel,), lines=2),
        lambda: Scale("error (px)", 1.0, 1.0),
        lambda: Scale("error (px)", 0.0, float("inf")),
        lambda: drawing.examples([]),
    ):
        with pytest.raises(DataError):
            make()


def test_a_journal_becomes_a_curve():
    records = [
        {"kind": "step", "step": 1, "loss": 3.0},
        {"kind": "epoch", "epoch": 1, "step": 4, "loss": 2.0, "seconds": 10.0},
        {"kind": "epoch", "epoch": 2, "step": 8, "loss": 1.0, "seconds": 21.0, "valid": {"miou": 0.5, "accuracy": 0.7}},
        {"kind": "epoch", "epoch": 3, "step": 12, "loss": None, "seconds": 32.0},
    ]
    curve = drawing.Curve.of(records)
    assert curve.points("seconds", "loss") == ((10.0, 21.0), (2.0, 1.0))
    assert curve.points("epoch", "miou") == ((2.0,), (0.5,))
    assert list(curve.figures) == ["loss", "miou", "accuracy"]
    with pytest.raises(DataError, match="no record of an epoch"):
        drawing.Curve.of(records[:1])
    with pytest.raises(DataError, match="2 values of 'loss'"):
        drawing.Curve((1.0,), (1.0,), {"loss": (1.0, 2.0)})
