"""Video networks after kenshohara/3D-ResNets-PyTorch: ResNet, ResNeXt, pre-activation and wide ResNet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry


def conv3x3x3(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv3d:
    """A 3x3x3 convolution that keeps the size at stride 1."""
    return nn.Conv3d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


def conv1x1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv3d:
    """A 1x1x1 convolution."""
    return nn.Conv3d(in_planes, out_planes, kernel_size=1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, in_planes: int, planes: int, stride: int = 1, downsample: Any = None) -> None:
        super().__init__()
        self.conv1 = conv3x3x3(in_planes, planes, stride)
        self.bn1 = nn.BatchNorm3d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3x3(planes, planes)
        self.bn2 = nn.BatchNorm3d(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        residual = x

        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)

        out = self.conv2(out)
        out = self.bn2(out)

        if self.downsample is not None:
            residual = self.downsample(x)

        out += residual
        return self.relu(out)


class Bottleneck(nn.Module):
    """1x1x1, 3x3x3 and 1x1x1 convolutions beside a shortcut."""

    expansion = 4

    def __init__(self, in_planes: int, planes: int, stride: int = 1, downsample: Any = None) -> None:
        super().__init__()
        self.conv1 = conv1x1x1(in_planes, planes)
        self.bn1 = nn.BatchNorm3d(planes)
        self.conv2 = conv3x3x3(planes, planes, stride)
        self.bn2 = nn.BatchNorm3d(planes)
        self.conv3 = conv1x1x1(planes, planes * self.expansion)
        self.bn3 = nn.BatchNorm3d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        residual = x

        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)

        out = self.conv2(out)
        out = self.bn2(out)
        out = self.relu(out)

        out = self.conv3(out)
        out = self.bn3(out)

        if self.downsample is not None:
            residual = self.downsample(x)

        out += residual
        return self.relu(out)


class WideBottleneck(Bottleneck):
    """A bottleneck that expands twice instead of four times."""

    expansion = 2


class ResNeXtBottleneck(Bottleneck):
    """A bottleneck whose 3x3x3 convolution has as many groups as the cardinality says."""

    expansion = 2

    def __init__(self, in_planes: int, planes: int, cardinality: int, stride: int = 1, downsample: Any = None) -> None:
        super().__init__(in_planes, planes, stride, downsample)
        mid_planes = cardinality * planes // 32
        self.conv1 = conv1x1x1(in_planes, mid_planes)
        self.bn1 = nn.BatchNorm3d(mid_planes)
        self.conv2 = nn.Conv3d(mid_planes, mid_planes, 3, stride=stride, padding=1, groups=cardinality, bias=False)
        self.bn2 = nn.BatchNorm3d(mid_planes)
        self.conv3 = conv1x1x1(mid_planes, planes * self.expansion)


class PreActivationBasicBlock(BasicBlock):
    """Norm and ReLU before each convolution."""

    def __init__(self, in_planes: int, planes: int, stride: int = 1, downsample: Any = None) -> None:
        super().__init__(in_planes, planes, stride, downsample)
        self.bn1 = nn.BatchNorm3d(in_planes)

    def forward(self, x: Tensor) -> Tensor:
        residual = x

        out = self.bn1(x)
        out = self.relu(out)
        out = self.conv1(out)

        out = self.bn2(out)
        out = self.relu(out)
        out = self.conv2(out)

        if self.downsample is not None:
            residual = self.downsample(x)

        out += residual
        return out


class PreActivationBottleneck(Bottleneck):
    """Norm and ReLU before each of the three convolutions."""

    def __init__(self, in_planes: int, planes: int, stride: int = 1, downsample: Any = None) -> None:
        super().__init__(in_planes, planes, stride, downsample)
        self.bn1 = nn.BatchNorm3d(in_planes)
        self.bn3 = nn.BatchNorm3d(planes)

    def forward(self, x: Tensor) -> Tensor:
        residual = x

        out = self.bn1(x)
        out = self.relu(out)
        out = self.conv1(out)

        out = self.bn2(out)
        out = self.relu(out)
        out = self.conv2(out)

        out = self.bn3(out)
        out = self.relu(out)
        out = self.conv3(out)

        if self.downsample is not None:
            residual = self.downsample(x)

        out += residual
        return out


class ResNet(nn.Module):
    """Stem, pooling, four layers, classifier; shortcut A pads with zeros, B has a 1x1x1 convolution."""

    def __init__(
        self,
        block: Any,
        layers: Sequence[int],
        block_inplanes: Sequence[int],
        stem: int = 64,
        shortcut_type: str = "B",
        n_classes: int = 400,
    ) -> None:
        super().__init__()
        self.in_planes = stem

        self.conv1 = nn.Conv3d(3, self.in_planes, (7, 7, 7), stride=(1, 2, 2), padding=(3, 3, 3), bias=False)
        self.bn1 = nn.BatchNorm3d(self.in_planes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool3d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, block_inplanes[0], layers[0], shortcut_type)
        self.layer2 = self._make_layer(block, block_inplanes[1], layers[1], shortcut_type, stride=2)
        self.layer3 = self._make_layer(block, block_inplanes[2], layers[2], shortcut_type, stride=2)
        self.layer4 = self._make_layer(block, block_inplanes[3], layers[3], shortcut_type, stride=2)

        self.avgpool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.fc = nn.Linear(self.in_planes, n_classes)

        for m in self.modules():
            if isinstance(m, nn.Conv3d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, nn.BatchNorm3d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def _downsample_basic_block(self, x: Tensor, planes: int, stride: int) -> Tensor:
        out = F.avg_pool3d(x, kernel_size=1, stride=stride)
        zero_pads = torch.zeros(out.size(0), planes - out.size(1), out.size(2), out.size(3), out.size(4))
        if out.data.is_cuda:
            zero_pads = zero_pads.cuda()

        return torch.cat([out.data, zero_pads], dim=1)

    def _make_layer(self, block: Any, planes: int, blocks: int, shortcut_type: str, stride: int = 1) -> nn.Sequential:
        downsample: Callable[[Tensor], Tensor] | None = None
        expansion = block.func.expansion if isinstance(block, partial) else block.expansion
        if stride != 1 or self.in_planes != planes * expansion:
            if shortcut_type == "A":
                downsample = partial(self._downsample_basic_block, planes=planes * expansion, stride=stride)
            else:
                downsample = nn.Sequential(
                    conv1x1x1(self.in_planes, planes * expansion, stride), nn.BatchNorm3d(planes * expansion)
                )

        layers = [block(in_planes=self.in_planes, planes=planes, stride=stride, downsample=downsample)]
        self.in_planes = planes * expansion
        for _ in range(1, blocks):
            layers.append(block(self.in_planes, planes))
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        x = self.maxpool(x)

        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)

        x = self.avgpool(x)

        x = x.view(x.size(0), -1)
        return self.fc(x)


def resnet(
    block: Any, layers: Sequence[int], n_classes: int = 400, width: int = 64, shortcut: str = "B", wider: int = 1
) -> ResNet:
    """A ResNet with the usual doubling of widths; ``wider`` widens the blocks but not the stem."""
    return ResNet(block, layers, [width * wider * 2**i for i in range(4)], width, shortcut, n_classes)


def resnext(
    layers: Sequence[int] = (3, 4, 6, 3),
    n_classes: int = 400,
    width: int = 128,
    shortcut: str = "B",
    cardinality: int = 32,
) -> ResNet:
    """A ResNeXt; ``width`` is that of the first layer's blocks."""
    block = partial(ResNeXtBottleneck, cardinality=cardinality)
    return ResNet(block, layers, [width * 2**i for i in range(4)], width // 2, shortcut, n_classes)


CLIP = ((1, 3, 16, 112, 112),)
SMALL = ((2, 3, 8, 48, 48),)

NETWORKS = (
    Entry("3D-ResNet-18, shortcut A", "video", lambda: resnet(BasicBlock, (2, 2, 2, 2), 5, 16, "A"), SMALL, CLIP),
    Entry("3D-ResNet-50", "video", lambda: resnet(Bottleneck, (3, 4, 6, 3), 5, 8), SMALL, CLIP),
    Entry("3D-ResNeXt-50", "video", lambda: resnext(n_classes=5, width=64), SMALL, CLIP),
    Entry("3D-ResNeXt-50, shortcut A", "video", lambda: resnext(n_classes=5, width=32, shortcut="A"), SMALL, CLIP),
    Entry(
        "Pre-activation 3D-ResNet-50",
        "video",
        lambda: resnet(PreActivationBottleneck, (3, 4, 6, 3), 5, 8),
        SMALL,
        CLIP,
    ),
    Entry("Wide 3D-ResNet-50", "video", lambda: resnet(WideBottleneck, (3, 4, 6, 3), 5, 8, wider=2), SMALL, CLIP),
)
