"""The generator of HiFi-GAN (Kong 2020): transposed convolutions, each before a mean of residual blocks.

Special for pruning: every convolution has weight norm, so that its weight is made of two other tensors; transposed ones
have their norm along the input's channels; the blocks of a stage are summed up and divided by their count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from zoo.entry import Entry

LRELU_SLOPE = 0.1


class ResBlock1(nn.Module):
    """Pairs of convolutions, the first of them dilated, each pair with a residual."""

    def __init__(self, channels: int, kernel_size: int, dilations: Sequence[int]) -> None:
        super().__init__()

        def conv(dilation: int) -> nn.Module:
            padding = (kernel_size * dilation - dilation) // 2
            return weight_norm(nn.Conv1d(channels, channels, kernel_size, 1, padding, dilation=dilation))

        self.convs1 = nn.ModuleList(conv(dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(conv(1) for _ in dilations)

    def forward(self, x: Tensor) -> Tensor:
        for c1, c2 in zip(self.convs1, self.convs2, strict=True):
            xt = F.leaky_relu(x, LRELU_SLOPE)
            xt = c1(xt)
            xt = F.leaky_relu(xt, LRELU_SLOPE)
            xt = c2(xt)
            x = xt + x
        return x


class Generator(nn.Module):
    """From a mel spectrogram to samples."""

    def __init__(
        self,
        mels: int = 80,
        upsample_initial_channel: int = 512,
        upsample_rates: Sequence[int] = (8, 8, 2, 2),
        upsample_kernel_sizes: Sequence[int] = (16, 16, 4, 4),
        resblock_kernel_sizes: Sequence[int] = (3, 7, 11),
        resblock_dilation_sizes: Sequence[Sequence[int]] = ((1, 3, 5), (1, 3, 5), (1, 3, 5)),
    ) -> None:
        super().__init__()
        self.num_kernels = len(resblock_kernel_sizes)
        self.num_upsamples = len(upsample_rates)
        channels = upsample_initial_channel
        self.conv_pre = weight_norm(nn.Conv1d(mels, channels, 7, 1, padding=3))
        self.ups = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for u, k in zip(upsample_rates, upsample_kernel_sizes, strict=True):
            up = nn.ConvTranspose1d(channels, channels // 2, k, u, padding=(k - u) // 2)
            self.ups.append(weight_norm(up))
            channels //= 2
            for kernel, dilations in zip(resblock_kernel_sizes, resblock_dilation_sizes, strict=True):
                self.resblocks.append(ResBlock1(channels, kernel, dilations))
        self.conv_post = weight_norm(nn.Conv1d(channels, 1, 7, 1, padding=3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_pre(x)
        for i in range(self.num_upsamples):
            x = F.leaky_relu(x, LRELU_SLOPE)
            x = self.ups[i](x)
            xs = None
            for j in range(self.num_kernels):
                if xs is None:
                    xs = self.resblocks[i * self.num_kernels + j](x)
                else:
                    xs += self.resblocks[i * self.num_kernels + j](x)
            x = xs / self.num_kernels
        x = F.leaky_relu(x)
        x = self.conv_post(x)
        return torch.tanh(x)


NETWORKS = (
    Entry(
        "HiFi-GAN generator",
        "audio",
        lambda: Generator(20, 64, (4, 4, 2, 2), (8, 8, 4, 4)),
        ((1, 20, 8),),
        ((1, 20, 64),),
    ),
)
