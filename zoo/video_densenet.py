"""DenseNet after kenshohara/3D-ResNets-PyTorch, and with checkpointed bottlenecks as torchvision's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import checkpoint

from zoo.entry import Entry
from zoo.video_hara import conv1x1x1, conv3x3x3


class DenseLayer(nn.Sequential):
    """Norm, ReLU, 1x1x1, norm, ReLU, 3x3x3; the result is concatenated behind the input."""

    def __init__(self, num_input_features: int, growth_rate: int, bn_size: int, drop_rate: float) -> None:
        super().__init__()
        self.add_module("norm1", nn.BatchNorm3d(num_input_features))
        self.add_module("relu1", nn.ReLU(inplace=True))
        self.add_module("conv1", conv1x1x1(num_input_features, bn_size * growth_rate))
        self.add_module("norm2", nn.BatchNorm3d(bn_size * growth_rate))
        self.add_module("relu2", nn.ReLU(inplace=True))
        self.add_module("conv2", conv3x3x3(bn_size * growth_rate, growth_rate))
        self.drop_rate = drop_rate

    def forward(self, x: Tensor) -> Tensor:
        new_features = super().forward(x)
        if self.drop_rate > 0:
            new_features = F.dropout(new_features, p=self.drop_rate, training=self.training)
        return torch.cat([x, new_features], 1)


class DenseBlock(nn.Sequential):
    """Dense layers in a row."""

    def __init__(
        self, num_layers: int, num_input_features: int, bn_size: int, growth_rate: int, drop_rate: float
    ) -> None:
        super().__init__()
        for i in range(num_layers):
            layer = DenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate)
            self.add_module(f"denselayer{i + 1}", layer)


class EfficientDenseLayer(DenseLayer):
    """The same layer on a list of features; concatenation and bottleneck run again in the backward pass."""

    def bn_function(self, *inputs: Tensor) -> Tensor:
        """Concatenation, norm, ReLU and 1x1x1 convolution: cheap to compute, large to keep."""
        return self.conv1(self.relu1(self.norm1(torch.cat(inputs, 1))))

    def forward(self, prev_features: list[Tensor]) -> Tensor:
        if self.training and any(feature.requires_grad for feature in prev_features):
            bottleneck = checkpoint.checkpoint(self.bn_function, *prev_features, use_reentrant=False)
        else:
            bottleneck = self.bn_function(*prev_features)
        new_features = self.conv2(self.relu2(self.norm2(bottleneck)))
        if self.drop_rate > 0:
            new_features = F.dropout(new_features, p=self.drop_rate, training=self.training)
        return new_features


class EfficientDenseBlock(nn.ModuleDict):
    """Dense layers that hand on a list of features instead of ever longer concatenations."""

    def __init__(
        self, num_layers: int, num_input_features: int, bn_size: int, growth_rate: int, drop_rate: float
    ) -> None:
        super().__init__()
        for i in range(num_layers):
            layer = EfficientDenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, init_features: Tensor) -> Tensor:
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    """Half the channels and half the size between two dense blocks."""

    def __init__(self, num_input_features: int, num_output_features: int) -> None:
        super().__init__()
        self.add_module("norm", nn.BatchNorm3d(num_input_features))
        self.add_module("relu", nn.ReLU(inplace=True))
        self.add_module("conv", conv1x1x1(num_input_features, num_output_features))
        self.add_module("pool", nn.AvgPool3d(kernel_size=2, stride=2))


class DenseNet(nn.Module):
    """DenseNet-BC; ``efficient`` checkpoints the bottlenecks."""

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: Sequence[int] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
        efficient: bool = False,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                [
                    ("conv1", nn.Conv3d(3, num_init_features, 7, stride=(1, 2, 2), padding=(3, 3, 3), bias=False)),
                    ("norm1", nn.BatchNorm3d(num_init_features)),
                    ("relu1", nn.ReLU(inplace=True)),
                    ("pool1", nn.MaxPool3d(kernel_size=3, stride=2, padding=1)),
                ]
            )
        )
        num_features = num_init_features
        for i, num_layers in enumerate(block_config):
            make = EfficientDenseBlock if efficient else DenseBlock
            block = make(num_layers, num_features, bn_size, growth_rate, drop_rate)
            self.features.add_module(f"denseblock{i + 1}", block)
            num_features = num_features + num_layers * growth_rate
            if i != len(block_config) - 1:
                self.features.add_module(f"transition{i + 1}", Transition(num_features, num_features // 2))
                num_features = num_features // 2
        self.features.add_module("norm5", nn.BatchNorm3d(num_features))
        self.classifier = nn.Linear(num_features, num_classes)

        for m in self.modules():
            if isinstance(m, nn.Conv3d):
                m.weight = nn.init.kaiming_normal_(m.weight, mode="fan_out")
            elif isinstance(m, nn.BatchNorm3d):
                m.weight.data.fill_(1)
                m.bias.data.zero_()
            elif isinstance(m, nn.Linear):
                m.bias.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(x)
        out = F.relu(features, inplace=True)
        out = F.adaptive_avg_pool3d(out, output_size=(1, 1, 1)).view(features.size(0), -1)
        return self.classifier(out)


CLIP = ((1, 3, 16, 112, 112),)
DENSE = ((2, 3, 16, 48, 48),)

NETWORKS = (
    Entry(
        "3D-DenseNet-121",
        "video",
        lambda: DenseNet(growth_rate=8, num_init_features=16, num_classes=5),
        DENSE,
        CLIP,
    ),
    Entry(
        "3D-DenseNet-121, checkpointed",
        "video",
        lambda: DenseNet(growth_rate=8, num_init_features=16, num_classes=5, efficient=True),
        DENSE,
        CLIP,
    ),
)
