"""X3D after facebookresearch/SlowFast: depthwise blocks, squeeze and excitation in every second one, swish."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from zoo.entry import Entry
from zoo.video_slowfast import Clips, init_weights, listed


def round_width(width: float, multiplier: float, min_width: int = 8, divisor: int = 8) -> int:
    """A scaled width as a multiple of the divisor, at most a tenth smaller than asked."""
    if not multiplier:
        return int(width)
    width *= multiplier
    width_out = max(min_width, int(width + divisor / 2) // divisor * divisor)
    if width_out < 0.9 * width:
        width_out += divisor
    return int(width_out)


def round_repeats(repeats: int, multiplier: float) -> int:
    """A scaled number of blocks."""
    return math.ceil(multiplier * repeats)


class SwishEfficient(torch.autograd.Function):
    """Swish that keeps its input alone for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """X times its sigmoid."""
        result = x * torch.sigmoid(x)
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        """The derivative, computed from the input again."""
        x = ctx.saved_tensors[0]
        sigmoid_x = torch.sigmoid(x)
        return grad_output * (sigmoid_x * (1 + x * (1 - sigmoid_x)))


class Swish(nn.Module):
    """Swish as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return SwishEfficient.apply(x)


class SE(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, dim_in: int, ratio: float) -> None:
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool3d((1, 1, 1))
        dim_fc = round_width(dim_in, ratio)
        self.fc1 = nn.Conv3d(dim_in, dim_fc, 1, bias=True)
        self.fc1_act = nn.ReLU()
        self.fc2 = nn.Conv3d(dim_fc, dim_in, 1, bias=True)
        self.fc2_sig = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        x_in = x
        for module in self.children():
            x = module(x)
        return x_in * x


class X3DTransform(nn.Module):
    """1x1x1, depthwise 3x3x3, gate, 1x1x1: the children run in the order in which they were added."""

    def __init__(self, dim_in: int, dim_out: int, stride: int, dim_inner: int, se_ratio: float, block_idx: int) -> None:
        super().__init__()
        self.a = nn.Conv3d(dim_in, dim_inner, kernel_size=[1, 1, 1], stride=[1, 1, 1], padding=[0, 0, 0], bias=False)
        self.a_bn = nn.BatchNorm3d(num_features=dim_inner)
        self.a_relu = nn.ReLU(inplace=True)
        self.b = nn.Conv3d(
            dim_inner,
            dim_inner,
            [3, 3, 3],
            stride=[1, stride, stride],
            padding=[1, 1, 1],
            groups=dim_inner,
            bias=False,
        )
        self.b_bn = nn.BatchNorm3d(num_features=dim_inner)
        use_se = bool((block_idx + 1) % 2)
        if se_ratio > 0.0 and use_se:
            self.se = SE(dim_inner, se_ratio)
        self.b_relu = Swish()
        self.c = nn.Conv3d(dim_inner, dim_out, kernel_size=[1, 1, 1], stride=[1, 1, 1], padding=[0, 0, 0], bias=False)
        self.c_bn = nn.BatchNorm3d(num_features=dim_out)
        self.c_bn.transform_final_bn = True

    def forward(self, x: Tensor) -> Tensor:
        for block in self.children():
            x = block(x)
        return x


class ResBlock(nn.Module):
    """An X3D transform beside a shortcut."""

    def __init__(self, dim_in: int, dim_out: int, stride: int, dim_inner: int, se_ratio: float, block_idx: int) -> None:
        super().__init__()
        if (dim_in != dim_out) or (stride != 1):
            self.branch1 = nn.Conv3d(dim_in, dim_out, kernel_size=1, stride=[1, stride, stride], bias=False)
            self.branch1_bn = nn.BatchNorm3d(num_features=dim_out)
        self.branch2 = X3DTransform(dim_in, dim_out, stride, dim_inner, se_ratio, block_idx)
        self.relu = nn.ReLU(True)

    def forward(self, x: Tensor) -> Tensor:
        f_x = self.branch2(x)
        x = self.branch1_bn(self.branch1(x)) + f_x if hasattr(self, "branch1") else x + f_x
        return self.relu(x)


class ResStage(nn.Module):
    """The blocks of one stage of the single pathway."""

    def __init__(self, dim_in: int, dim_out: int, dim_inner: int, num_blocks: int, se_ratio: float) -> None:
        super().__init__()
        self.num_blocks = num_blocks
        for i in range(num_blocks):
            fan_in, stride = (dim_in, 2) if i == 0 else (dim_out, 1)
            self.add_module(f"pathway0_res{i}", ResBlock(fan_in, dim_out, stride, dim_inner, se_ratio, i))

    def forward(self, inputs: Clips) -> Clips:
        x = inputs[0]
        for i in range(self.num_blocks):
            m = getattr(self, f"pathway0_res{i}")
            x = m(x)
        return [x]


class X3DStem(nn.Module):
    """A convolution in space, then a depthwise one in time."""

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.conv_xy = nn.Conv3d(dim_in, dim_out, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), bias=False)
        self.conv = nn.Conv3d(dim_out, dim_out, (5, 1, 1), padding=(2, 0, 0), bias=False, groups=dim_out)
        self.bn = nn.BatchNorm3d(num_features=dim_out, eps=1e-5, momentum=0.1)
        self.relu = nn.ReLU(True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_xy(x)
        x = self.conv(x)
        x = self.bn(x)
        return self.relu(x)


class VideoModelStem(nn.Module):
    """The stem of the single pathway."""

    def __init__(self, dim_out: int) -> None:
        super().__init__()
        self.pathway0_stem = X3DStem(3, dim_out)

    def forward(self, x: Clips) -> Clips:
        return [self.pathway0_stem(x[0])]


class X3DHead(nn.Module):
    """conv_5, pooling, lin_5 and the projection."""

    def __init__(self, dim_in: int, dim_inner: int, dim_out: int, num_classes: int, dropout_rate: float = 0.5) -> None:
        super().__init__()
        self.conv_5 = nn.Conv3d(dim_in, dim_inner, kernel_size=(1, 1, 1), bias=False)
        self.conv_5_bn = nn.BatchNorm3d(num_features=dim_inner, eps=1e-5, momentum=0.1)
        self.conv_5_relu = nn.ReLU(True)
        self.avg_pool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.lin_5 = nn.Conv3d(dim_inner, dim_out, kernel_size=(1, 1, 1), bias=False)
        self.lin_5_relu = nn.ReLU(True)
        self.dropout = nn.Dropout(dropout_rate)
        self.projection = nn.Linear(dim_out, num_classes, bias=True)
        self.act = nn.Softmax(dim=4)

    def forward(self, inputs: Clips) -> Tensor:
        x = self.conv_5(inputs[0])
        x = self.conv_5_bn(x)
        x = self.conv_5_relu(x)

        x = self.avg_pool(x)

        x = self.lin_5(x)
        x = self.lin_5_relu(x)

        x = x.permute((0, 2, 3, 4, 1))
        x = self.dropout(x)
        x = self.projection(x)

        if not self.training:
            x = self.act(x)
            x = x.mean([1, 2, 3])
        return x.view(x.shape[0], -1)


class X3D(nn.Module):
    """X3D; the defaults are those of X3D-S and X3D-M, which differ in the clip alone."""

    def __init__(
        self,
        num_classes: int = 400,
        width_factor: float = 2.0,
        depth_factor: float = 2.2,
        bottleneck_factor: float = 2.25,
        dim_c5: int = 2048,
        se_ratio: float = 0.0625,
        zero_init_final_bn: bool = False,
    ) -> None:
        super().__init__()
        dim_c1 = 12
        dims = [dim_c1]
        for _ in range(3):
            dims.append(round_width(dims[-1], 2.0, divisor=8))
        repeats = (1, 2, 5, 3)
        dim_in = round_width(dim_c1, width_factor)
        self.s1 = VideoModelStem(dim_in)
        for stage in range(4):
            dim_out = round_width(dims[stage], width_factor)
            dim_inner = int(bottleneck_factor * dim_out)
            n_rep = round_repeats(repeats[stage], depth_factor)
            self.add_module(f"s{stage + 2}", ResStage(dim_in, dim_out, dim_inner, n_rep, se_ratio))
            dim_in = dim_out
        self.head = X3DHead(dim_in, int(dim_in * bottleneck_factor), dim_c5, num_classes)
        init_weights(self, zero_init_final_bn=zero_init_final_bn)

    def forward(self, x: Clips) -> Tensor:
        for module in self.children():
            x = module(x)
        return x


NETWORKS = (
    Entry(
        "X3D-S",
        "video",
        lambda: X3D(5, width_factor=1.0, dim_c5=64),
        ((2, 3, 4, 48, 48),),
        ((1, 3, 13, 160, 160),),
        listed,
    ),
)
