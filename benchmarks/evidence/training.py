"""What the trainings have in common: recipe, batches, and figures on volumes that no training saw."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ranp.comparing import Training

POOL, VALID = 512, 200
"""Volumes that a training draws its batches from, and volumes that all trainings are judged on."""
EMA = 0.98

Samples = tuple[Tensor, Tensor]
Draw = Callable[[int, torch.Generator], Samples]
"""``(batch size, generator) -> (inputs, target)``."""
Judge = Callable[[nn.Module], dict[str, float]]


def trained(
    network: nn.Module, training: Training, draw: Draw, judge: Judge, *, steps: int, batch: int
) -> dict[str, float]:
    """Adam, one cycle of the learning rate, clipped gradients, and a moving average of the weights at the end."""
    network = network.to(memory_format=torch.channels_last_3d)  # faster on a CPU, the same network
    generator = torch.Generator().manual_seed(training.seed)
    optimiser = torch.optim.Adam(network.parameters(), training.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, training.lr, steps)
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(EMA), use_buffers=True
    )
    network.train()
    for number in range(1, steps + 1):
        inputs, target = draw(batch, generator)
        optimiser.zero_grad()
        loss = F.cross_entropy(network(inputs), target)
        if not math.isfinite(loss.item()):
            return {"log_loss": math.nan}
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        average.update_parameters(network)
        training.told(number, steps)
    with torch.no_grad():
        return judge(average.eval())


def first_batches(draw: Draw, seed: int, batch: int) -> list[Samples]:
    """What networks are scored on: four batches of what they will be trained on."""
    generator = torch.Generator().manual_seed(seed)
    return [draw(batch, generator) for _ in range(4)]


def among(pool: Samples) -> Draw:
    """Draws from a pool, with replacement."""

    def draw(batch: int, generator: torch.Generator) -> Samples:
        chosen = torch.randint(len(pool[0]), (batch,), generator=generator)
        return pool[0][chosen], pool[1][chosen]

    return draw


@lru_cache(maxsize=1)
def held_out(made: Callable[[int, int], Samples]) -> Samples:
    """The volumes that all trainings of a task are judged on."""
    return made(2**20, VALID)


def dense(network: nn.Module, samples: Samples, classes: int) -> dict[str, float]:
    """How well voxels are told apart."""
    total, both, either = 0.0, torch.zeros(classes), torch.zeros(classes)
    for inputs, target in zip(samples[0].split(8), samples[1].split(8), strict=True):
        output = network(inputs)
        total += F.cross_entropy(output, target, reduction="sum").item()
        found, true = F.one_hot(output.argmax(1), classes).bool(), F.one_hot(target, classes).bool()
        both += (found & true).sum((0, 1, 2, 3))
        either += (found | true).sum((0, 1, 2, 3))
    ious = both / either.clamp(min=1)
    loss = total / samples[1].numel()
    return {"log_loss": math.log(loss), "miou": ious.mean().item(), "worst_iou": ious.min().item()}
