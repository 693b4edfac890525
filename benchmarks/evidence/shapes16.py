"""Rods by their direction, and balls, in volumes of 16 voxels along each edge: what is near decides."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.evidence import candidates  # noqa: F401 - makes its arms known
from benchmarks.evidence.training import POOL, Samples, among, dense, first_batches, held_out, trained
from benchmarks.evidence.volumes import Space
from ranp.comparing import Training
from ranp.paper import models

CLASSES = 5


def model() -> nn.Module:
    """A 3D-UNet of three levels, 32 channels at full resolution."""
    return models.UNet3d(1, CLASSES, (32, 64, 128))


def wide_model() -> nn.Module:
    """The same with twice the channels, for small budgets."""
    return models.UNet3d(1, CLASSES, (64, 128, 256))


def batches(seed: int) -> list[Samples]:
    """What networks are scored on."""
    return first_batches(among(rods(1000 + seed, POOL)), seed, 4)


def train(network: nn.Module, training: Training) -> dict[str, float]:
    """800 steps of four volumes."""
    pool = rods(1000 + training.seed, POOL)
    return trained(network, training, among(pool), judged, steps=800, batch=4)


def judged(network: nn.Module) -> dict[str, float]:
    """On volumes that no training saw."""
    return dense(network, held_out(rods), CLASSES)


def rods(seed: int, count: int) -> Samples:
    """Volumes, and the kind of solid at each voxel; later solids cover earlier ones."""
    space = Space(seed, count, 16)
    label = torch.zeros(count, 16, 16, 16, dtype=torch.long)
    for _ in range(4):
        kind, away = space.among(1, CLASSES, 1, 1, 1), space.away(0.1, 0.9).abs()
        radius, distance = space.uniform(1.2, 2.4, 1, 1, 1), away.square().sum(1)
        inside = (kind == 4) & (distance < (1.9 * radius).square())
        for axis in range(3):
            along = away[:, axis]
            across = distance - along.square()
            inside |= (kind == axis + 1) & (across < radius.square()) & (along < 3.2 * radius)
        label = torch.where(inside, kind, label)
    return space.seen((label > 0).float(), 0.3), label
