"""Studies of made-up networks, and what every figure must satisfy."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from ranp.reporting import drawing
from ranp.reporting.drawing.style import styled
from ranp.reporting.study import LayerStudy, Step, Study, Sweep


def made_up(names: list[str], channels: Callable[[int], int] = lambda number: 24, seed: int = 0) -> Study:
    """A study with the spread of importance that real networks have."""
    rng = np.random.default_rng(seed)
    layers = []
    for number, name in enumerate(names):
        count = channels(number)
        raw = 10.0 ** (-4 - 2 * np.sin(0.5 * number + seed)) * rng.lognormal(0, 0.8, count)
        balanced = raw / raw.mean() * 1e-3
        scores = {"raw": raw, "balanced": balanced, "reweighted": balanced * rng.uniform(1, 3)}
        layers.append(
            LayerStudy(
                name=name,
                kind="conv",
                channels=count,
                flops=10**6,
                memory=10**4,
                scores={stage: tuple(map(float, values)) for stage, values in scores.items()},
                kept=tuple(range(max(1, count // (2 + number % 3)))),
                note="",
            )
        )
    return Study(tuple(layers), (), (swept("ranp-f", 0.9), swept("vanilla", 0.6)), "ranp-f", 11.0, "mpmg-sum")


def swept(method: str, largest: float) -> Sweep:
    """A sweep whose FLOPs fall with the square of what is left, and its memory with what is left."""
    steps = [
        Step(sparsity, True, (1,), sparsity, 100, round(10**9 * (1 - sparsity) ** 2), round(10**7 * (1 - sparsity)))
        for sparsity in (0.0, 0.25 * largest, 0.5 * largest, 0.75 * largest, largest)
    ]
    return Sweep(method, largest, (*steps, Step((largest + 1) / 2, False), Step(0.99, False)))


@pytest.fixture
def study() -> Callable[..., Study]:
    return made_up


@pytest.fixture
def sweep() -> Callable[[str, float], Sweep]:
    return swept


def texts_of(figure: Figure) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Everything that a reader sees written in a figure, and the corners of its box in pixels."""
    seen = []
    with styled():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        hidden = _not_drawn(figure)
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
                box = text.get_window_extent(renderer)
                seen.append((text.get_text(), (box.x0, box.y0, box.x1, box.y1)))
    return seen


def _not_drawn(figure: Figure) -> set[int]:
    """Texts that an axis keeps and does not show: of ticks outside of its limits, of an axis that is off."""
    hidden: set[int] = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            drawn = axis._update_ticks() if axes.axison else []
            kept = [label for tick in (*axis.majorTicks, *axis.minorTicks) for label in (tick.label1, tick.label2)]
            shown = {id(label) for tick in drawn for label in (tick.label1, tick.label2)}
            hidden |= {id(label) for label in kept} - shown
            hidden |= set() if axes.axison else {id(axis.label), id(axis.offsetText)}
    return hidden


def assert_sound(figure: Figure) -> None:
    """No label touches another or leaves the figure; saved twice it is the same, and the SVG is XML without a NaN."""
    seen = texts_of(figure)
    assert seen
    width, height = figure.bbox.width, figure.bbox.height
    for text, (left, bottom, right, top) in seen:
        assert min(left, bottom, width - right, height - top) >= -1, f"{text!r} leaves the figure"
    for (one, a), (other, b) in combinations(seen, 2):
        across = min(a[2], b[2]) - max(a[0], b[0])
        above = min(a[3], b[3]) - max(a[1], b[1])
        assert across <= 0.5 or above <= 0.5, f"{one!r} and {other!r} overlap by {across:.1f} x {above:.1f} pixels"
    svg = drawing.rendered(figure)
    assert drawing.rendered(figure) == svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    for element in ElementTree.fromstring(svg).iter():
        for name, value in element.attrib.items():
            words = re.findall(r"[a-z]+", "" if value.startswith("data:") else value.lower())
            assert not {"nan", "inf"} & set(words), f"{element.tag} has {name}={value!r}"


@pytest.fixture
def sound() -> Callable[[Figure], None]:
    return assert_sound
