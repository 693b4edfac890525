"""S3D after torchvision: Inception with separable convolutions; S3D-G has gates, as in S3D_HowTo100M."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.entry import Entry

Triple = tuple[int, int, int]


class Conv3dNormActivation(nn.Sequential):
    """Convolution, batch norm, ReLU."""

    def __init__(
        self, inp: int, out: int, kernel_size: int | Triple, stride: Triple | int, padding: Triple | int
    ) -> None:
        super().__init__(
            nn.Conv3d(inp, out, kernel_size, stride, padding, bias=False),
            nn.BatchNorm3d(out, eps=0.001, momentum=0.001),
            nn.ReLU(inplace=True),
        )


class TemporalSeparableConv(nn.Sequential):
    """A convolution in space, then one in time, each with norm and ReLU."""

    def __init__(self, in_planes: int, out_planes: int, kernel_size: int, stride: int, padding: int) -> None:
        k, s, p = kernel_size, stride, padding
        super().__init__(
            Conv3dNormActivation(in_planes, out_planes, (1, k, k), (1, s, s), (0, p, p)),
            Conv3dNormActivation(out_planes, out_planes, (k, 1, 1), (s, 1, 1), (p, 0, 0)),
        )


class SelfGating(nn.Module):
    """Scales every channel by a gate that sees the mean of all channels."""

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(input_dim, input_dim)

    def forward(self, input_tensor: Tensor) -> Tensor:
        spatiotemporal_average = torch.mean(input_tensor, dim=[2, 3, 4])
        weights = self.fc(spatiotemporal_average)
        weights = torch.sigmoid(weights)
        return weights[:, :, None, None, None] * input_tensor


class SepInceptionBlock3D(nn.Module):
    """Four branches that are concatenated; ``gating`` puts a gate behind each."""

    def __init__(self, in_planes: int, widths: Sequence[int], gating: bool) -> None:
        super().__init__()
        b0, b1_mid, b1, b2_mid, b2, b3 = widths
        self.branch0 = Conv3dNormActivation(in_planes, b0, 1, 1, 0)
        self.branch1 = nn.Sequential(
            Conv3dNormActivation(in_planes, b1_mid, 1, 1, 0), TemporalSeparableConv(b1_mid, b1, 3, 1, 1)
        )
        self.branch2 = nn.Sequential(
            Conv3dNormActivation(in_planes, b2_mid, 1, 1, 0), TemporalSeparableConv(b2_mid, b2, 3, 1, 1)
        )
        self.branch3 = nn.Sequential(
            nn.MaxPool3d(kernel_size=(3, 3, 3), stride=1, padding=1), Conv3dNormActivation(in_planes, b3, 1, 1, 0)
        )
        self.gating = gating
        if gating:
            self.gating_b0 = SelfGating(b0)
            self.gating_b1 = SelfGating(b1)
            self.gating_b2 = SelfGating(b2)
            self.gating_b3 = SelfGating(b3)

    def forward(self, x: Tensor) -> Tensor:
        x0 = self.branch0(x)
        x1 = self.branch1(x)
        x2 = self.branch2(x)
        x3 = self.branch3(x)
        if self.gating:
            x0 = self.gating_b0(x0)
            x1 = self.gating_b1(x1)
            x2 = self.gating_b2(x2)
            x3 = self.gating_b3(x3)
        return torch.cat((x0, x1, x2, x3), 1)


INCEPTION = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


class S3D(nn.Module):
    """Inception with separable convolutions; ``divide`` divides every width."""

    def __init__(
        self, num_classes: int = 400, gating: bool = False, divide: int = 1, window: Triple = (2, 7, 7)
    ) -> None:
        super().__init__()
        stem, wide = 64 // divide, 192 // divide
        layers: list[nn.Module] = [
            TemporalSeparableConv(3, stem, 7, 2, 3),
            nn.MaxPool3d(kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
            Conv3dNormActivation(stem, stem, 1, 1, 0),
            TemporalSeparableConv(stem, wide, 3, 1, 1),
            *([SelfGating(wide)] if gating else []),
            nn.MaxPool3d(kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
        ]
        planes = wide
        for index, full in enumerate(INCEPTION):
            if index == 2:
                layers.append(nn.MaxPool3d(kernel_size=(3, 3, 3), stride=(2, 2, 2), padding=(1, 1, 1)))
            if index == 7:
                layers.append(nn.MaxPool3d(kernel_size=(2, 2, 2), stride=(2, 2, 2), padding=(0, 0, 0)))
            widths = [width // divide for width in full]
            layers.append(SepInceptionBlock3D(planes, widths, gating))
            planes = widths[0] + widths[2] + widths[4] + widths[5]
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AvgPool3d(kernel_size=window, stride=1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=0.2), nn.Conv3d(planes, num_classes, kernel_size=1, stride=1, bias=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = self.avgpool(x)
        x = self.classifier(x)
        return torch.mean(x, dim=(2, 3, 4))


CLIP = ((1, 3, 16, 112, 112),)

NETWORKS = (
    Entry("S3D", "video", lambda: S3D(5, divide=4, window=(1, 1, 1)), ((2, 3, 8, 48, 48),), CLIP),
    Entry("S3D-G", "video", lambda: S3D(5, gating=True, divide=4, window=(1, 1, 1)), ((2, 3, 8, 48, 48),), CLIP),
)
