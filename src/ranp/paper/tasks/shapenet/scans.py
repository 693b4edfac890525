"""Scanned objects, made up or real, as a network for part segmentation sees them."""

from __future__ import annotations

from abc import abstractmethod

import torch

from ranp.paper.tasks.reading import check_samples
from ranp.paper.tasks.shapenet.solids import EMPTY, Labels, Points, voxelise
from ranp.paper.tasks.task import Sample, Samples

__all__ = ["Scans"]


class Scans(Samples):
    """Objects as occupancy (1, S, S, S) float32, and labels (S, S, S) int64.

    A label is a part's number, 0 to 49 over all categories, or 255 where there is nothing.

    Args:
        size: Edge length S of the grid, at least 8.
        count: Number of objects.
        seed: What is drawn is drawn with it.

    Raises:
        DataError: A size, a count or a seed out of range.
    """

    def __init__(self, size: int, count: int, seed: int) -> None:
        check_samples(size, 8, "parts vanish in a grid of less than 8 voxels", count, seed, "object")
        self.size, self.count, self.seed = size, count, seed

    def draw(self, index: int, visit: int = 0) -> Sample:
        """Occupancy and labels of one object, the same on every visit."""
        target = torch.from_numpy(voxelise(*self.scan(index), self.size))
        return (target != EMPTY).to(torch.float32).unsqueeze(0), target

    @abstractmethod
    def scan(self, index: int) -> tuple[Points, Labels]:
        """Points (N, 3) on one object's surface, in the unit ball but for noise, and their labels, 0 to 49."""
