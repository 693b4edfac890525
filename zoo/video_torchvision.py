"""Video networks after torchvision: R3D, MC3, R(2+1)D, and CSN, which VMZ builds the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from zoo.entry import Entry

Triple = tuple[int, int, int]


class Conv3DSimple(nn.Conv3d):
    """A 3x3x3 convolution."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int, stride: int = 1, padding: int = 1) -> None:
        super().__init__(in_planes, out_planes, kernel_size=3, stride=stride, padding=padding, bias=False)

    @staticmethod
    def get_downsample_stride(stride: int) -> Triple:
        """The stride that a shortcut needs beside this convolution."""
        return stride, stride, stride


class Conv3DNoTemporal(nn.Conv3d):
    """A 1x3x3 convolution."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int, stride: int = 1, padding: int = 1) -> None:
        super().__init__(
            in_planes, out_planes, (1, 3, 3), stride=(1, stride, stride), padding=(0, padding, padding), bias=False
        )

    @staticmethod
    def get_downsample_stride(stride: int) -> Triple:
        """The stride that a shortcut needs beside this convolution."""
        return 1, stride, stride


class Conv2Plus1D(nn.Sequential):
    """A convolution in space, then one in time, with about as many weights as a 3x3x3 one."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int, stride: int = 1, padding: int = 1) -> None:
        super().__init__(
            nn.Conv3d(in_planes, midplanes, (1, 3, 3), (1, stride, stride), (0, padding, padding), bias=False),
            nn.BatchNorm3d(midplanes),
            nn.ReLU(inplace=True),
            nn.Conv3d(midplanes, out_planes, (3, 1, 1), (stride, 1, 1), (padding, 0, 0), bias=False),
        )

    @staticmethod
    def get_downsample_stride(stride: int) -> Triple:
        """The stride that a shortcut needs beside this convolution."""
        return stride, stride, stride


class Conv3DDepthwise(nn.Conv3d):
    """One 3x3x3 filter per channel: the interaction-reduced CSN."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int, stride: int = 1, padding: int = 1) -> None:
        assert in_planes == out_planes
        super().__init__(in_planes, out_planes, 3, stride=stride, padding=padding, groups=in_planes, bias=False)

    @staticmethod
    def get_downsample_stride(stride: int) -> Triple:
        """The stride that a shortcut needs beside this convolution."""
        return stride, stride, stride


class IPConv3DDepthwise(nn.Sequential):
    """A 1x1x1 convolution before the depthwise one: the interaction-preserved CSN."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int, stride: int = 1, padding: int = 1) -> None:
        super().__init__(
            nn.Conv3d(in_planes, out_planes, kernel_size=1, bias=False),
            nn.BatchNorm3d(out_planes),
            Conv3DDepthwise(out_planes, out_planes, midplanes, stride, padding),
        )

    @staticmethod
    def get_downsample_stride(stride: int) -> Triple:
        """The stride that a shortcut needs beside this convolution."""
        return stride, stride, stride


