"""Large solids in volumes of 24 voxels along each edge: inside they look alike, so faces and edges far away decide."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.evidence import candidates  # noqa: F401 - makes its arms known
from benchmarks.evidence.training import POOL, Samples, among, dense, first_batches, held_out, trained
from benchmarks.evidence.volumes import Space
from ranp.comparing import Training
from ranp.paper import models

CLASSES = 4
EDGE = 24


def model() -> nn.Module:
    """A 3D-UNet of four levels, 32 channels at full resolution."""
    return models.UNet3d(1, CLASSES, (32, 64, 128, 256))


def batches(seed: int) -> list[Samples]:
    """What networks are scored on."""
    return first_batches(among(solids(1000 + seed, POOL)), seed, 2)


def train(network: nn.Module, training: Training) -> dict[str, float]:
    """600 steps of two volumes."""
    pool = solids(1000 + training.seed, 2 * POOL)
    return trained(network, training, among(pool), judged, steps=600, batch=2)


def judged(network: nn.Module) -> dict[str, float]:
    """On volumes that no training saw."""
    return dense(network, held_out(solids), CLASSES)


def solids(seed: int, count: int) -> Samples:
    """Volumes with a ball, a cube or an octahedron, and at each voxel which of them it lies in."""
    space = Space(seed, count, EDGE)
    kind, away = space.among(1, CLASSES, 1, 1, 1), space.away(0.35, 0.65).abs()
    radius = space.uniform(6.0, 9.0, 1, 1, 1)
    forms = torch.stack([away.square().sum(1).sqrt(), 1.24 * away.amax(1), 0.67 * away.sum(1)]) < radius
    label = torch.where(forms.gather(0, kind[None] - 1 + torch.zeros_like(forms[:1]))[0], kind, 0)
    return space.seen((label > 0).float(), 0.2), label
