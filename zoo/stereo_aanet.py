"""AANet (Xu 2020) without deformable convolutions, which need a kernel of their own: aggregation across scales in 2D.

Special for pruning: channels of the aggregation are candidates of disparity. Cost volumes are filled candidate by
candidate, and a softmax weighs them with their numbers in the end, so that only what lies inside the bottlenecks can
go. The right image is warped by what was found; a correlation is a mean over features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry


def conv_bn(inp: int, oup: int, kernel: int, stride: int = 1, dilation: int = 1, relu: bool = True) -> nn.Sequential:
    """A convolution with norm, and a leaky ReLU where asked for."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(inp, oup, kernel, stride=stride, padding=padding, dilation=dilation, bias=False)
    layers = [conv, nn.BatchNorm2d(oup)]
    return nn.Sequential(*layers, nn.LeakyReLU(0.2, inplace=True)) if relu else nn.Sequential(*layers)


class Bottleneck(nn.Module):
    """ResNet's bottleneck; ``expansion`` is 1 in the aggregation, where channels are candidates."""

    def __init__(self, inplanes: int, planes: int, stride: int = 1, expansion: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes * expansion:
            self.downsample = conv_bn(inplanes, planes * expansion, 1, stride, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class AANetFeature(nn.Module):
    """Features at a third, a sixth and a twelfth of the size, brought to one width by a feature pyramid."""

    def __init__(self, width: int = 32, layers: Sequence[int] = (3, 4, 6)) -> None:
        super().__init__()
        self.conv1 = conv_bn(3, width, 7, stride=3)
        channels = width
        self.stages = nn.ModuleList()
        for i, count in enumerate(layers):
            planes = width * 2**i
            blocks = [Bottleneck(channels, planes, 1 if i == 0 else 2)]
            channels = planes * 4
            blocks += [Bottleneck(channels, planes) for _ in range(count - 1)]
            self.stages.append(nn.Sequential(*blocks))
        out_channels = width * 4
        self.lateral_convs = nn.ModuleList(nn.Conv2d(out_channels * 2**i, out_channels, 1) for i in range(3))
        self.fpn_convs = nn.ModuleList(conv_bn(out_channels, out_channels, 3) for _ in range(3))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.conv1(x)
        inputs = []
        for stage in self.stages:
            x = stage(x)
            inputs.append(x)
        laterals = [conv(y) for conv, y in zip(self.lateral_convs, inputs, strict=True)]
        for i in (2, 1):
            laterals[i - 1] += F.interpolate(laterals[i], scale_factor=2, mode="nearest")
        return [conv(y) for conv, y in zip(self.fpn_convs, laterals, strict=True)]


def cost_volume(left: Tensor, right: Tensor, max_disp: int) -> Tensor:
    """The correlation of both views for every candidate."""
    b, _, h, w = left.size()
    volume = left.new_zeros(b, max_disp, h, w)
    for i in range(max_disp):
        if i > 0:
            volume[:, i, :, i:] = (left[:, :, :, i:] * right[:, :, :, :-i]).mean(dim=1)
        else:
            volume[:, i, :, :] = (left * right).mean(dim=1)
    return volume.contiguous()


class AdaptiveAggregationModule(nn.Module):
    """Bottlenecks inside every scale, then sums across scales."""

    def __init__(self, num_scales: int, num_output_branches: int, max_disp: int, num_blocks: int = 1) -> None:
        super().__init__()
        sizes = [max_disp // 2**i for i in range(num_scales)]
        self.branches = nn.ModuleList(
            nn.Sequential(*[Bottleneck(size, size, expansion=1) for _ in range(num_blocks)]) for size in sizes
        )
        self.fuse_layers = nn.ModuleList()
        for i in range(num_output_branches):
            layers: list[nn.Module] = []
            for j in range(num_scales):
                if i == j:
                    layers.append(nn.Identity())
                elif i < j:
                    layers.append(conv_bn(sizes[j], sizes[i], 1, relu=False))
                else:
                    steps = [conv_bn(sizes[j], sizes[j], 3, stride=2) for _ in range(i - j - 1)]
                    layers.append(nn.Sequential(*steps, conv_bn(sizes[j], sizes[i], 3, stride=2, relu=False)))
            self.fuse_layers.append(nn.ModuleList(layers))
        self.relu = nn.LeakyReLU(0.2, inplace=True)

    def forward(self, x: list[Tensor]) -> list[Tensor]:
        assert len(self.branches) == len(x)
        x = [branch(y) for branch, y in zip(self.branches, x, strict=True)]
        x_fused: list[Tensor] = []
        for i, layers in enumerate(self.fuse_layers):
            for j, layer in enumerate(layers):
                exchange = layer(x[j])
                if j == 0:
                    x_fused.append(exchange)
                    continue
                if exchange.size()[2:] != x_fused[i].size()[2:]:
                    exchange = F.interpolate(exchange, size=x_fused[i].size()[2:], mode="bilinear", align_corners=False)
                x_fused[i] = x_fused[i] + exchange
        return [self.relu(y) for y in x_fused]


def disparity(volume: Tensor) -> Tensor:
    """The mean candidate."""
    prob_volume = F.softmax(volume, dim=1)
    candidates = torch.arange(0, prob_volume.size(1)).type_as(prob_volume)
    candidates = candidates.view(1, volume.size(1), 1, 1)
    return torch.sum(prob_volume * candidates, 1, keepdim=False)


def disp_warp(img: Tensor, disp: Tensor) -> Tensor:
    """The right image as the left camera would have seen it."""
    b, _, h, w = img.size()
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack((x, y), 0).unsqueeze(0).expand(b, 2, h, w).type_as(img)
    grid = torch.cat((grid[:, :1] - disp, grid[:, 1:]), dim=1)
    grid = torch.stack((2 * grid[:, 0] / (w - 1) - 1, 2 * grid[:, 1] / (h - 1) - 1), dim=3)
    return F.grid_sample(img, grid, mode="bilinear", padding_mode="border", align_corners=True)


class BasicBlock(nn.Module):
    """Two dilated convolutions with a residual."""

    def __init__(self, planes: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = conv_bn(planes, planes, 3, dilation=dilation)
        self.conv2 = conv_bn(planes, planes, 3, dilation=dilation, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.conv1(x))
        return out + x


class StereoDRNetRefinement(nn.Module):
    """A finer map: what the warped image gets wrong, the image and the coarse map go in, a correction comes out."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv1 = conv_bn(6, width // 2, 3)
        self.conv2 = conv_bn(1, width // 2, 3)
        self.dilated_blocks = nn.Sequential(*[BasicBlock(width, dilation) for dilation in (1, 2, 4, 8, 1, 1)])
        self.final_conv = nn.Conv2d(width, 1, 3, 1, 1)

    def forward(self, low_disp: Tensor, left_img: Tensor, right_img: Tensor) -> Tensor:
        low_disp = low_disp.unsqueeze(1)
        scale_factor = left_img.size(-1) / low_disp.size(-1)
        disp = F.interpolate(low_disp, size=left_img.size()[-2:], mode="bilinear", align_corners=False)
        disp = disp * scale_factor
        error = disp_warp(right_img, disp) - left_img
        conv1 = self.conv1(torch.cat((error, left_img), dim=1))
        conv2 = self.conv2(disp)
        out = self.dilated_blocks(torch.cat((conv1, conv2), dim=1))
        disp = F.relu(disp + self.final_conv(out), inplace=True)
        return disp.squeeze(1)


class AANet(nn.Module):
    """Features, correlations, aggregation, and two steps of refinement; a map of every scale is returned."""

    def __init__(
        self, max_disp: int = 192, width: int = 32, num_fusions: int = 6, layers: Sequence[int] = (3, 4, 6)
    ) -> None:
        super().__init__()
        self.max_disp = max_disp // 3
        self.feature_extractor = AANetFeature(width, layers)
        self.fusions = nn.ModuleList(AdaptiveAggregationModule(3, 3, self.max_disp) for _ in range(num_fusions))
        sizes = [self.max_disp // 2**i for i in range(3)]
        self.final_conv = nn.ModuleList(nn.Conv2d(size, size, kernel_size=1) for size in sizes)
        self.refinement = nn.ModuleList(StereoDRNetRefinement(width) for _ in range(2))

    def forward(self, left_img: Tensor, right_img: Tensor) -> list[Tensor]:
        left, right = self.feature_extractor(left_img), self.feature_extractor(right_img)
        volumes = [cost_volume(a, b, self.max_disp // 2**s) for s, (a, b) in enumerate(zip(left, right, strict=True))]
        for fusion in self.fusions:
            volumes = fusion(volumes)
        volumes = [conv(volume) for conv, volume in zip(self.final_conv, volumes, strict=True)]
        pyramid = [disparity(volume) for volume in volumes[::-1]]
        for i, refine in enumerate(self.refinement):
            scale = 1.0 / 2 ** (1 - i)
            images = left_img, right_img
            if scale != 1.0:
                images = [
                    F.interpolate(img, scale_factor=scale, mode="bilinear", align_corners=False) for img in images
                ]
            pyramid.append(refine(pyramid[-1], *images))
        return pyramid


PAIR = ((1, 3, 48, 96),) * 2

NETWORKS = (Entry("AANet", "stereo", lambda: AANet(48, 8, 2, (1, 1, 1)), PAIR),)
