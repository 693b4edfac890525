"""A network, its data and its training, small enough to be compared many times; and the same for Lightning."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ranp.comparing import Training
from ranp.scoring.criteria import Criterion


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 12, 3, padding=1),
        nn.BatchNorm3d(12),
        nn.ReLU(),
        nn.Conv3d(12, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(16, 2, 1),
    )


def pairs(seed: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        target = (F.avg_pool3d(torch.randn(4, 1, 8, 8, 8, generator=generator), 3, 1, 1) > 0.1).long()[:, 0]
        yield target[:, None] + 0.5 * torch.randn(4, 1, 8, 8, 8, generator=generator), target


def batches(seed: int) -> list[tuple[Tensor, Tensor]]:
    return list(pairs(seed, 2))


def train(network: nn.Module, training: Training) -> dict[str, float]:
    optimiser = torch.optim.Adam(network.parameters(), training.lr)
    for number, (inputs, target) in enumerate(pairs(50 + training.seed, 6)):
        optimiser.zero_grad()
        F.cross_entropy(network(inputs), target).backward()
        optimiser.step()
        training.told(number + 1, 6)
    inputs, target = next(pairs(7, 1))
    network.eval()
    with torch.no_grad():
        output = network(inputs)
    return {"loss": F.cross_entropy(output, target).item(), "right": (output.argmax(1) == target).float().mean().item()}


def first_weights(network: nn.Module, training: Training) -> dict[str, float]:
    """Trains nothing and shows what it was given."""
    weight = next(network.parameters())
    return {"first": weight.flatten()[0].item(), "channels": float(len(weight)), "lr": training.lr, "drawn": _drawn()}


def diverging(network: nn.Module, training: Training) -> dict[str, float]:
    """Diverges at a high rate, and is better at .02 than at .01."""
    return {"loss": float("nan") if training.lr > 0.1 else abs(training.lr - 0.02)}


def failing(network: nn.Module, training: Training) -> dict[str, float]:
    if training.seed == 1:
        raise OSError(errno.ENOSPC, "no disk for seed 1")
    return {"loss": 1.0}


def _ascending(weight: Tensor, gradient: Tensor) -> Tensor:
    return torch.arange(1.0, 1 + len(weight))


last_first = Criterion("last first", _ascending)


def _drawn() -> float:
    return torch.rand(()).item()


def module_and_data() -> tuple[Any, Any]:
    from lightning.pytorch import LightningModule
    from torch.utils.data import DataLoader

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.lr = model(), 1e-3

        def training_step(self, batch: Any, _number: int) -> Tensor:
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch: Any, _number: int) -> None:
            self.log("val_loss", F.cross_entropy(self.model(batch[0]), batch[1]))
            self.log("rate", self.lr)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), self.lr)

    inputs, targets = zip(*pairs(3, 2), strict=True)
    samples = list(zip(torch.cat(inputs), torch.cat(targets), strict=True))
    return Module(), (DataLoader(samples, 4), DataLoader(samples, 4))  # type: ignore[arg-type]
