"""Solids and voxels: points lie where they should, voxels hold what most of their points say."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from ranp.paper.tasks.shapenet.solids import EMPTY, ball, box, ring, sample_points, tube, turning, voxelise


def draw(solid: object, count: int = 4000) -> np.ndarray:
    return solid.points(np.random.default_rng(0), count)  # type: ignore[attr-defined]


def test_box_points_lie_on_the_faces_by_area() -> None:
    points = draw(box(0, (0, 0, 0), (1, 2, 4)))
    on = np.isclose(np.abs(points), (1, 2, 4))
    assert on.any(axis=1).all()
    assert on.mean(axis=0) == pytest.approx(np.array([8, 4, 2]) / 14, abs=0.03)


def test_ball_tube_and_ring_points_satisfy_their_equations() -> None:
    x, y, z = draw(ball(0, (0, 0, 0), (1, 2, 3), cut=0.0)).T
    assert np.allclose(x**2 + (y / 2) ** 2 + (z / 3) ** 2, 1)
    assert z.min() >= 0
    x, y, z = draw(tube(0, (0, 0, 0), 0.5, 1.0, 2.0)).T
    radius = np.hypot(x, y)
    lateral = np.isclose(radius, 0.5 + 0.5 * (z + 2) / 4)
    assert (lateral | (np.isclose(np.abs(z), 2) & (radius <= 1))).all()
    assert lateral.mean() == pytest.approx(6 / 7.25, abs=0.03)
    x, y, z = draw(ring(0, (0, 0, 0), 2.0, 0.25, arc=math.pi)).T
    assert np.allclose((np.hypot(x, y) - 2) ** 2 + z**2, 0.25**2)
    assert x.min() >= -1e-9


def test_turning_is_a_rotation_about_x_then_y_then_z() -> None:
    matrix = turning((0.3, -0.7, 1.1))
    assert np.allclose(matrix @ matrix.T, np.eye(3))
    assert np.linalg.det(matrix) == pytest.approx(1)
    assert np.allclose(turning((math.pi / 2, 0, 0)) @ (0, 1, 0), (0, 0, 1))
    assert np.allclose(turning((0, math.pi / 2, 0)) @ (0, 0, 1), (1, 0, 0))
    assert np.allclose(turning((0, 0, math.pi / 2)) @ (1, 0, 0), (0, 1, 0))
    assert np.allclose(matrix, turning((0, 0, 1.1)) @ turning((0, -0.7, 0)) @ turning((0.3, 0, 0)))


def test_points_are_shared_out_by_area_and_no_part_goes_without() -> None:
    solids = [box(0, (0, 0, 0), (1, 1, 1)), box(1, (5, 0, 0), (2, 2, 2)), box(2, (9, 0, 0), (0.01, 0.01, 0.01))]
    points, parts = sample_points(solids, np.random.default_rng(0), 5000)
    counts = np.bincount(parts)
    assert counts[1] / counts[0] == pytest.approx(4, rel=0.01)
    assert counts[2] >= 40
    assert (np.abs(points[parts == 1] - (5, 0, 0)) <= 2 + 1e-9).all()


@pytest.mark.parametrize("size", [8, 9])
def test_voxelise_against_a_loop_over_points(size: int) -> None:
    rng = np.random.default_rng(size)
    points = rng.uniform(-1, 1, (900, 3))
    points[0] = 1.0  # the very corner belongs to the last voxel
    labels = rng.choice([3, 7, 40], 900)
    votes: dict[tuple[int, ...], Counter[int]] = {}
    for point, label in zip(points, labels, strict=True):
        where = tuple(min(size - 1, math.floor(p * size / 2 + size / 2)) for p in point)
        votes.setdefault(where, Counter())[int(label)] += 1
    grid = voxelise(points, labels, size)
    for where in np.ndindex(grid.shape):
        if where in votes:
            most = max(votes[where].values())
            assert grid[where] == min(label for label, n in votes[where].items() if n == most)
        else:
            assert grid[where] == EMPTY
