"""Networks for images: ResNet-50 and ConvNeXt-T as torchvision has them; Restormer beside."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo import image_restormer
from zoo.entry import Entry


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1, and a residual that is projected where the size changes."""

    def __init__(self, inplanes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes * 4:
            shortcut = nn.Conv2d(inplanes, planes * 4, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(planes * 4))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-50 (He 2015); all blocks of a stage share one residual stream."""

    def __init__(self, layers: Sequence[int] = (3, 4, 6, 3), width: int = 64, num_classes: int = 1000) -> None:
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(width, layers[0], 1)
        self.layer2 = self._make_layer(width * 2, layers[1], 2)
        self.layer3 = self._make_layer(width * 4, layers[2], 2)
        self.layer4 = self._make_layer(width * 8, layers[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width * 32, num_classes)

    def _make_layer(self, planes: int, blocks: int, stride: int) -> nn.Sequential:
        layers = []
        for i in range(blocks):
            layers.append(Bottleneck(self.inplanes, planes, stride if i == 0 else 1))
            self.inplanes = planes * 4
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


class LayerNorm2d(nn.LayerNorm):
    """A layer norm over the channels of an image, by way of channels last."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Permute(nn.Module):
    """A permutation of dimensions as a layer."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = list(dims)

    def forward(self, x: Tensor) -> Tensor:
        return torch.permute(x, self.dims)


class StochasticDepth(nn.Module):
    """Leaves out the branch of some samples."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.drop_prob = p

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0.0:
            return input
        survival_rate = 1.0 - self.drop_prob
        noise = torch.empty([input.shape[0]] + [1] * (input.ndim - 1), dtype=input.dtype, device=input.device)
        noise = noise.bernoulli_(survival_rate)
        noise.div_(survival_rate)
        return input * noise


class CNBlock(nn.Module):
    """A depthwise convolution and a perceptron on channels last, scaled channel by channel."""

    def __init__(self, dim: int, stochastic_depth_prob: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim, bias=True),
            Permute([0, 2, 3, 1]),
            nn.LayerNorm(dim, eps=1e-6),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute([0, 3, 1, 2]),
        )
        self.layer_scale = nn.Parameter(torch.ones(dim, 1, 1) * 1e-6)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob)

    def forward(self, input: Tensor) -> Tensor:
        result = self.layer_scale * self.block(input)
        result = self.stochastic_depth(result)
        result += input
        return result


class ConvNeXt(nn.Module):
    """ConvNeXt-T (Liu 2022)."""

    def __init__(
        self,
        dims: Sequence[int] = (96, 192, 384, 768),
        depths: Sequence[int] = (3, 3, 9, 3),
        num_classes: int = 1000,
        drop: float = 0.1,
    ) -> None:
        super().__init__()
        stem = nn.Conv2d(3, dims[0], kernel_size=4, stride=4)
        layers: list[nn.Module] = [nn.Sequential(stem, LayerNorm2d(dims[0], eps=1e-6))]
        total, done = sum(depths), 0
        for i, depth in enumerate(depths):
            if i > 0:
                down = nn.Conv2d(dims[i - 1], dims[i], kernel_size=2, stride=2)
                layers.append(nn.Sequential(LayerNorm2d(dims[i - 1], eps=1e-6), down))
            layers.append(nn.Sequential(*[CNBlock(dims[i], drop * (done + j) / (total - 1)) for j in range(depth)]))
            done += depth
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            LayerNorm2d(dims[-1], eps=1e-6), nn.Flatten(1), nn.Linear(dims[-1], num_classes)
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = self.avgpool(x)
        return self.classifier(x)


IMAGE = ((2, 3, 32, 32),)
ORDINARY = ((1, 3, 224, 224),)

NETWORKS: tuple[Entry, ...] = (
    Entry("ResNet-50, images", "image", lambda: ResNet(width=8, num_classes=5), ((4, 3, 32, 32),), ORDINARY),
    Entry("ConvNeXt-T", "image", lambda: ConvNeXt((12, 24, 48, 96), num_classes=5), IMAGE, ORDINARY),
    *image_restormer.NETWORKS,
)
