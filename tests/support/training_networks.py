"""Small networks that between them use what training steps are made of; shared by tests of memory and time."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TinyUNet(nn.Module):
    """Two levels, a skip connection, batch norm, in-place activations."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = self._block(1, width)
        self.pool = nn.MaxPool3d(2)
        self.deep = self._block(width, 2 * width)
        self.last = self._block(3 * width, width)
        self.head = nn.Conv3d(width, 3, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv3d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        near = self.first(x)
        far = F.interpolate(self.deep(self.pool(near)), scale_factor=2)
        return self.head(self.last(torch.cat([near, far], 1)))


class Residual(nn.Module):
    """Group norm, strided and transposed convolutions, a sum."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv3d(2, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.down = nn.Conv3d(width, 2 * width, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.head = nn.Conv3d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(self.stem(x)))
        return self.head(x + self.up(F.elu(self.down(x))))


class Depthwise(nn.Module):
    """Inverted residuals in the plane, then pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.SiLU(),
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.Hardswish(),
            nn.Conv2d(16, 24, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Attention(nn.Module):
    """A transformer layer over patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv3d(1, 24, 4, stride=4)
        self.layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.layer(tokens).mean(1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "unet": (TinyUNet, (2, 1, 16, 16, 16)),
    "residual": (Residual, (1, 2, 12, 12, 12)),
    "depthwise": (Depthwise, (3, 3, 32, 32)),
    "attention": (Attention, (2, 1, 16, 16, 16)),
}
"""What makes a network, and the shape of its input."""


def network(name: str) -> tuple[nn.Module, Tensor]:
    """A network with the same weights every time, and an input."""
    build, shape = NETWORKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return build(), torch.randn(shape)
