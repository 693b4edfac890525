"""Video networks that treat time by hand: TSM shifts channels, GST splits them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.entry import Entry


class TemporalShift(nn.Module):
    """Shifts an eighth of the channels forwards in time and an eighth backwards, then runs the wrapped layer."""

    def __init__(self, net: nn.Module, n_segment: int = 3, n_div: int = 8) -> None:
        super().__init__()
        self.net = net
        self.n_segment = n_segment
        self.fold_div = n_div

    def forward(self, x: Tensor) -> Tensor:
        x = self.shift(x, self.n_segment, fold_div=self.fold_div)
        return self.net(x)

    @staticmethod
    def shift(x: Tensor, n_segment: int, fold_div: int = 3) -> Tensor:
        """The shift, written into zeros."""
        nt, c, h, w = x.size()
        n_batch = nt // n_segment
        x = x.view(n_batch, n_segment, c, h, w)

        fold = c // fold_div
        out = torch.zeros_like(x)
        out[:, :-1, :fold] = x[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = x[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = x[:, :, 2 * fold :]
        return out.view(nt, c, h, w)


class Bottleneck(nn.Module):
    """torchvision's 2D bottleneck."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x

        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))

        if self.downsample is not None:
            identity = self.downsample(x)

        out += identity
        return self.relu(out)


class ResNet2D(nn.Module):
    """torchvision's 2D ResNet."""

    def __init__(self, layers: Sequence[int] = (3, 4, 6, 3), num_classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(width, layers[0])
        self.layer2 = self._make_layer(2 * width, layers[1], stride=2)
        self.layer3 = self._make_layer(4 * width, layers[2], stride=2)
        self.layer4 = self._make_layer(8 * width, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(self.inplanes, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def _make_layer(self, planes: int, blocks: int, stride: int = 1) -> nn.Sequential:
        out = planes * Bottleneck.expansion
        downsample = nn.Sequential(
            nn.Conv2d(self.inplanes, out, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(out)
        )
        layers = [Bottleneck(self.inplanes, planes, stride, downsample)]
        self.inplanes = out
        layers += [Bottleneck(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(x)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


class TSN(nn.Module):
    """TSM in the frame of temporal segment networks: frames lie in the channels, scores are averaged over frames."""

    def __init__(self, num_class: int = 400, num_segments: int = 8, width: int = 64, shift_div: int = 8) -> None:
        super().__init__()
        self.num_segments = num_segments
        self.base_model = ResNet2D(num_classes=num_class, width=width)
        for stage in (self.base_model.layer1, self.base_model.layer2, self.base_model.layer3, self.base_model.layer4):
            for b in stage.children():
                b.conv1 = TemporalShift(b.conv1, n_segment=num_segments, n_div=shift_div)
        feature_dim = self.base_model.fc.in_features
        self.base_model.fc = nn.Dropout(p=0.5)
        self.new_fc = nn.Linear(feature_dim, num_class)
        nn.init.normal_(self.new_fc.weight, 0, 0.001)
        nn.init.constant_(self.new_fc.bias, 0)

    def forward(self, input: Tensor) -> Tensor:
        sample_len = 3
        base_out = self.base_model(input.view((-1, sample_len, *input.size()[-2:])))
        base_out = self.new_fc(base_out)
        base_out = base_out.view((-1, self.num_segments, *base_out.size()[1:]))
        output = base_out.mean(dim=1, keepdim=True)
        return output.squeeze(1)


class GSTConv(nn.Module):
    """The last quarter of the channels is convolved in space and time, the others in space alone."""

    def __init__(self, planes: int, stride: int = 1, alpha: int = 4) -> None:
        super().__init__()
        self.alpha = alpha
        temporal = planes // alpha
        spatial = planes - temporal
        step = (1, stride, stride)
        self.conv_s = nn.Conv3d(spatial, spatial, (1, 3, 3), stride=step, padding=(0, 1, 1), bias=False)
        self.conv_t = nn.Conv3d(temporal, temporal, (3, 3, 3), stride=step, padding=(1, 1, 1), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        left = x.size(1) - x.size(1) // self.alpha
        return torch.cat((self.conv_s(x[:, :left]), self.conv_t(x[:, left:])), dim=1)


class GSTBottleneck(nn.Module):
    """A bottleneck whose middle convolution is split into space and time."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inplanes, planes, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm3d(planes)
        self.conv2 = GSTConv(planes, stride)
        self.bn2 = nn.BatchNorm3d(planes)
        self.conv3 = nn.Conv3d(planes, planes * self.expansion, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm3d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            residual = self.downsample(x)
        out += residual
        return self.relu(out)


class GST(nn.Module):
    """Grouped spatial-temporal ResNet-50: frames become the batch before the classifier."""

    def __init__(self, num_classes: int = 174, width: int = 64, layers: Sequence[int] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv3d(3, width, kernel_size=(1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False)
        self.bn1 = nn.BatchNorm3d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool3d(kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        self.layer1 = self._make_layer(width, layers[0])
        self.layer2 = self._make_layer(2 * width, layers[1], stride=2)
        self.layer3 = self._make_layer(4 * width, layers[2], stride=2)
        self.layer4 = self._make_layer(8 * width, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(self.inplanes, num_classes)

    def _make_layer(self, planes: int, blocks: int, stride: int = 1) -> nn.Sequential:
        out = planes * GSTBottleneck.expansion
        downsample = nn.Sequential(
            nn.Conv3d(self.inplanes, out, kernel_size=1, stride=(1, stride, stride), bias=False), nn.BatchNorm3d(out)
        )
        layers = [GSTBottleneck(self.inplanes, planes, stride, downsample)]
        self.inplanes = out
        layers += [GSTBottleneck(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = x.transpose(1, 2).contiguous()
        n, t = x.size(0), x.size(1)
        x = x.view((-1, *x.size()[2:]))
        x = self.avgpool(x)
        x = x.view(x.size(0), -1)
        x = self.fc(self.dropout(x))
        return x.view(n, t, -1).mean(1)


NETWORKS = (
    Entry("TSM-ResNet-50", "video", lambda: TSN(5, num_segments=4, width=16), ((2, 12, 48, 48),), ((1, 12, 224, 224),)),
    Entry("GST-ResNet-50", "video", lambda: GST(5, width=8), ((2, 3, 4, 48, 48),), ((1, 3, 8, 224, 224),)),
)
