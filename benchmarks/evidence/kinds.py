"""A classifier that names the one solid in a volume."""

from __future__ import annotations

import math

import torch
from monai.networks.nets import ResNet
from torch import nn
from torch.nn import functional as F

from benchmarks.evidence import candidates  # noqa: F401 - makes its arms known
from benchmarks.evidence.training import POOL, Samples, among, first_batches, held_out, trained
from benchmarks.evidence.volumes import Space
from ranp.comparing import Training

KINDS = ("ball", "shell", "cube", "frame", "rod", "disc", "cross", "cone")


def model() -> nn.Module:
    """A residual network of four stages."""
    return ResNet(
        "basic", [1, 1, 1, 1], [32, 64, 128, 256], n_input_channels=1, num_classes=len(KINDS),
        conv1_t_size=3, conv1_t_stride=1, no_max_pool=True,
    )  # fmt: skip


def batches(seed: int) -> list[Samples]:
    """What networks are scored on."""
    return first_batches(among(solids(1000 + seed, POOL)), seed, 8)


def train(network: nn.Module, training: Training) -> dict[str, float]:
    """600 steps of eight volumes."""
    pool = solids(1000 + training.seed, 4 * POOL)
    return trained(network, training, among(pool), judged, steps=600, batch=8)


def judged(network: nn.Module) -> dict[str, float]:
    """On volumes that no training saw."""
    inputs, target = held_out(solids)
    output = torch.cat([network(part) for part in inputs.split(8)])
    right = (output.argmax(1) == target).float()
    by_kind = [right[target == kind].mean().item() for kind in range(len(KINDS))]
    loss = F.cross_entropy(output, target).item()
    return {"log_loss": math.log(loss), "accuracy": right.mean().item(), "worst_kind": min(by_kind)}


def solids(seed: int, count: int) -> Samples:
    """Volumes with one solid each, and its kind."""
    space = Space(seed, count, 16)
    kind, away = space.among(0, len(KINDS)), space.away(0.35, 0.65)
    for axis in range(1, 3):  # lies along any axis
        turned = space.among(0, 2)[:, None, None, None, None].bool()
        away = torch.where(turned, away.roll(axis, 1), away)
    radius, distance = space.uniform(3.5, 5.5, 1, 1, 1), away.square().sum(1).sqrt()
    x, y, z = away.abs().unbind(1)
    across, most = (x.square() + y.square()).sqrt(), away.abs().amax(1)
    edges = torch.stack([x, y, z]) > (0.8 * radius - 1.5)
    forms = torch.stack([
        distance < radius,
        (distance < 1.1 * radius) & (distance > 0.6 * radius),
        most < 0.8 * radius,
        (most < 0.9 * radius) & (edges.sum(0) >= 2),
        (across < 0.5 * radius) & (z < 1.3 * radius),
        (across < 1.2 * radius) & (z < 0.4 * radius),
        ((x < 1.5) | (z < 1.5)) & (y < 1.5) & (most < 1.2 * radius),
        (across < 0.5 * (radius - away[:, 2])) & (z < radius),
    ])  # fmt: skip
    return space.seen(forms[kind, torch.arange(count)].float(), 0.3), kind
