"""Labelled voxels as an image: only faces that can be seen, nearest last, without a 3D library."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError
from ranp.reporting.looks import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW

Floats = npt.NDArray[np.float64]

PARTS = (SKY, ORANGE, GREEN, VERMILLION, PURPLE, BLUE, YELLOW)
"""Colours of labels 0, 1, ..., over and over."""

_SHADES = (0.78, 0.9, 1.0)  # of faces across x, y and z: the light comes from above
_FINE = 3  # subpixels along a pixel's edge
_MARGIN = 0.03
_OUTLINE = 0.75
_SMALLEST_OUTLINED = 4.0  # pixels of a voxel


def render(labels: npt.NDArray[np.integer], views: Sequence[tuple[float, float]], pixels: int) -> npt.NDArray[np.uint8]:
    """An image (pixels, pixels * views, 3) of the voxels, all views of one size, as large as fits.

    The projection is parallel. Of two voxels of which one covers the other, the one that covers is nearer to the eye by
    its centre, so that voxels are painted in that order and no depth of a pixel is kept.

    Args:
        labels: (X, Y, Z) from 0, negative where there is nothing; z points up.
        views: Elevation and azimuth of the eye in degrees, as matplotlib counts them.
        pixels: Height of the image, and width of each view.

    Raises:
        DataError: Everything is empty.
    """
    cells = np.argwhere(labels >= 0)
    if not len(cells):
        raise DataError("all voxels are empty, so there is nothing to see. Leave such a sample out.")
    frames = [_frame(*view) for view in views]
    boxes = [[_extent(cells, direction) for direction in frame[:2]] for frame in frames]
    scale = pixels * _FINE * (1 - 2 * _MARGIN) / max(high - low for box in boxes for low, high in box)
    images = []
    for frame, box in zip(frames, boxes, strict=True):
        middle = [(low + high) / 2 for low, high in box]
        images.append(_painted(labels, frame, middle, scale, pixels * _FINE))
    fine = _palette()[np.concatenate(images, axis=1)]
    image = fine.reshape(pixels, _FINE, pixels * len(views), _FINE, 3).mean(axis=(1, 3))
    seen: npt.NDArray[np.uint8] = (image * 255).round().astype(np.uint8)
    return seen


def _frame(elevation: float, azimuth: float) -> tuple[Floats, Floats, Floats]:
    """Unit vectors to the right and upwards in the image, and towards the eye."""
    e, a = math.radians(elevation), math.radians(azimuth)
    return (
        np.array([-math.sin(a), math.cos(a), 0.0]),
        np.array([-math.sin(e) * math.cos(a), -math.sin(e) * math.sin(a), math.cos(e)]),
        np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)]),
    )


def _extent(cells: npt.NDArray[np.int64], direction: Floats) -> tuple[float, float]:
    """Between which two places along a direction the cells lie, each from its lower to its upper corner."""
    along = cells @ direction
    return float(along.min() + direction.clip(max=0).sum()), float(along.max() + direction.clip(min=0).sum())


def _painted(
    labels: npt.NDArray[np.integer],
    frame: tuple[Floats, Floats, Floats],
    middle: Sequence[float],
    scale: float,
    size: int,
) -> npt.NDArray[np.uint8]:
    """The entries of the palette (size, size) that one view shows; 0 is the background."""
    right, up, eye = frame
    there = labels >= 0
    canvas = np.zeros(size * size, dtype=np.uint8)
    faces = []
    for axis in range(3):
        cells = _open(there, axis, positive=bool(eye[axis] > 0))
        faces.append(np.column_stack((cells, np.full(len(cells), axis))))
    cells = np.concatenate(faces)
    cells = cells[np.argsort((cells[:, :3] + 0.5) @ eye, kind="stable")]
    first = 1 + 6 * (labels[tuple(cells[:, :3].T)] % len(PARTS)) + 2 * cells[:, 3]
    steps = math.ceil(scale * 1.2) + 1  # neighbouring points are less than a subpixel apart
    patches = [_patch(axis, bool(eye[axis] > 0), steps, scale) for axis in range(3)]
    corners_across, corners_above = cells[:, :3] @ right, cells[:, :3] @ up
    across = np.stack([offsets @ right for offsets, _ in patches])[cells[:, 3]] + corners_across[:, None]
    above = np.stack([offsets @ up for offsets, _ in patches])[cells[:, 3]] + corners_above[:, None]
    column = ((across - middle[0]) * scale + size / 2).astype(np.int64).clip(0, size - 1)
    row = (size / 2 - (above - middle[1]) * scale).astype(np.int64).clip(0, size - 1)
    entry = first[:, None] + np.stack([rim for _, rim in patches])[cells[:, 3]]
    canvas[(row * size + column).ravel()] = entry.ravel()  # of equal places the last one stays
    return canvas.reshape(size, size)


def _open(there: npt.NDArray[np.bool_], axis: int, *, positive: bool) -> npt.NDArray[np.int64]:
    """Voxels whose face on that side of the axis touches no other voxel."""
    hidden = np.zeros_like(there)
    ahead: list[slice] = [slice(None)] * 3
    behind: list[slice] = [slice(None)] * 3
    ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
    if positive:
        hidden[tuple(behind)] = there[tuple(ahead)]
    else:
        hidden[tuple(ahead)] = there[tuple(behind)]
    return np.argwhere(there & ~hidden)


def _patch(axis: int, positive: bool, steps: int, scale: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Points on a face, from the lower corner of its voxel, and whether each is on the rim that is drawn darker."""
    along = (np.arange(steps) + 0.5) / steps
    first, second = (grid.ravel() for grid in np.meshgrid(along, along, indexing="ij"))
    offsets = np.full((steps * steps, 3), 1.0 if positive else 0.0)
    for other, grid in zip([other for other in range(3) if other != axis], (first, second), strict=True):
        offsets[:, other] = grid
    rim = 0.5 * _FINE / scale if scale / _FINE >= _SMALLEST_OUTLINED else 0.0
    inside = (np.minimum(first, second) >= rim) & (np.maximum(first, second) <= 1 - rim)
    return offsets, (~inside).astype(np.int64)


def _palette() -> Floats:
    """White, then every part's colour on the faces across x, y and z, each plain and as a rim."""
    shades = np.array([shade * rim for shade in _SHADES for rim in (1.0, _OUTLINE)])
    parts = np.array([_rgb(colour) for colour in PARTS])
    return np.concatenate([np.ones((1, 3)), (parts[:, None, :] * shades[None, :, None]).reshape(-1, 3)])


def _rgb(colour: str) -> Sequence[float]:
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
