"""I3D (Inception-v1 inflated to 3D), the paper's large network for UCF101 (action recognition).

Shapes are written BCTHW: batch, channel, time, height, width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["I3D"]

# Widths of each inception block: branch 0; branch 1 inner, outer; branch 2 inner, outer; branch 3.
_STAGE3 = ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64))
_STAGE4 = (
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
)
_STAGE5 = ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128))


class I3D(nn.Module):
    """Three convolutions, nine inception blocks, average pooling and a 1^3 convolution as classifier.

    ReLUs and paddings are functions, pools and dropout are modules: what the paper's memory convention sees of it.

    Args:
        classes: Outputs.
        in_channels: Channels of the input.
        width: Factor on every width, at least one channel each.
        window: Window of the last average pooling. The default needs clips of 16 x 224 x 224 or more; results at
            several positions are averaged.
        dropout: Probability of dropout before the classifier.

    Shape:
        (B, in_channels, T, H, W) to (B, classes).
    """

    def __init__(
        self,
        classes: int = 101,
        in_channels: int = 3,
        width: float = 1.0,
        window: tuple[int, int, int] = (2, 7, 7),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()

        def scaled(channels: int) -> int:
            return max(1, round(channels * width))

        self.conv1 = Unit(in_channels, scaled(64), kernel=7, stride=2)
        self.pool1 = SameMaxPool3d((1, 3, 3), stride=(1, 2, 2))
        self.conv2 = Unit(scaled(64), scaled(64), kernel=1)
        self.conv3 = Unit(scaled(64), scaled(192), kernel=3)
        self.pool2 = SameMaxPool3d((1, 3, 3), stride=(1, 2, 2))
        channels = scaled(192)
        stages: list[nn.Sequential] = []
        for stage in (_STAGE3, _STAGE4, _STAGE5):
            blocks: list[nn.Module] = []
            for widths in stage:
                block = Inception(channels, tuple(scaled(value) for value in widths))
                channels = block.out_channels
                blocks.append(block)
            stages.append(nn.Sequential(*blocks))
        self.stage3 = stages[0]
        self.pool3 = SameMaxPool3d((3, 3, 3), stride=(2, 2, 2))
        self.stage4 = stages[1]
        self.pool4 = SameMaxPool3d((2, 2, 2), stride=(2, 2, 2))
        self.stage5 = stages[2]
        self.average = nn.AvgPool3d(window, stride=1)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Conv3d(channels, classes, kernel_size=1)

    def forward(self, clip: Tensor) -> Tensor:
        """Logits of each clip."""
        features = self.pool1(self.conv1(clip))
        features = self.pool2(self.conv3(self.conv2(features)))
        features = self.pool3(self.stage3(features))
        features = self.pool4(self.stage4(features))
        features = self.average(self.stage5(features))
        logits: Tensor = self.classifier(self.dropout(features))
        return logits.mean(dim=(2, 3, 4))


class Unit(nn.Module):
    """Pad so that the output size is the input size over the stride, convolve, normalise, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, *, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size=kernel, stride=stride, bias=False)
        self.norm = nn.BatchNorm3d(out_channels, eps=1e-3, momentum=0.01)

    def forward(self, features: Tensor) -> Tensor:
        """Features of the next unit."""
        padded = _pad_same(features, self.conv.kernel_size, self.conv.stride)
        return F.relu(self.norm(self.conv(padded)), inplace=True)


class SameMaxPool3d(nn.MaxPool3d):
    """Max pooling of non-negative features, padded with zeros so that no border is lost."""

    def forward(self, input: Tensor) -> Tensor:
        """Pooled features."""
        pooled: Tensor = super().forward(_pad_same(input, self.kernel_size, self.stride))  # type: ignore[arg-type]
        return pooled


class Inception(nn.Module):
    """Four branches side by side: 1^3; 1^3 then 3^3; 1^3 then 3^3; pool then 1^3."""

    def __init__(self, in_channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        single, inner1, outer1, inner2, outer2, pooled = widths
        self.branch0 = Unit(in_channels, single, kernel=1)
        self.branch1 = nn.Sequential(Unit(in_channels, inner1, kernel=1), Unit(inner1, outer1, kernel=3))
        self.branch2 = nn.Sequential(Unit(in_channels, inner2, kernel=1), Unit(inner2, outer2, kernel=3))
        self.branch3 = nn.Sequential(SameMaxPool3d((3, 3, 3), stride=(1, 1, 1)), Unit(in_channels, pooled, kernel=1))
        self.out_channels = single + outer1 + outer2 + pooled

    def forward(self, features: Tensor) -> Tensor:
        """The branches' features, one after the other."""
        branches = (self.branch0, self.branch1, self.branch2, self.branch3)
        return torch.cat([branch(features) for branch in branches], dim=1)


def _pad_same(features: Tensor, kernel: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Zero-pad as TensorFlow's SAME does: the odd element goes to the end."""
    pads: list[int] = []
    for size, width, step in zip(reversed(features.shape[2:]), reversed(kernel), reversed(stride), strict=True):
        total = max(width - (size % step or step), 0)
        pads += [total // 2, total - total // 2]
    return F.pad(features, pads) if any(pads) else features
