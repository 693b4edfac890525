"""Shapes for part segmentation, made up: 16 categories, 50 parts, nothing to download.

Each object is put together from solids (``catalogue``), bent at its joints, turned, scanned with noise and holes, and
voxelised as the paper voxelises ShapeNet's point clouds.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError
from ranp.paper.tasks.shapenet.catalogue import CATEGORIES, FIRST
from ranp.paper.tasks.shapenet.scans import Scans
from ranp.paper.tasks.shapenet.solids import Labels, Points, sample_points, turning

__all__ = ["ProceduralShapes", "train_data", "valid_data"]

_OBJECTS = {"train": 6955, "valid": 7052}  # as many as the paper has
_POINTS = 2600  # as many as a ShapeNet shape has, about
_HOLE = 0.12  # radius of what the scanner missed, relative to the object
_JITTER = 0.008


class ProceduralShapes(Scans):
    """Objects of all categories, equally often.

    Sample ``i`` depends on the seed, the split and ``i`` alone, not on ``count`` or on what was asked before.

    Args:
        split: ``"train"`` or ``"valid"``: never the same objects, whatever the seeds.
        size: Edge length S of the grid, at least 8.
        count: Number of objects; None for as many as the paper has.
        seed: Same seed, same objects.

    Raises:
        DataError: A size, a count or a seed out of range, or an unknown split.
    """

    def __init__(self, split: str, size: int = 64, count: int | None = None, seed: int = 0) -> None:
        if split not in _OBJECTS:
            raise DataError(f"split={split!r}: there are {' and '.join(_OBJECTS)}.")
        super().__init__(size, _OBJECTS[split] if count is None else count, seed)
        self.split = split

    def scan(self, index: int) -> tuple[Points, Labels]:
        """Points of one object, as a scanner with noise and blind spots saw them, and their labels."""
        rng, category = self._generator(index, 1), self.category(index)
        points, parts = sample_points(CATEGORIES[category](rng.uniform), rng, _POINTS)
        points = points - (points.max(axis=0) + points.min(axis=0)) / 2
        points = points * rng.uniform(0.9, 1.1, 3)
        points = points @ turning((rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.1), rng.uniform(-0.35, 0.35))).T
        points = points * (rng.uniform(0.88, 1.0) / np.linalg.norm(points, axis=1).max())
        seen = _seen(points, parts, rng)
        points = points[seen] + rng.normal(0, _JITTER, (int(seen.sum()), 3))
        return points, FIRST[category] + parts[seen]

    def category(self, index: int) -> int:
        """Category of an object: every block of 16 objects has each of them once, in an order of its own."""
        block, position = divmod(index, len(CATEGORIES))
        return int(self._generator(block, 0).permutation(len(CATEGORIES))[position])

    def _generator(self, index: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, list(_OBJECTS).index(self.split), purpose, index))


def _seen(points: Points, parts: Labels, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which points the scanner saw: all but a hole somewhere on the object, and at least some of each part."""
    hole = points[rng.integers(len(points))]
    seen = np.linalg.norm(points - hole, axis=1) > _HOLE
    hidden = np.setdiff1d(parts, parts[seen])
    whole: npt.NDArray[np.bool_] = seen | np.isin(parts, hidden)
    return whole


train_data = partial(ProceduralShapes, "train")
"""Objects to score and train on; as many as the paper has unless a count is given."""

valid_data = partial(ProceduralShapes, "valid")
"""Objects to validate on; as many as the paper has unless a count is given."""