ConvBuilder = type[Conv3DSimple | Conv3DNoTemporal | Conv2Plus1D | Conv3DDepthwise | IPConv3DDepthwise]


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, conv_builder: ConvBuilder, stride: int, downsample: nn.Module | None
    ) -> None:
        midplanes = (inplanes * planes * 3 * 3 * 3) // (inplanes * 3 * 3 + 3 * planes)
        super().__init__()
        self.conv1 = nn.Sequential(
            conv_builder(inplanes, planes, midplanes, stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv2 = nn.Sequential(conv_builder(planes, planes, midplanes), nn.BatchNorm3d(planes))
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        residual = x

        out = self.conv1(x)
        out = self.conv2(out)
        if self.downsample is not None:
            residual = self.downsample(x)

        out += residual
        return self.relu(out)


class Bottleneck(nn.Module):
    """A convolution between two 1x1x1 ones beside a shortcut."""

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, conv_builder: ConvBuilder, stride: int, downsample: nn.Module | None
    ) -> None:
        super().__init__()
        midplanes = (inplanes * planes * 3 * 3 * 3) // (inplanes * 3 * 3 + 3 * planes)
        self.conv1 = nn.Sequential(
            nn.Conv3d(inplanes, planes, kernel_size=1, bias=False), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv2 = nn.Sequential(
            conv_builder(planes, planes, midplanes, stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv3 = nn.Sequential(
            nn.Conv3d(planes, planes * self.expansion, kernel_size=1, bias=False),
            nn.BatchNorm3d(planes * self.expansion),
        )
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        residual = x

        out = self.conv1(x)
        out = self.conv2(out)
        out = self.conv3(out)
        if self.downsample is not None:
            residual = self.downsample(x)

        out += residual
        return self.relu(out)


def basic_stem(width: int) -> nn.Sequential:
    """The first layers of R3D and MC3."""
    return nn.Sequential(
        nn.Conv3d(3, width, kernel_size=(3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
    )


def r2plus1d_stem(width: int) -> nn.Sequential:
    """The first layers of R(2+1)D."""
    mid = width * 45 // 64
    return nn.Sequential(
        nn.Conv3d(3, mid, kernel_size=(1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False),
        nn.BatchNorm3d(mid),
        nn.ReLU(inplace=True),
        nn.Conv3d(mid, width, kernel_size=(3, 1, 1), stride=(1, 1, 1), padding=(1, 0, 0), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
    )


def pooled_stem(width: int) -> nn.Sequential:
    """The first layers of CSN."""
    return nn.Sequential(
        nn.Conv3d(3, width, kernel_size=(3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool3d(kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
    )


class VideoResNet(nn.Module):
    """A stem, four layers of blocks, global pooling and a linear classifier."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        conv_makers: Sequence[ConvBuilder],
        layers: Sequence[int],
        stem: Callable[[int], nn.Module],
        num_classes: int = 400,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.inplanes = width

        self.stem = stem(width)
        self.layer1 = self._make_layer(block, conv_makers[0], width, layers[0], stride=1)
        self.layer2 = self._make_layer(block, conv_makers[1], 2 * width, layers[1], stride=2)
        self.layer3 = self._make_layer(block, conv_makers[2], 4 * width, layers[2], stride=2)
        self.layer4 = self._make_layer(block, conv_makers[3], 8 * width, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.fc = nn.Linear(8 * width * block.expansion, num_classes)

        for m in self.modules():
            if isinstance(m, nn.Conv3d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                if m.bias is not None:
                    nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.BatchNorm3d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.constant_(m.bias, 0)

    def _make_layer(
        self, block: type[BasicBlock | Bottleneck], conv_builder: ConvBuilder, planes: int, blocks: int, stride: int
    ) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                nn.Conv3d(
                    self.inplanes,
                    planes * block.expansion,
                    kernel_size=1,
                    stride=conv_builder.get_downsample_stride(stride),
                    bias=False,
                ),
                nn.BatchNorm3d(planes * block.expansion),
            )
        layers = [block(self.inplanes, planes, conv_builder, stride, downsample)]
        self.inplanes = planes * block.expansion
        for _ in range(1, blocks):
            layers.append(block(self.inplanes, planes, conv_builder, 1, None))
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)

        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)

        x = self.avgpool(x)
        x = x.flatten(1)
        return self.fc(x)


def r3d_18(num_classes: int = 400, width: int = 64) -> VideoResNet:
    """R3D-18: 3x3x3 convolutions everywhere."""
    return VideoResNet(BasicBlock, [Conv3DSimple] * 4, [2, 2, 2, 2], basic_stem, num_classes, width)


def mc3_18(num_classes: int = 400, width: int = 64) -> VideoResNet:
    """MC3-18: time is convolved in the first layer only."""
    makers = [Conv3DSimple, *[Conv3DNoTemporal] * 3]
    return VideoResNet(BasicBlock, makers, [2, 2, 2, 2], basic_stem, num_classes, width)


def r2plus1d_18(num_classes: int = 400, width: int = 64) -> VideoResNet:
    """R(2+1)D-18: space and time apart."""
    return VideoResNet(BasicBlock, [Conv2Plus1D] * 4, [2, 2, 2, 2], r2plus1d_stem, num_classes, width)


def csn(
    conv: ConvBuilder, layers: Sequence[int] = (3, 4, 6, 3), num_classes: int = 400, width: int = 64
) -> VideoResNet:
    """A channel-separated network: ``Conv3DDepthwise`` makes ir-CSN, ``IPConv3DDepthwise`` ip-CSN."""
    return VideoResNet(Bottleneck, [conv] * 4, layers, pooled_stem, num_classes, width)


CLIP = ((1, 3, 16, 112, 112),)

NETWORKS = (
    Entry("R3D-18", "video", lambda: r3d_18(5, width=16), ((2, 3, 4, 32, 32),), CLIP),
    Entry("MC3-18", "video", lambda: mc3_18(5, width=16), ((2, 3, 2, 32, 32),), CLIP),
    Entry("R(2+1)D-18", "video", lambda: r2plus1d_18(5, width=16), ((2, 3, 4, 32, 32),), CLIP),
    Entry("ip-CSN-50", "video", lambda: csn(IPConv3DDepthwise, num_classes=5, width=8), ((2, 3, 8, 48, 48),), CLIP),
    Entry("ir-CSN-50", "video", lambda: csn(Conv3DDepthwise, num_classes=5, width=8), ((2, 3, 8, 48, 48),), CLIP),
)
