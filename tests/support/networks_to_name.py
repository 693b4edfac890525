"""Code that tests name on the command line: networks, examples, batches and losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 8
not_code = 3


def small() -> nn.Module:
    """A network without a registered name."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv3d(1, WIDTH, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(WIDTH, WIDTH, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(WIDTH, 2, 1),
    )


def two_inputs() -> nn.Module:
    """A network that is called with two tensors."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Conv2d(1, 4, 1), nn.Conv3d(1, 4, 1), nn.Linear(8, 2)

        def forward(self, flat: Tensor, deep: Tensor) -> Tensor:
            return self.head(torch.cat([self.a(flat).mean((2, 3)), self.b(deep).mean((2, 3, 4))], 1))

    return Sum()


def example() -> Tensor:
    """The inputs of one call of ``small``."""
    return torch.zeros(1, 1, 6, 6, 6)


def batches() -> list[tuple[Tensor, Tensor]]:
    """Three batches for ``small``."""
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(2, 1, 6, 6, 6, generator=generator), torch.randint(2, (2, 6, 6, 6), generator=generator))
        for _ in range(3)
    ]


def loss(output: Tensor, target: Tensor) -> Tensor:
    """The loss of ``small``."""
    return nn.functional.cross_entropy(output, target)


def broken() -> nn.Module:
    """Fails for a reason of its own."""
    raise ZeroDivisionError("the answer is not defined")


def no_network() -> int:
    """Makes something else."""
    return 3
