"""Small video networks after okankop/Efficient-3DCNNs: ShuffleNet v1 and v2, MobileNet, SqueezeNet."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry

Stride = int | tuple[int, int, int]


def conv_bn(inp: int, oup: int, stride: Stride) -> nn.Sequential:
    """A 3x3x3 convolution with norm and ReLU."""
    return nn.Sequential(
        nn.Conv3d(inp, oup, kernel_size=3, stride=stride, padding=(1, 1, 1), bias=False),
        nn.BatchNorm3d(oup),
        nn.ReLU(inplace=True),
    )


def conv_1x1x1_bn(inp: int, oup: int) -> nn.Sequential:
    """A 1x1x1 convolution with norm and ReLU."""
    return nn.Sequential(nn.Conv3d(inp, oup, 1, 1, 0, bias=False), nn.BatchNorm3d(oup), nn.ReLU(inplace=True))


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Deals the channels of each group over all groups."""
    batchsize, num_channels, depth, height, width = x.data.size()
    channels_per_group = num_channels // groups
    x = x.view(batchsize, groups, channels_per_group, depth, height, width)
    x = x.permute(0, 2, 1, 3, 4, 5).contiguous()
    return x.view(batchsize, num_channels, depth, height, width)


class Bottleneck(nn.Module):
    """ShuffleNet v1's unit: grouped 1x1x1, shuffle, depthwise, grouped 1x1x1; added, or concatenated at stride 2."""

    def __init__(self, in_planes: int, out_planes: int, stride: int, groups: int) -> None:
        super().__init__()
        self.stride = stride
        self.groups = groups
        mid_planes = out_planes // 4
        if self.stride == 2:
            out_planes = out_planes - in_planes
        g = 1 if in_planes == 24 else groups
        self.conv1 = nn.Conv3d(in_planes, mid_planes, kernel_size=1, groups=g, bias=False)
        self.bn1 = nn.BatchNorm3d(mid_planes)
        self.conv2 = nn.Conv3d(mid_planes, mid_planes, 3, stride=stride, padding=1, groups=mid_planes, bias=False)
        self.bn2 = nn.BatchNorm3d(mid_planes)
        self.conv3 = nn.Conv3d(mid_planes, out_planes, kernel_size=1, groups=groups, bias=False)
        self.bn3 = nn.BatchNorm3d(out_planes)
        self.relu = nn.ReLU(inplace=True)
        if stride == 2:
            self.shortcut = nn.AvgPool3d(kernel_size=(2, 3, 3), stride=2, padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = channel_shuffle(out, self.groups)
        out = self.bn2(self.conv2(out))
        out = self.bn3(self.conv3(out))

        if self.stride == 2:
            return self.relu(torch.cat([out, self.shortcut(x)], 1))
        return self.relu(out + x)


class ShuffleNet(nn.Module):
    """ShuffleNet v1; ``planes`` are the widths of the stem and of the three stages."""

    def __init__(self, groups: int = 3, planes: Sequence[int] = (24, 240, 480, 960), num_classes: int = 400) -> None:
        super().__init__()
        self.groups = groups
        self.in_planes = planes[0]
        self.conv1 = conv_bn(3, self.in_planes, stride=(1, 2, 2))
        self.maxpool = nn.MaxPool3d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(planes[1], 4, self.groups)
        self.layer2 = self._make_layer(planes[2], 8, self.groups)
        self.layer3 = self._make_layer(planes[3], 4, self.groups)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(planes[3], num_classes))

    def _make_layer(self, out_planes: int, num_blocks: int, groups: int) -> nn.Sequential:
        layers = []
        for i in range(num_blocks):
            stride = 2 if i == 0 else 1
            layers.append(Bottleneck(self.in_planes, out_planes, stride=stride, groups=groups))
            self.in_planes = out_planes
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(x)
        out = self.maxpool(out)
        out = self.layer1(out)
        out = self.layer2(out)
        out = self.layer3(out)
        out = F.avg_pool3d(out, out.data.size()[-3:])
        out = out.view(out.size(0), -1)
        return self.classifier(out)


