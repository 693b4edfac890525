"""Rendered voxels against rays that are followed one by one through the grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ranp.errors import DataError
from ranp.reporting.drawing.voxels import _FINE, PARTS, _extent, _frame, _painted, render

VIEWS = ((30.0, -45.0), (30.0, 45.0))


def first_hit(labels, start, direction):
    """The label of the first voxel that a ray meets, -1 if none: by small steps, with nothing of the renderer."""
    cells = np.floor(start + np.arange(0, 40, 0.01)[:, None] * direction).astype(int)
    inside = ((cells >= 0) & (cells < labels.shape)).all(axis=1)
    met = labels[tuple(cells[inside].T)]
    return int(met[met >= 0][0]) if (met >= 0).any() else -1


@pytest.mark.parametrize("view", [*VIEWS, (20.0, 130.0), (-25.0, 200.0)])
def test_a_pixel_shows_the_first_voxel_on_its_ray(view):
    rng = np.random.default_rng(1)
    labels = np.where(rng.random((4, 4, 4)) < 0.35, rng.integers(0, len(PARTS), (4, 4, 4)), -1)
    right, up, eye = _frame(*view)
    cells = np.argwhere(labels >= 0)
    box = [_extent(cells, direction) for direction in (right, up)]
    middle = [(low + high) / 2 for low, high in box]
    size, scale = 60, 60 / max(high - low for low, high in box)
    shown = _painted(labels, (right, up, eye), middle, scale, size)
    seen = 0
    for row, column in rng.integers(0, size, (120, 2)):
        hits = set()
        for x, y in ((0.5, 0.5), (-0.5, 0.5), (1.5, 0.5), (0.5, -0.5), (0.5, 1.5)):  # the pixel and around it
            across, above = (column + x - size / 2) / scale + middle[0], (size / 2 - row - y) / scale + middle[1]
            hits.add(first_hit(labels, across * right + above * up + 15 * eye, -eye))
        if len(hits) == 1:  # on the edge between two voxels a pixel is of either
            (hit,) = hits
            assert (int(shown[row, column]) + 5) // 6 - 1 == hit
            seen += hit >= 0
    assert seen > 20


def test_a_solid_cube_has_no_holes_and_three_shades():
    image = render(np.zeros((16, 16, 16), dtype=int), [(30.0, -45.0)], 96)
    inside = image[30:66, 30:66].reshape(-1, 3)
    assert (inside < 250).any(axis=1).all()
    assert image.shape == (96, 96, 3)
    assert (image[0, 0] == 255).all()
    blue = np.array([int(PARTS[0][place : place + 2], 16) for place in (1, 3, 5)])
    assert (np.abs(inside.astype(int) - blue).max(axis=1) <= 1).any()
    assert len(np.unique(inside, axis=0)) >= 3


def test_views_stand_side_by_side_at_one_scale():
    labels = np.full((20, 6, 3), -1)
    labels[:, 2:4, 1] = 0
    labels[0, 2:4, 1] = 3
    both = render(labels, VIEWS, 60)
    assert both.shape == (60, 120, 3)
    extents = []
    for view in (both[:, :60], both[:, 60:]):
        columns = np.flatnonzero((view < 255).any(axis=(0, 2)))
        extents.append(columns[-1] - columns[0])
    reach = [
        20 * abs(math.sin(math.radians(azimuth))) + 2 * abs(math.cos(math.radians(azimuth))) for _, azimuth in VIEWS
    ]
    assert extents[0] / extents[1] == pytest.approx(reach[0] / reach[1], rel=0.05)
    assert max(extents) <= 60
    # The far end of the long side is at the right from one side, at the left from the other.
    red = [np.flatnonzero((view[..., 0] > 150) & (view[..., 2] < 60)).size for view in (both[:, :60], both[:, 60:])]
    assert min(red) > 0


def test_empty_space_cannot_be_seen():
    with pytest.raises(DataError, match="empty"):
        render(np.full((4, 4, 4), -1), VIEWS, 30)
    assert _FINE >= 2
