"""Example predictions: a row for each sample, truth beside what each network says.

Numbers, labels and voxels become colours, at the size that they are shown in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError
from ranp.reporting.drawing.style import TWO_COLUMNS, drawn, plain, title_of
from ranp.reporting.drawing.values import Panel, Picture, Scale
from ranp.reporting.drawing.voxels import render
from ranp.reporting.looks import GREEN, SKY, VERMILLION, YELLOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTS = 150  # pixels an inch
_EDGE, _GAP, _BETWEEN = 0.06, 0.07, 0.14  # inches: around all, between panels, between samples
_TITLE, _PANEL_TITLE, _NOTE, _LEGEND = 0.15, 0.14, 0.14, 0.2
_COLOUR_BAR, _BAR_ROOM = 0.07, 0.42
_TALLEST, _NARROWEST = 1.5, 3.4
_BAR, _BAR_TRUE = "#D9D9D9", GREEN
Pixels = npt.NDArray[np.uint8]
OVERLAYS = (SKY, YELLOW, VERMILLION)
"""Colours of an overlay's labels 1, 2, ..., over and over."""
UNKNOWN = "#CCCCCC"
"""Where a number is not known."""
_OPAQUE = 0.6
_BARS = 1.75  # width of bars relative to their height


@dataclass(frozen=True, slots=True)
class _Row:
    """Panels side by side, and what stands above and below them."""

    title: str
    panels: tuple[Panel, ...]

    @property
    def above(self) -> float:
        return (_TITLE if self.title else 0.0) + (_PANEL_TITLE if any(p.title for p in self.panels) else 0.0)

    @property
    def below(self) -> float:
        return _NOTE if any(panel.note for panel in self.panels) else 0.0

    @property
    def scales(self) -> list[Scale]:
        return list(dict.fromkeys(panel.scale for panel in self.panels if panel.scale is not None))


def examples(pictures: Sequence[Picture], *, width: float = TWO_COLUMNS) -> Figure:
    """The pictures below each other, images and voxels as small images inside the file.

    Args:
        pictures: As ``ranp.paper.tasks.pictures`` makes them.
        width: Inches at most; panels become no taller than 1.5 inches.

    Raises:
        DataError: There is no picture.
        UnsupportedError: Matplotlib is not installed.
    """
    if not pictures:
        raise DataError("there is no picture to draw. Pass at least one.")
    rows = [row for picture in pictures for row in _rows(picture)]
    legend = list(dict.fromkeys(n for row in rows for p in row.panels if p.kind == "overlay" for n in p.legend))
    room = max(len(row.scales) for row in rows) * _BAR_ROOM
    columns = max(len(row.panels) for row in rows)
    shapes = [max(aspect(row.panels[c]) for row in rows if c < len(row.panels)) for c in range(columns)]
    tall = min(_TALLEST, (width - 2 * _EDGE - room - _GAP * (columns - 1)) / sum(shapes))
    width = min(width, max(_NARROWEST, 2 * _EDGE + room + _GAP * (columns - 1) + tall * sum(shapes)))
    height = 2 * _EDGE + sum(row.above + tall + row.below for row in rows) + (_LEGEND if legend else 0.0)
    height += sum(_BETWEEN if row.title else _GAP for row in rows[1:])
    with drawn(width, height, arranged=False) as figure:
        top = height - _EDGE
        for number, row in enumerate(rows):
            top -= (_BETWEEN if row.title else _GAP) if number else 0.0
            _draw_row(figure, row, shapes, tall, top)
            top -= row.above + tall + row.below
        if legend:
            _draw_legend(figure, legend)
    return figure


def _rows(picture: Picture) -> list[_Row]:
    """The lines of a picture; its panels go down each column first."""
    lines = [picture.panels[line :: picture.lines] for line in range(picture.lines)]
    return [_Row(picture.title if number == 0 else "", panels) for number, panels in enumerate(lines)]


def _draw_row(figure: Figure, row: _Row, shapes: Sequence[float], tall: float, top: float) -> None:
    width, height = figure.get_size_inches()
    if row.title:
        label = figure.text(_EDGE / width, top / height, plain(row.title), va="top", fontsize=7.5, fontweight="bold")
        _fit(label, width - 2 * _EDGE)
    bottom, left = top - row.above - tall, _EDGE
    for panel, shape in zip(row.panels, shapes, strict=False):
        wide = aspect(panel) * tall
        axes = figure.add_axes((left / width, bottom / height, wide / width, tall / height))
        if panel.kind == "bars":
            _draw_bars(axes, panel, wide)
        else:
            axes.imshow(image_of(panel, max(8, round(tall * _DOTS))), aspect="auto")
            axes.set_axis_off()
        if panel.title:
            _fit(_text(figure, left, bottom + tall + 0.035, _written(panel.title), "bottom"), wide)
        if panel.note:
            _fit(_text(figure, left, bottom - 0.035, plain(panel.note), "top", colour="#444444"), wide)
        left += shape * tall + _GAP
    for scale in row.scales:
        axes = figure.add_axes((left / width, bottom / height, _COLOUR_BAR / width, tall / height))
        _draw_colour_bar(axes, scale)
        left += _BAR_ROOM


