"""Code that tests name on the command line: networks, examples, batches and losses."""

from __future__ import annotations

from collections.abc import Iterator

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


def coupled() -> nn.Module:
    """A network whose layers add up, so that they keep equally many channels."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv3d(1 if i == 0 else WIDTH, WIDTH, 3, padding=1) for i in range(3))
            self.head = nn.Conv3d(WIDTH, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers[0](x)
            for layer in self.layers[1:]:
                x = x + layer(x).relu()
            return self.head(x)

    torch.manual_seed(0)
    return Residual()


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


def broken(*_: object) -> nn.Module:
    """Fails for a reason of its own."""
    raise ZeroDivisionError("the answer is not defined")


FAILS = broken.__code__.co_firstlineno + 2
"""The line that does."""


class Broken:
    """A loss that cannot be made."""

    def __init__(self) -> None:
        broken()


def broken_loss(output: Tensor, target: Tensor) -> Tensor:
    """Fails when it is called."""
    broken()
    return output.sum()


def broken_batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Fails after the first one."""
    yield batches()[0]
    broken()


def runs_not() -> nn.Module:
    """A network whose forward code fails."""
    network = small()
    network.forward = broken  # type: ignore[method-assign, assignment]
    return network


def no_network() -> int:
    """Makes something else."""
    return 3