class InvertedResidual(nn.Module):
    """ShuffleNet v2's unit: half of the channels passes by, or both branches run at stride 2; then a shuffle."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        oup_inc = oup // 2
        if self.stride == 2:
            self.banch1 = nn.Sequential(
                nn.Conv3d(inp, inp, 3, stride, 1, groups=inp, bias=False),
                nn.BatchNorm3d(inp),
                nn.Conv3d(inp, oup_inc, 1, 1, 0, bias=False),
                nn.BatchNorm3d(oup_inc),
                nn.ReLU(inplace=True),
            )
        self.banch2 = nn.Sequential(
            nn.Conv3d(oup_inc if stride == 1 else inp, oup_inc, 1, 1, 0, bias=False),
            nn.BatchNorm3d(oup_inc),
            nn.ReLU(inplace=True),
            nn.Conv3d(oup_inc, oup_inc, 3, stride, 1, groups=oup_inc, bias=False),
            nn.BatchNorm3d(oup_inc),
            nn.Conv3d(oup_inc, oup_inc, 1, 1, 0, bias=False),
            nn.BatchNorm3d(oup_inc),
            nn.ReLU(inplace=True),
        )

    @staticmethod
    def _concat(x: Tensor, out: Tensor) -> Tensor:
        return torch.cat((x, out), 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            x1 = x[:, : (x.shape[1] // 2), :, :, :]
            x2 = x[:, (x.shape[1] // 2) :, :, :, :]
            out = self._concat(x1, self.banch2(x2))
        else:
            out = self._concat(self.banch1(x), self.banch2(x))
        return channel_shuffle(out, 2)


class ShuffleNetV2(nn.Module):
    """ShuffleNet v2; ``planes`` are the widths of the stem, of the three stages and of the last convolution."""

    def __init__(self, planes: Sequence[int] = (24, 116, 232, 464, 1024), num_classes: int = 600) -> None:
        super().__init__()
        input_channel = planes[0]
        self.conv1 = conv_bn(3, input_channel, stride=(1, 2, 2))
        self.maxpool = nn.MaxPool3d(kernel_size=3, stride=2, padding=1)
        features = []
        for output_channel, numrepeat in zip(planes[1:4], (4, 8, 4), strict=True):
            for i in range(numrepeat):
                stride = 2 if i == 0 else 1
                features.append(InvertedResidual(input_channel, output_channel, stride))
                input_channel = output_channel
        self.features = nn.Sequential(*features)
        self.conv_last = conv_1x1x1_bn(input_channel, planes[-1])
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(planes[-1], num_classes))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(x)
        out = self.maxpool(out)
        out = self.features(out)
        out = self.conv_last(out)
        out = F.avg_pool3d(out, out.data.size()[-3:])
        out = out.view(out.size(0), -1)
        return self.classifier(out)


class Block(nn.Module):
    """MobileNet's unit: depthwise, then 1x1x1."""

    def __init__(self, in_planes: int, out_planes: int, stride: Stride = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(in_planes, in_planes, 3, stride=stride, padding=1, groups=in_planes, bias=False)
        self.bn1 = nn.BatchNorm3d(in_planes)
        self.conv2 = nn.Conv3d(in_planes, out_planes, kernel_size=1, stride=1, padding=0, bias=False)
        self.bn2 = nn.BatchNorm3d(out_planes)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)))


class MobileNet(nn.Module):
    """MobileNet v1."""

    def __init__(self, num_classes: int = 600, width_mult: float = 1.0) -> None:
        super().__init__()
        input_channel = int(32 * width_mult)
        last_channel = int(1024 * width_mult)
        cfg = [
            [64, 1, (2, 2, 2)],
            [128, 2, (2, 2, 2)],
            [256, 2, (2, 2, 2)],
            [512, 6, (2, 2, 2)],
            [1024, 2, (1, 1, 1)],
        ]
        features: list[nn.Module] = [conv_bn(3, input_channel, (1, 2, 2))]
        for c, n, s in cfg:
            output_channel = int(c * width_mult)
            for i in range(n):
                stride = s if i == 0 else 1
                features.append(Block(input_channel, output_channel, stride))
                input_channel = output_channel
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last_channel, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = F.avg_pool3d(x, x.data.size()[-3:])
        x = x.view(x.size(0), -1)
        return self.classifier(x)