def _written(title: str) -> str:
    """A title as the paper writes it, which is that of a method or begins with one."""
    name, colon, rest = title.partition(":")
    return f"{title_of(name)}: {plain(rest)}" if colon else title_of(name)


def _text(figure: Figure, x: float, y: float, text: str, va: str, colour: str = "black") -> Any:
    width, height = figure.get_size_inches()
    return figure.text(x / width, y / height, text, va=va, fontsize=6.5, color=colour)


def _fit(text: Any, inches: float) -> None:
    """Makes a text smaller, and then shorter, until it is no wider than that."""
    dots = inches * text.figure.dpi
    while text.get_window_extent().width > dots and text.get_fontsize() > 5:
        text.set_fontsize(text.get_fontsize() - 0.5)
    whole = text.get_text()
    length = len(whole)
    while text.get_window_extent().width > dots and length > 1:
        length -= 1
        text.set_text(whole[:length].rstrip(" ,.\\") + "…")


def _draw_bars(axes: Axes, panel: Panel, wide: float) -> None:
    """Shares as bars with their names on them; the truth is green."""
    count = len(panel.values)
    colours = [_BAR_TRUE if place == panel.marked else _BAR for place in range(count)]
    axes.barh(range(count), panel.values, height=0.82, color=colours, alpha=0.75, linewidth=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(max(count, 5) - 0.5, -0.5)
    axes.set_axis_off()
    for place, (name, value) in enumerate(zip(panel.legend, panel.values, strict=True)):
        weight = "bold" if place == panel.marked else "normal"
        axes.text(1.0, place, f"{100 * value:.0f} %", ha="right", va="center", fontsize=5.5, fontweight=weight)
        name_text = axes.text(0.02, place, plain(name), va="center", fontsize=5.5, fontweight=weight)
        _fit(name_text, wide - 0.32)


def _draw_colour_bar(axes: Axes, scale: Scale) -> None:
    from matplotlib.ticker import MaxNLocator

    ramp = colour_map(scale)(np.linspace(0, 1, 64))[::-1, None, :3]
    axes.imshow(ramp, aspect="auto", extent=(0, 1, scale.low, scale.high))
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], min_n_ticks=2))
    axes.tick_params(axis="y", labelsize=5.5, length=1.5, pad=1)
    axes.set_ylabel(plain(scale.label), fontsize=5.5, labelpad=1.5)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_legend(figure: Figure, names: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=overlay_colour(place), label=plain(name)) for place, name in enumerate(names, 1)]
    legend = figure.legend(handles=handles, loc="lower center", ncols=len(names), handlelength=1.0)
    size = 6.5
    while legend.get_window_extent().width > figure.bbox.width and size > 4:
        size -= 0.5
        for text in legend.get_texts():
            text.set_fontsize(size)


def aspect(panel: Panel) -> float:
    """Width relative to height."""
    if panel.kind == "bars":
        return _BARS
    if panel.kind == "voxels":
        return float(len(panel.views))
    height, width = panel.values.shape[:2]
    return float(width / height)


def image_of(panel: Panel, height: int) -> Pixels:
    """The panel (height, W, 3); smaller images keep their pixels, which become squares of an equal number of them."""
    if panel.kind == "voxels":
        return render(panel.values, panel.views, height)
    values = np.asarray(panel.values)
    if panel.scale is not None:
        colours = colour_map(panel.scale)((values - panel.scale.low) / (panel.scale.high - panel.scale.low))[..., :3]
    elif values.ndim == 2:
        colours = np.repeat(np.nan_to_num(values)[..., None], 3, axis=-1)
    else:
        colours = np.nan_to_num(values)
    pixels = (np.clip(colours, 0, 1) * 255).round().astype(np.uint8)
    if panel.labels is not None:
        pixels = _tinted(pixels, panel.labels)
    return _sized(pixels, height)


def colour_map(scale: Scale) -> Any:
    """The colours of a scale; grey where nothing is known."""
    import matplotlib as mpl

    return mpl.colormaps["Reds" if scale.error else "viridis"].with_extremes(bad=UNKNOWN)


def overlay_colour(label: int) -> str:
    """The colour of an overlay's label, which is above 0."""
    return OVERLAYS[(label - 1) % len(OVERLAYS)]


def _tinted(pixels: Pixels, labels: npt.NDArray[Any]) -> Pixels:
    tinted = pixels.astype(np.float64)
    for label in np.unique(labels[labels > 0]):
        colour = np.array([int(overlay_colour(int(label))[place : place + 2], 16) for place in (1, 3, 5)])
        where = labels == label
        tinted[where] = (1 - _OPAQUE) * tinted[where] + _OPAQUE * colour
    rounded: Pixels = tinted.round().astype(np.uint8)
    return rounded


def _sized(pixels: Pixels, height: int) -> Pixels:
    """Larger images averaged down to that height; smaller ones with each pixel repeated, to no more than it."""
    factor = height // pixels.shape[0]
    if factor >= 1:
        return pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    from PIL import Image

    width = max(1, round(pixels.shape[1] * height / pixels.shape[0]))
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX))
