"""The encoder and decoder of EnCodec (Défossez 2022), without the quantiser between them.

Special for pruning: convolutions have weight norm and pad by reflection, shortcuts are convolutions, and an LSTM of two
layers with a residual stands at the narrowest place: its inputs, states and outputs are one stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from zoo.entry import Entry


class SConv1d(nn.Module):
    """A convolution that pads by reflection, so that nothing is lost at its stride."""

    def __init__(self, inp: int, oup: int, kernel_size: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = weight_norm(nn.Conv1d(inp, oup, kernel_size, stride, dilation=dilation))
        self.effective, self.stride = (kernel_size - 1) * dilation + 1, stride

    def forward(self, x: Tensor) -> Tensor:
        padding_total = self.effective - self.stride
        frames = (x.shape[-1] - self.effective + padding_total) / self.stride + 1
        ideal = (math.ceil(frames) - 1) * self.stride + (self.effective - padding_total)
        extra = ideal - x.shape[-1]
        right = padding_total // 2
        return self.conv(F.pad(x, (padding_total - right, right + extra), mode="reflect"))


class SConvTranspose1d(nn.Module):
    """A transposed convolution that cuts away what the stride does not need."""

    def __init__(self, inp: int, oup: int, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.convtr = weight_norm(nn.ConvTranspose1d(inp, oup, kernel_size, stride))
        self.padding_total = kernel_size - stride

    def forward(self, x: Tensor) -> Tensor:
        y = self.convtr(x)
        right = self.padding_total // 2
        return y[..., self.padding_total - right : y.shape[-1] - right]


class SLSTM(nn.Module):
    """An LSTM over time with a residual."""

    def __init__(self, dimension: int, num_layers: int = 2) -> None:
        super().__init__()
        self.lstm = nn.LSTM(dimension, dimension, num_layers)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(2, 0, 1)
        y, _ = self.lstm(x)
        y = y + x
        return y.permute(1, 2, 0)


class SEANetResnetBlock(nn.Module):
    """A narrow convolution between two activations, beside a shortcut of its own."""

    def __init__(self, dim: int, kernel_size: int = 3, compress: int = 2) -> None:
        super().__init__()
        hidden = dim // compress
        self.block = nn.Sequential(
            nn.ELU(alpha=1.0), SConv1d(dim, hidden, kernel_size), nn.ELU(alpha=1.0), SConv1d(hidden, dim, 1)
        )
        self.shortcut = SConv1d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.block(x)


def seanet_encoder(channels: int, dimension: int, n_filters: int, ratios: Sequence[int]) -> nn.Sequential:
    """From samples to latents: residual blocks and strided convolutions, then the LSTM."""
    layers: list[nn.Module] = [SConv1d(channels, n_filters, 7)]
    mult = 1
    for ratio in reversed(ratios):
        width = mult * n_filters
        layers += [SEANetResnetBlock(width), nn.ELU(alpha=1.0), SConv1d(width, width * 2, ratio * 2, ratio)]
        mult *= 2
    layers += [SLSTM(mult * n_filters), nn.ELU(alpha=1.0), SConv1d(mult * n_filters, dimension, 7)]
    return nn.Sequential(*layers)


def seanet_decoder(channels: int, dimension: int, n_filters: int, ratios: Sequence[int]) -> nn.Sequential:
    """The mirror image of the encoder."""
    mult = 2 ** len(ratios)
    layers: list[Any] = [SConv1d(dimension, mult * n_filters, 7), SLSTM(mult * n_filters)]
    for ratio in ratios:
        width = mult * n_filters
        layers += [nn.ELU(alpha=1.0), SConvTranspose1d(width, width // 2, ratio * 2, ratio)]
        layers.append(SEANetResnetBlock(width // 2))
        mult //= 2
    return nn.Sequential(*layers, nn.ELU(alpha=1.0), SConv1d(n_filters, channels, 7))


class EncodecModel(nn.Module):
    """Samples in, samples and latents out."""

    def __init__(
        self, channels: int = 1, dimension: int = 128, n_filters: int = 32, ratios: Sequence[int] = (8, 5, 4, 2)
    ) -> None:
        super().__init__()
        self.encoder = seanet_encoder(channels, dimension, n_filters, ratios)
        self.decoder = seanet_decoder(channels, dimension, n_filters, ratios)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


NETWORKS = (
    Entry(
        "EnCodec, no quantiser",
        "audio",
        lambda: EncodecModel(1, 16, 4, (4, 2, 2)),
        ((1, 1, 160),),
        ((1, 1, 1600),),
    ),
)
