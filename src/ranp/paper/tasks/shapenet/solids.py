"""Procedural shapes, from the ground up: points on the surface of simple solids, and points to voxels.

A solid is a box, a ball, a tube or a ring, stretched, turned and moved, that belongs to one part of an object.
Points are drawn from its surface, as a scanner would see it, and voxelised as the paper voxelises ShapeNet's points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Vector = Sequence[float]

EMPTY = 255
"""The label of a voxel without points: ignored by loss and metrics."""

_FEWEST = 48
"""Points of the smallest solid: a part that exists can be seen."""


@dataclass(frozen=True, slots=True)
class Solid:
    """A surface that belongs to a part.

    Attributes:
        part: Number of the part within its category.
        kind: ``"box"``, ``"ball"``, ``"tube"`` or ``"ring"``.
        size: What the kind's maker was given.
        at: Centre.
        turn: Angles about x, y and z in radians, applied in that order.
    """

    part: int
    kind: str
    size: tuple[float, ...]
    at: tuple[float, ...]
    turn: tuple[float, ...]

    @property
    def area(self) -> float:
        """Roughly the surface: only the share of points depends on it."""
        if self.kind == "box":
            x, y, z = self.size
            return 8.0 * (x * y + y * z + z * x)
        if self.kind == "ball":
            x, y, z, cut = self.size
            return 2.0 * math.pi * (x * y + y * z + z * x) / 1.5 * (1 - cut)
        if self.kind == "tube":
            low, high, half = self.size
            return math.pi * (low + high) * 2 * half + math.pi * (low**2 + high**2)
        radius, thickness, arc = self.size
        return radius * arc * 2 * math.pi * thickness

    def points(self, rng: np.random.Generator, count: int) -> Points:
        """Points on the surface, where it stands."""
        local = {"box": _on_box, "ball": _on_ball, "tube": _on_tube, "ring": _on_ring}[self.kind](
            rng, count, np.asarray(self.size)
        )
        placed: Points = local @ turning(self.turn).T + np.asarray(self.at)
        return placed


def box(part: int, at: Vector, half: Vector, turn: Vector = (0, 0, 0)) -> Solid:
    """A box of half edge lengths ``half``."""
    return Solid(part, "box", tuple(half), tuple(at), tuple(turn))


def ball(part: int, at: Vector, radii: Vector, turn: Vector = (0, 0, 0), *, cut: float = -1.0) -> Solid:
    """An ellipsoid, of which only what lies above ``cut`` (-1 all, 0 the upper half) is there."""
    return Solid(part, "ball", (*radii, cut), tuple(at), tuple(turn))


def tube(part: int, at: Vector, low: float, high: float, half: float, turn: Vector = (0, 0, 0)) -> Solid:
    """A closed tube along z, of radius ``low`` at the lower and ``high`` at the upper end; 0 makes a cone."""
    return Solid(part, "tube", (low, high, half), tuple(at), tuple(turn))


def ring(
    part: int, at: Vector, radius: float, thickness: float, turn: Vector = (0, 0, 0), *, arc: float = 2 * math.pi
) -> Solid:
    """A ring around z, or the arc of one that is symmetric to the x axis."""
    return Solid(part, "ring", (radius, thickness, arc), tuple(at), tuple(turn))


def turning(angles: Vector) -> Points:
    """The rotation about x, then y, then z."""
    (sx, sy, sz), (cx, cy, cz) = np.sin(angles), np.cos(angles)
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    turned: Points = about_z @ about_y @ about_x
    return turned


def sample_points(solids: Sequence[Solid], rng: np.random.Generator, count: int) -> tuple[Points, Labels]:
    """About ``count`` points over all surfaces, by area, and the part of each."""
    areas = np.array([solid.area for solid in solids])
    shares = np.maximum(np.rint(count * areas / areas.sum()), _FEWEST).astype(int)
    points = np.concatenate([solid.points(rng, share) for solid, share in zip(solids, shares, strict=True)])
    return points, np.repeat([solid.part for solid in solids], shares)


def voxelise(points: Points, labels: Labels, size: int) -> Labels:
    """The label that most points of a voxel have (the smallest of equals), ``EMPTY`` where there are none.

    Args:
        points: (N, 3), inside the unit ball.
        labels: (N,), below ``EMPTY``.
        size: Edge length S; the voxel of p is ``floor(p * S / 2 + S / 2)``.

    Returns:
        (S, S, S).
    """
    where = np.clip(np.floor(points * (size / 2) + size / 2).astype(np.int64), 0, size - 1)
    voxels, inverse = np.unique(np.ravel_multi_index(tuple(where.T), (size,) * 3), return_inverse=True)
    names, local = np.unique(labels, return_inverse=True)
    votes = np.bincount(inverse.ravel() * len(names) + local.ravel(), minlength=len(voxels) * len(names))
    grid = np.full(size**3, EMPTY, dtype=np.int64)
    grid[voxels] = names[votes.reshape(len(voxels), len(names)).argmax(axis=1)]
    return grid.reshape((size,) * 3)


def _on_box(rng: np.random.Generator, count: int, half: Points) -> Points:
    faces = np.array([half[1] * half[2], half[2] * half[0], half[0] * half[1]])
    axis = np.searchsorted(np.cumsum(faces / faces.sum())[:-1], rng.random(count), side="right")
    points = rng.uniform(-1, 1, (count, 3))
    points[np.arange(count), axis] = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    return points * half


def _on_ball(rng: np.random.Generator, count: int, size: Points) -> Points:
    height = rng.uniform(size[3], 1, count)
    angle = rng.uniform(0, 2 * math.pi, count)
    across = np.sqrt(1 - height**2)
    return np.stack((across * np.cos(angle), across * np.sin(angle), height), axis=1) * size[:3]


def _on_tube(rng: np.random.Generator, count: int, size: Points) -> Points:
    low, high, half = size
    areas = np.array([(low + high) * 2 * half, low**2, high**2])
    where = np.searchsorted(np.cumsum(areas / areas.sum())[:-1], rng.random(count), side="right")
    along, angle = rng.random(count), rng.uniform(0, 2 * math.pi, count)
    inside = np.sqrt(rng.random(count))
    radius = np.choose(where, (low + (high - low) * along, low * inside, high * inside))
    height = np.choose(where, (half * (2 * along - 1), np.full(count, -half), np.full(count, half)))
    return np.stack((radius * np.cos(angle), radius * np.sin(angle), height), axis=1)


def _on_ring(rng: np.random.Generator, count: int, size: Points) -> Points:
    radius, thickness, arc = size
    around = rng.uniform(-arc / 2, arc / 2, count)
    angle = rng.uniform(0, 2 * math.pi, count)
    distance = radius + thickness * np.cos(angle)
    return np.stack((distance * np.cos(around), distance * np.sin(around), thickness * np.sin(angle)), axis=1)
