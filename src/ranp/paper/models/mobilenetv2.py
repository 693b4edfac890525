"""MobileNetV2 with 3D convolutions, the paper's light network for UCF101 (action recognition).

Shapes are written BCTHW: batch, channel, time, height, width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["STAGES", "MobileNetV2"]

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""(expansion, output channels, blocks, stride of the first block), stage by stage."""


class MobileNetV2(nn.Module):
    """Stem, inverted residual blocks, a 1^3 head, global average pooling and a linear classifier.

    Args:
        classes: Outputs.
        in_channels: Channels of the input.
        width: Factor on every width of the backbone, at least one channel each.
        stages: (expansion, output channels, blocks, stride) of each stage.
        dropout: Probability of dropout before the classifier.

    Shape:
        (B, in_channels, T, H, W) to (B, classes).
    """

    def __init__(
        self,
        classes: int = 101,
        in_channels: int = 3,
        width: float = 1.0,
        stages: Sequence[tuple[int, int, int, int]] = STAGES,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()

        def scaled(channels: int) -> int:
            return max(1, round(channels * width))

        channels = scaled(32)
        self.stem = nn.Sequential(
            nn.Conv3d(in_channels, channels, kernel_size=3, stride=(1, 2, 2), padding=1, bias=False),
            nn.BatchNorm3d(channels),
            nn.ReLU6(inplace=True),
        )
        blocks: list[nn.Module] = []
        for expansion, outputs, count, stride in stages:
            for index in range(count):
                blocks.append(InvertedResidual(channels, scaled(outputs), stride if index == 0 else 1, expansion))
                channels = scaled(outputs)
        self.blocks = nn.Sequential(*blocks)
        self.head = _pointwise(channels, scaled(1280))
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(scaled(1280), classes)

    def forward(self, clip: Tensor) -> Tensor:
        """Logits of each clip."""
        features: Tensor = self.head(self.blocks(self.stem(clip)))
        logits: Tensor = self.classifier(self.dropout(features.mean(dim=(2, 3, 4))))
        return logits


class InvertedResidual(nn.Module):
    """Expand (1^3), filter each channel alone (3^3), project (1^3, linear); add the input where the shapes allow it."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        self.expand = _pointwise(in_channels, hidden) if expansion != 1 else None
        self.depthwise = nn.Sequential(
            nn.Conv3d(hidden, hidden, kernel_size=3, stride=stride, padding=1, groups=hidden, bias=False),
            nn.BatchNorm3d(hidden),
            nn.ReLU6(inplace=True),
        )
        self.project = nn.Sequential(
            nn.Conv3d(hidden, out_channels, kernel_size=1, bias=False), nn.BatchNorm3d(out_channels)
        )
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, features: Tensor) -> Tensor:
        """Features of the next block."""
        hidden = features if self.expand is None else self.expand(features)
        result: Tensor = self.project(self.depthwise(hidden))
        return features + result if self.residual else result


def _pointwise(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(in_channels, out_channels, kernel_size=1, bias=False),
        nn.BatchNorm3d(out_channels),
        nn.ReLU6(inplace=True),
    )
