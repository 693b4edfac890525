"""A network, data and trainings to compare widths on: procedural volumes whose labels need shape. No table yet.

    ranp compare --model benchmarks.evidence:unet --batches benchmarks.evidence:batches16 --budget flops=3.2% \\
        --loss torch.nn.functional:cross_entropy --train benchmarks.evidence:train16 --out runs/shapes16

Every volume holds a few solids of four kinds (ball, cube, rod, shell) of about the same volume and brightness under
noise; a voxel's class is the kind of its solid, so that single voxels and small neighbourhoods do not tell it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ranp.comparing import Training
from ranp.paper import models

CLASSES = 5
POOL, VALID = 512, 200
"""Volumes that a training draws its batches from, and volumes that all trainings are judged on."""
BATCH = 4
EMA = 0.98


def solids(seed: int, count: int, edge: int, objects: int) -> tuple[Tensor, Tensor]:
    """Volumes with noise, and the kind of solid at each voxel; later solids cover earlier ones."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.rand(count, *size, generator=generator)

    axes = [torch.arange(float(edge))] * 3
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    label = torch.zeros(count, edge, edge, edge, dtype=torch.long)
    for _ in range(objects):
        kind = torch.randint(1, CLASSES, (count, 1, 1, 1), generator=generator)
        centre = (0.2 + 0.6 * draw(3, 1, 1, 1)) * edge
        radius = (0.16 + 0.1 * draw(1, 1, 1)) * edge
        away = (grid - centre).abs()
        distance = away.square().sum(1).sqrt()
        along = torch.randint(3, (count,), generator=generator)
        rows = torch.arange(count)
        across = (distance.square() - away[rows, along].square()).clamp(min=0).sqrt()
        inside = (
            (kind == 1) & (distance < radius)
            | (kind == 2) & (away.amax(1) < 0.8 * radius)
            | (kind == 3) & (across < 0.6 * radius) & (away[rows, along] < 1.8 * radius)
            | (kind == 4) & (distance < 1.15 * radius) & (distance > 0.7 * radius)
        )
        label = torch.where(inside, kind, label)
    brightness = 0.6 + 0.4 * draw(1, 1, 1)
    noise = torch.randn(label.shape, generator=generator)
    return ((label > 0) * brightness + 0.15 * noise)[:, None], label


@lru_cache(maxsize=2)
def _held_out(edge: int, objects: int) -> tuple[Tensor, Tensor]:
    return solids(2**20, VALID, edge, objects)


def _batches(pool: tuple[Tensor, Tensor], seed: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(pool[0]), (BATCH,), generator=generator)
        yield pool[0][chosen], pool[1][chosen]


def unet() -> nn.Module:
    """A 3D-UNet of three levels, 32 channels at full resolution."""
    return models.UNet3d(1, CLASSES, (32, 64, 128))


def batches16(seed: int) -> list[tuple[Tensor, Tensor]]:
    """What networks are scored on, at 16^3."""
    return list(_batches(solids(seed, 64, 16, 2), seed, 4))


def batches32(seed: int) -> list[tuple[Tensor, Tensor]]:
    """The same at 32^3, with larger solids."""
    return list(_batches(solids(seed, 32, 32, 3), seed, 4))


def train16(network: nn.Module, training: Training) -> dict[str, float]:
    """1200 steps at 16^3."""
    return _train(network, training, edge=16, objects=2, steps=1200)


def train32(network: nn.Module, training: Training) -> dict[str, float]:
    """400 steps at 32^3."""
    return _train(network, training, edge=32, objects=3, steps=400)


def _train(network: nn.Module, training: Training, *, edge: int, objects: int, steps: int) -> dict[str, float]:
    """Adam, one cycle of the learning rate, clipped gradients, and a moving average of the weights at the end."""
    pool = solids(1000 + training.seed, POOL, edge, objects)
    optimiser = torch.optim.Adam(network.parameters(), training.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, training.lr, steps)
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(EMA), use_buffers=True
    )
    network.train()
    for number, (inputs, target) in enumerate(_batches(pool, training.seed, steps), 1):
        optimiser.zero_grad()
        loss = F.cross_entropy(network(inputs), target)
        if not math.isfinite(loss.item()):
            return {"log_loss": math.nan, "miou": math.nan, "worst": math.nan}
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        average.update_parameters(network)
        training.told(number, steps)
    return _judged(average.eval(), edge, objects)


@torch.no_grad()
def _judged(network: nn.Module, edge: int, objects: int) -> dict[str, float]:
    inputs, target = _held_out(edge, objects)
    total, both, either = 0.0, torch.zeros(CLASSES), torch.zeros(CLASSES)
    for part, truth in zip(inputs.split(BATCH), target.split(BATCH), strict=True):
        output = network(part)
        total += F.cross_entropy(output, truth, reduction="sum").item()
        found, true = F.one_hot(output.argmax(1), CLASSES).bool(), F.one_hot(truth, CLASSES).bool()
        both += (found & true).sum((0, 1, 2, 3))
        either += (found | true).sum((0, 1, 2, 3))
    ious = both / either.clamp(min=1)
    return {"log_loss": math.log(total / target.numel()), "miou": ious.mean().item(), "worst": ious.min().item()}
