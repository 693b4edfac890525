"""Random solids under noise."""

from __future__ import annotations

import torch
from torch import Tensor


class Space:
    """A cube of voxels, and random draws for each of ``count`` volumes of it."""

    def __init__(self, seed: int, count: int, edge: int) -> None:
        self.generator, self.count, self.edge = torch.Generator().manual_seed(seed), count, edge
        self.grid = torch.stack(torch.meshgrid(*[torch.arange(float(edge))] * 3, indexing="ij"))

    def uniform(self, low: float, high: float, *size: int) -> Tensor:
        return low + (high - low) * torch.rand(self.count, *size, generator=self.generator)

    def among(self, low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, (self.count, *size), generator=self.generator)

    def away(self, low: float, high: float) -> Tensor:
        """The way from a random centre, in shares of the edge, to every voxel."""
        return self.grid - self.edge * self.uniform(low, high, 3, 1, 1, 1)

    def seen(self, inside: Tensor, noise: float) -> Tensor:
        """What a scanner would see of solids."""
        clean = inside * self.uniform(0.6, 1.0, 1, 1, 1)
        return (clean + noise * torch.randn(clean.shape, generator=self.generator))[:, None]
