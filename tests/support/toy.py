"""Small tasks to train on in a second: volumes with ignored voxels, and clips for a network with dropout.

Samples differ from visit to visit, so that a run that goes on at the wrong place cannot come to the same weights.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp.errors import DataError
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Metrics, Sample, Samples, Source, Task

CLASSES = 4
IGNORED = 255


class Noise(Samples):
    """Noise whose mean tells the class."""

    varies = True

    def __init__(self, split: int, size: int, count: int, seed: int, *, volumes: bool) -> None:
        self.key, self.size, self.count, self.volumes = (seed, split), size, count, volumes

    def __len__(self) -> int:
        return self.count

    def draw(self, index: int, visit: int = 0) -> Sample:
        rng = np.random.default_rng((*self.key, index, visit))
        if self.volumes:
            target = torch.from_numpy(rng.integers(0, CLASSES, (self.size,) * 3))
            volume = torch.from_numpy(rng.normal(0, 1, (1, *target.shape)).astype(np.float32)) + target
            ignored = torch.from_numpy(rng.random(target.shape) < rng.uniform(0.1, 0.9))
            return volume, target.masked_fill(ignored, IGNORED)
        label = index % CLASSES
        clip = rng.normal(label, 1, (3, 4, self.size, self.size)).astype(np.float32)
        return torch.from_numpy(clip), torch.tensor(label)


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, ignore_index=IGNORED)


def _weight(target: Tensor) -> float:
    return float((target != IGNORED).sum())


def _tally(output: Tensor, target: Tensor) -> dict[str, float]:
    known = target != IGNORED
    return {"right": float(((output.argmax(1) == target) & known).sum()), "all": float(known.sum())}


def _figures(sums: Any) -> dict[str, float]:
    return {"accuracy": sums["right"] / sums["all"]}


def _refuse(folder: Path, *, allow_missing: bool, fold: int) -> Source:
    raise DataError(f"{folder}: there is no such data")


def _task(name: str, recipe: Recipe, *, volumes: bool) -> Task:
    def train_data(size: int = 16, count: int | None = None, seed: int = 0) -> Samples:
        return Noise(0, size, count or 12, seed, volumes=volumes)

    def valid_data(size: int = 16, count: int | None = None, seed: int = 0) -> Samples:
        return Noise(1, size, count or 5, seed, volumes=volumes)

    return Task(
        name=name,
        classes=CLASSES,
        strength=11.0,
        sparsity=0.3,
        recipe=recipe,
        cpu=recipe,
        source=Source(train_data, valid_data),
        loss=_loss,
        metrics=Metrics(_tally, _figures, "accuracy"),
        open=_refuse,
        weight=_weight,
    )


CLIPS = _task(
    "clips",
    Recipe(
        network="mobilenetv2-ucf101",
        options={"width": 0.1, "classes": CLASSES},
        size=8,
        epochs=3,
        batch=4,
        optimiser="adam",
        learning_rate=0.01,
        valid_batch=2,
        tensorboard=False,
    ),
    volumes=False,
)
VOLUMES = _task(
    "volumes",
    Recipe(
        network="unet3d-shapenet",
        options={"widths": (4, 8), "classes": CLASSES},
        size=8,
        epochs=3,
        batch=4,
        optimiser="sgd",
        nesterov=True,
        weight_decay=1e-4,
        learning_rate=0.1,
        schedule="exponential",
        decay=0.04,
        tensorboard=False,
    ),
    volumes=True,
)


def _noisy_loss(output: Tensor, target: Tensor) -> Tensor:
    """Draws from torch's, numpy's and Python's global generators."""
    factor = 1 + 0.1 * random.random() + 0.1 * np.random.random()  # noqa: NPY002
    return factor * _loss(F.dropout(output, 0.2), target)


NOISY = replace(
    VOLUMES,
    name="noisy",
    loss=_noisy_loss,
    recipe=replace(
        VOLUMES.recipe,
        optimiser="adam",
        amsgrad=True,
        learning_rate=0.01,
        schedule="step",
        milestones=(1, 2),
        checkpoint_every=2,
        keep_checkpoints=2,
    ),
)


def without_batch_statistics(model: nn.Module) -> nn.Module:
    """The same network with group norm instead of batch norm."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            parent, _, key = name.rpartition(".")
            setattr(model.get_submodule(parent), key, nn.GroupNorm(1, module.num_features))
    return model
