"""Panels as images: numbers, labels and voxels become colours, at the size that they are shown in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ranp.reporting.drawing.values import Panel, Scale
from ranp.reporting.drawing.voxels import render
from ranp.reporting.looks import SKY, VERMILLION, YELLOW

__all__ = ["OVERLAYS", "UNKNOWN", "aspect", "colour_map", "image_of", "overlay_colour"]

Pixels = npt.NDArray[np.uint8]

OVERLAYS = (SKY, YELLOW, VERMILLION)
"""Colours of an overlay's labels 1, 2, ..., over and over."""

UNKNOWN = "#CCCCCC"
"""Where a number is not known."""

_OPAQUE = 0.6
_BARS = 1.75  # width of bars relative to their height


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