class Fire(nn.Module):
    """SqueezeNet's unit; the bypass is the input itself (simple) or a 1x1x1 convolution of it (complex)."""

    def __init__(
        self, inplanes: int, squeeze_planes: int, expand_planes: int, use_bypass: bool = False, convolved: bool = False
    ) -> None:
        super().__init__()
        self.use_bypass = use_bypass
        self.relu = nn.ReLU(inplace=True)
        self.squeeze = nn.Conv3d(inplanes, squeeze_planes, kernel_size=1)
        self.squeeze_bn = nn.BatchNorm3d(squeeze_planes)
        self.expand1x1 = nn.Conv3d(squeeze_planes, expand_planes, kernel_size=1)
        self.expand1x1_bn = nn.BatchNorm3d(expand_planes)
        self.expand3x3 = nn.Conv3d(squeeze_planes, expand_planes, kernel_size=3, padding=1)
        self.expand3x3_bn = nn.BatchNorm3d(expand_planes)
        self.bypass = nn.Conv3d(inplanes, 2 * expand_planes, kernel_size=1) if convolved else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.squeeze(x)
        out = self.squeeze_bn(out)
        out = self.relu(out)

        out1 = self.expand1x1(out)
        out1 = self.expand1x1_bn(out1)

        out2 = self.expand3x3(out)
        out2 = self.expand3x3_bn(out2)

        out = torch.cat([out1, out2], 1)
        if self.use_bypass:
            out += x
        elif self.bypass is not None:
            out += self.bypass(x)
        return self.relu(out)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1; the last pooling window is fixed by the clip it is built for."""

    def __init__(
        self,
        sample_size: int,
        sample_duration: int,
        num_classes: int = 600,
        complex_bypass: bool = False,
        divide: int = 1,
    ) -> None:
        super().__init__()
        last_duration = math.ceil(sample_duration / 16)
        last_size = math.ceil(sample_size / 32)
        planes = 64 // divide
        layers: list[nn.Module] = [
            nn.Conv3d(3, planes, kernel_size=3, stride=(1, 2, 2), padding=(1, 1, 1)),
            nn.BatchNorm3d(planes),
            nn.ReLU(inplace=True),
        ]
        for squeeze, expand in ((16, 64), (32, 128), (48, 192), (64, 256)):
            small, large = squeeze // divide, expand // divide
            layers += [
                nn.MaxPool3d(kernel_size=3, stride=2, padding=1),
                Fire(planes, small, large, convolved=complex_bypass),
                Fire(2 * large, small, large, use_bypass=True),
            ]
            planes = 2 * large
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(p=0.5),
            nn.Conv3d(planes, num_classes, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.AvgPool3d((last_duration, last_size, last_size), stride=1),
        )
        for m in self.modules():
            if isinstance(m, nn.Conv3d):
                m.weight = nn.init.kaiming_normal_(m.weight, mode="fan_out")
            elif isinstance(m, nn.BatchNorm3d):
                m.weight.data.fill_(1)
                m.bias.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = self.classifier(x)
        return x.view(x.size(0), -1)


CLIP = ((1, 3, 16, 112, 112),)
SMALL = ((2, 3, 16, 48, 48),)

NETWORKS = (
    Entry("3D-ShuffleNet v1", "video", lambda: ShuffleNet(3, (24, 60, 120, 240), 5), SMALL, CLIP),
    Entry("3D-ShuffleNet v2", "video", lambda: ShuffleNetV2((24, 32, 64, 128, 256), 5), SMALL, CLIP),
    Entry("3D-MobileNet v1", "video", lambda: MobileNet(5, width_mult=0.25), SMALL, CLIP),
    Entry("3D-SqueezeNet, simple bypass", "video", lambda: SqueezeNet(32, 16, 5, divide=2), SMALL, CLIP),
    Entry("3D-SqueezeNet, complex bypass", "video", lambda: SqueezeNet(32, 16, 5, True, divide=2), SMALL, CLIP),
)
