"""MoViNet-A0 for streams (Kondratyuk 2021), after Atze00/MoViNet-pytorch: causal (2+1)D convolutions with buffers.

Special for pruning: modules keep the last frames, and the sum of all frames, of the chunk before as attributes; the
buffers are zeros of the input's shape before the first chunk; squeeze-and-excitation reads a running mean over time
beside the mean of each frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry

Triple = tuple[int, int, int]


class CausalModule(nn.Module):
    """Something that remembers a part of the last chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.activation: Tensor | None = None

    def reset_activation(self) -> None:
        """Forgets it: the next chunk is the first of another clip."""
        self.activation = None


class TemporalCGAvgPool3D(CausalModule):
    """The mean over all frames so far."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = 0
        self.register_forward_hook(self._detach_activation)

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        cumulative_sum = torch.cumsum(x, dim=2)
        if self.activation is None:
            self.activation = cumulative_sum[:, :, -1:].clone()
        else:
            cumulative_sum += self.activation
            self.activation = cumulative_sum[:, :, -1:].clone()
        divisor = torch.arange(1, shape[2] + 1, device=x.device)[None, None, :, None, None].expand(x.shape)
        x = cumulative_sum / (self.frames + divisor)
        self.frames += shape[2]
        return x

    @staticmethod
    def _detach_activation(module: CausalModule, input: Any, output: Any) -> None:
        module.activation.detach_()

    def reset_activation(self) -> None:
        """Forgets the sum and the count."""
        super().reset_activation()
        self.frames = 0


class ConvBNActivation(nn.Sequential):
    """A 2D convolution with batch norm and an activation."""

    def __init__(
        self,
        in_planes: int,
        out_planes: int,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
        groups: int,
        activation: type[nn.Module],
    ) -> None:
        super().__init__()
        conv = nn.Conv2d(in_planes, out_planes, kernel, stride=stride, padding=padding, groups=groups, bias=False)
        self.add_module("conv2d", conv)
        self.add_module("norm", nn.BatchNorm2d(out_planes, eps=0.001))
        self.add_module("act", activation())


class CausalConv3D(CausalModule):
    """Frame by frame, then over time behind the frames of the buffer; places are one dimension there."""

    def __init__(
        self,
        in_planes: int,
        out_planes: int,
        kernel: Triple = (1, 1, 1),
        stride: Triple = (1, 1, 1),
        groups: int = 1,
        activation: type[nn.Module] = nn.Hardswish,
    ) -> None:
        super().__init__()
        self.dim_pad = kernel[0] - 1
        padding = (kernel[1] // 2, kernel[2] // 2)
        self.conv_1 = ConvBNActivation(in_planes, out_planes, kernel[1:], stride[1:], padding, groups, activation)
        self.conv_2 = None
        if kernel[0] > 1:
            self.conv_2 = ConvBNActivation(
                in_planes, out_planes, (kernel[0], 1), (stride[0], 1), (0, 0), groups, activation
            )

    def forward(self, x: Tensor) -> Tensor:
        b, c, t, h, w = x.shape
        x = x.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)
        x = self.conv_1(x)
        _, c, h, w = x.shape
        x = x.reshape(b, t, c, h, w).permute(0, 2, 1, 3, 4)
        if self.conv_2 is not None:
            if self.activation is None:
                self._setup_activation(x.shape)
            x = torch.cat((self.activation.to(x.device), x), 2)
            self._save_in_activation(x)
            x = x.reshape(b, c, -1, h * w)
            x = self.conv_2(x)
            x = x.reshape(b, x.shape[1], -1, h, w)
        return x

    def _save_in_activation(self, x: Tensor) -> None:
        assert self.dim_pad > 0
        self.activation = x[:, :, -self.dim_pad :, ...].clone().detach()

    def _setup_activation(self, input_shape: Sequence[int]) -> None:
        assert self.dim_pad > 0
        self.activation = torch.zeros(*input_shape[:2], self.dim_pad, *input_shape[3:])


class SqueezeExcitation(nn.Module):
    """Gates from the mean over a frame and over all frames so far, side by side."""

    def __init__(self, input_channels: int, squeeze_channels: int) -> None:
        super().__init__()
        self.temporal_cumulative_pool = TemporalCGAvgPool3D()
        self.fc1 = nn.Conv3d(input_channels * 2, squeeze_channels, (1, 1, 1))
        self.activation_1 = nn.Hardswish()
        self.fc2 = nn.Conv3d(squeeze_channels, input_channels, (1, 1, 1))
        self.activation_2 = nn.Hardsigmoid()

    def forward(self, input: Tensor) -> Tensor:
        x_space = torch.mean(input, dim=[3, 4], keepdim=True)
        scale = self.temporal_cumulative_pool(x_space)
        scale = torch.cat((scale, x_space), dim=1)
        scale = self.activation_2(self.fc2(self.activation_1(self.fc1(scale))))
        return scale * input


class BasicBneck(nn.Module):
    """Expansion, depthwise (2+1)D, squeeze-and-excitation, projection; the branch enters by a learnt factor.

    That factor is zero before the first step. Here it is drawn, since no gradient would tell anything of the branch.
    """

    def __init__(self, in_channels: int, expanded: int, out_channels: int, kernel: Triple, stride: int) -> None:
        super().__init__()
        strides = (1, stride, stride)
        self.expand = CausalConv3D(in_channels, expanded)
        self.deep = CausalConv3D(expanded, expanded, kernel, strides, groups=expanded)
        self.se = SqueezeExcitation(expanded, max(expanded // 2, 2))
        self.project = CausalConv3D(expanded, out_channels, activation=nn.Identity)
        self.res = None
        if stride != 1 or in_channels != out_channels:
            layers: list[nn.Module] = [] if stride == 1 else [nn.AvgPool3d((1, 3, 3), strides, (0, 1, 1))]
            layers.append(CausalConv3D(in_channels, out_channels, activation=nn.Identity))
            self.res = nn.Sequential(*layers)
        self.alpha = nn.Parameter(0.5 + 0.1 * torch.randn(()))

    def forward(self, input: Tensor) -> Tensor:
        residual = input if self.res is None else self.res(input)
        result = self.expand(input)
        result = self.deep(result)
        result = self.se(result)
        result = self.project(result)
        return residual + self.alpha * result


T1, T3, T5 = (1, 5, 5), (3, 3, 3), (5, 3, 3)
A0 = (
    (8, ((24, T1),)),
    (32, ((80, T3), (80, T3), (80, T3))),
    (56, ((184, T5), (112, T3), (184, T3))),
    (56, ((184, T5), (184, T3), (184, T3), (184, T3))),
    (104, ((384, T5), (280, T1), (280, T1), (344, T1))),
)
"""Width, then expanded width and kernel of every layer, block by block."""
STRIDES = (2, 2, 2, 1, 2)


class MoViNet(nn.Module):
    """The network on one chunk; it goes on from where the last one ended until its buffers are cleaned."""

    def __init__(self, num_classes: int = 600, divide: int = 1) -> None:
        super().__init__()
        self.conv1 = CausalConv3D(3, 8, (1, 3, 3), (1, 2, 2))
        self.blocks = nn.Sequential()
        channels = 8
        for i, ((width, layers), stride) in enumerate(zip(A0, STRIDES, strict=True)):
            for j, (expanded, kernel) in enumerate(layers):
                block = BasicBneck(channels, expanded // divide, width // divide, kernel, stride if j == 0 else 1)
                self.blocks.add_module(f"b{i}_l{j}", block)
                channels = width // divide
        self.conv7 = CausalConv3D(channels, 480 // divide)
        self.cgap = TemporalCGAvgPool3D()
        self.classifier = nn.Sequential(
            nn.Conv3d(480 // divide, 2048 // divide, (1, 1, 1)),
            nn.Hardswish(),
            nn.Dropout(p=0.2, inplace=True),
            nn.Conv3d(2048 // divide, num_classes, (1, 1, 1)),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = self.blocks(x)
        x = self.conv7(x)
        x = F.adaptive_avg_pool3d(x, (x.shape[2], 1, 1))
        x = self.cgap(x)[:, :, -1:]
        x = self.classifier(x)
        return x.flatten(1)

    def clean_activation_buffers(self) -> None:
        """Makes the next chunk the first of a clip."""
        for module in self.modules():
            if isinstance(module, CausalModule):
                module.reset_activation()


class MoViNetStream(nn.Module):
    """A clip, chunk by chunk, as one trains and evaluates: the last chunk decides."""

    def __init__(self, model: MoViNet, chunk: int) -> None:
        super().__init__()
        self.model = model
        self.chunk = chunk

    def forward(self, x: Tensor) -> Tensor:
        self.model.clean_activation_buffers()
        for chunk in x.split(self.chunk, dim=2):
            output = self.model(chunk)
        self.model.clean_activation_buffers()
        return output


CLIP = ((2, 3, 4, 64, 64),)

NETWORKS = (
    Entry("MoViNet-A0, one chunk", "video", lambda: MoViNet(5, 4), CLIP),
    Entry("MoViNet-A0, stream", "video", lambda: MoViNetStream(MoViNet(5, 4), 2), CLIP),
)
