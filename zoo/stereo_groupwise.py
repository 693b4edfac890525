"""Stereo networks on group-wise correlation: GwcNet with and without a concatenation volume."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry


def convbn(inp: int, out: int, kernel_size: int, stride: int, pad: int, dilation: int) -> nn.Sequential:
    """A 2D convolution with norm."""
    padding = dilation if dilation > 1 else pad
    return nn.Sequential(
        nn.Conv2d(inp, out, kernel_size, stride=stride, padding=padding, dilation=dilation, bias=False),
        nn.BatchNorm2d(out),
    )


def convbn_3d(inp: int, out: int, kernel_size: int, stride: int, pad: int) -> nn.Sequential:
    """A 3D convolution with norm."""
    return nn.Sequential(
        nn.Conv3d(inp, out, kernel_size=kernel_size, stride=stride, padding=pad, bias=False), nn.BatchNorm3d(out)
    )


def classifier(channels: int) -> nn.Sequential:
    """Makes one cost of the channels."""
    return nn.Sequential(
        convbn_3d(channels, channels, 3, 1, 1),
        nn.ReLU(inplace=True),
        nn.Conv3d(channels, 1, kernel_size=3, padding=1, stride=1, bias=False),
    )


def disparity_regression(x: Tensor, maxdisp: int) -> Tensor:
    """The expected disparity."""
    assert len(x.shape) == 4
    disp_values = torch.arange(0, maxdisp, dtype=x.dtype, device=x.device)
    disp_values = disp_values.view(1, maxdisp, 1, 1)
    return torch.sum(x * disp_values, 1, keepdim=False)


def build_concat_volume(refimg_fea: Tensor, targetimg_fea: Tensor, maxdisp: int, cropped: bool = True) -> Tensor:
    """Both features side by side at every disparity; ACVNet does not crop the reference."""
    b, c, h, w = refimg_fea.shape
    volume = refimg_fea.new_zeros([b, 2 * c, maxdisp, h, w])
    for i in range(maxdisp):
        if i > 0:
            if cropped:
                volume[:, :c, i, :, i:] = refimg_fea[:, :, :, i:]
            else:
                volume[:, :c, i, :, :] = refimg_fea[:, :, :, :]
            volume[:, c:, i, :, i:] = targetimg_fea[:, :, :, :-i]
        else:
            volume[:, :c, i, :, :] = refimg_fea
            volume[:, c:, i, :, :] = targetimg_fea
    return volume.contiguous()


def groupwise_correlation(fea1: Tensor, fea2: Tensor, num_groups: int) -> Tensor:
    """The mean product of the channels of each group."""
    b, c, h, w = fea1.shape
    assert c % num_groups == 0
    channels_per_group = c // num_groups
    cost = (fea1 * fea2).view([b, num_groups, channels_per_group, h, w]).mean(dim=2)
    assert cost.shape == (b, num_groups, h, w)
    return cost


def build_gwc_volume(refimg_fea: Tensor, targetimg_fea: Tensor, maxdisp: int, num_groups: int) -> Tensor:
    """The group-wise correlation at every disparity, written into zeros."""
    b, _, h, w = refimg_fea.shape
    volume = refimg_fea.new_zeros([b, num_groups, maxdisp, h, w])
    for i in range(maxdisp):
        if i > 0:
            volume[:, :, i, :, i:] = groupwise_correlation(
                refimg_fea[:, :, :, i:], targetimg_fea[:, :, :, :-i], num_groups
            )
        else:
            volume[:, :, i, :, :] = groupwise_correlation(refimg_fea, targetimg_fea, num_groups)
    return volume.contiguous()


def init_weights(model: nn.Module) -> None:
    """He's initialisation by output channels, as in PSMNet and its followers."""
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
            m.weight.data.normal_(0, math.sqrt(2.0 / n))
        elif isinstance(m, nn.Conv3d):
            n = m.kernel_size[0] * m.kernel_size[1] * m.kernel_size[2] * m.out_channels
            m.weight.data.normal_(0, math.sqrt(2.0 / n))
        elif isinstance(m, nn.BatchNorm2d | nn.BatchNorm3d):
            m.weight.data.fill_(1)
            m.bias.data.zero_()
        elif isinstance(m, nn.Linear):
            m.bias.data.zero_()


class BasicBlock(nn.Module):
    """Two 2D convolutions beside a shortcut, without activation after the sum."""

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int, downsample: nn.Module | None, pad: int, dilation: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(convbn(inplanes, planes, 3, stride, pad, dilation), nn.ReLU(inplace=True))
        self.conv2 = convbn(planes, planes, 3, 1, pad, dilation)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(x)
        out = self.conv2(out)
        if self.downsample is not None:
            x = self.downsample(x)
        out += x
        return out


class FeatureExtraction(nn.Module):
    """The 2D network whose last three layers are concatenated; a last convolution makes the short features."""

    def __init__(self, width: int, concat_feature_channel: int = 0) -> None:
        super().__init__()
        self.inplanes = width
        self.firstconv = nn.Sequential(
            convbn(3, width, 3, 2, 1, 1),
            nn.ReLU(inplace=True),
            convbn(width, width, 3, 1, 1, 1),
            nn.ReLU(inplace=True),
            convbn(width, width, 3, 1, 1, 1),
            nn.ReLU(inplace=True),
        )
        self.layer1 = self._make_layer(width, 3, 1, 1, 1)
        self.layer2 = self._make_layer(2 * width, 16, 2, 1, 1)
        self.layer3 = self._make_layer(4 * width, 3, 1, 1, 1)
        self.layer4 = self._make_layer(4 * width, 3, 1, 1, 2)
        self.concat_feature = concat_feature_channel > 0
        if self.concat_feature:
            self.lastconv = nn.Sequential(
                convbn(10 * width, 4 * width, 3, 1, 1, 1),
                nn.ReLU(inplace=True),
                nn.Conv2d(4 * width, concat_feature_channel, kernel_size=1, padding=0, stride=1, bias=False),
            )

    def _make_layer(self, planes: int, blocks: int, stride: int, pad: int, dilation: int) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes * BasicBlock.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )
        layers = [BasicBlock(self.inplanes, planes, stride, downsample, pad, dilation)]
        self.inplanes = planes
        for _ in range(1, blocks):
            layers.append(BasicBlock(self.inplanes, planes, 1, None, pad, dilation))
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.firstconv(x)
        x = self.layer1(x)
        l2 = self.layer2(x)
        l3 = self.layer3(l2)
        l4 = self.layer4(l3)
        gwc_feature = torch.cat((l2, l3, l4), dim=1)
        if not self.concat_feature:
            return {"gwc_feature": gwc_feature}
        concat_feature = self.lastconv(gwc_feature)
        return {"gwc_feature": gwc_feature, "concat_feature": concat_feature}


class Hourglass(nn.Module):
    """Two steps down, two steps up, with convolved shortcuts."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        c = in_channels
        self.conv1 = nn.Sequential(convbn_3d(c, c * 2, 3, 2, 1), nn.ReLU(inplace=True))
        self.conv2 = nn.Sequential(convbn_3d(c * 2, c * 2, 3, 1, 1), nn.ReLU(inplace=True))
        self.conv3 = nn.Sequential(convbn_3d(c * 2, c * 4, 3, 2, 1), nn.ReLU(inplace=True))
        self.conv4 = nn.Sequential(convbn_3d(c * 4, c * 4, 3, 1, 1), nn.ReLU(inplace=True))
        self.conv5 = nn.Sequential(
            nn.ConvTranspose3d(c * 4, c * 2, 3, padding=1, output_padding=1, stride=2, bias=False),
            nn.BatchNorm3d(c * 2),
        )
        self.conv6 = nn.Sequential(
            nn.ConvTranspose3d(c * 2, c, 3, padding=1, output_padding=1, stride=2, bias=False), nn.BatchNorm3d(c)
        )
        self.redir1 = convbn_3d(c, c, kernel_size=1, stride=1, pad=0)
        self.redir2 = convbn_3d(c * 2, c * 2, kernel_size=1, stride=1, pad=0)

    def forward(self, x: Tensor) -> Tensor:
        conv1 = self.conv1(x)
        conv2 = self.conv2(conv1)

        conv3 = self.conv3(conv2)
        conv4 = self.conv4(conv3)

        conv5 = F.relu(self.conv5(conv4) + self.redir2(conv2), inplace=True)
        return F.relu(self.conv6(conv5) + self.redir1(x), inplace=True)


def predict(cost: Tensor, maxdisp: int, image: Tensor) -> Tensor:
    """The disparity map at full size."""
    size = [maxdisp, image.size()[2], image.size()[3]]
    cost = F.interpolate(cost, size, mode="trilinear", align_corners=False)
    cost = torch.squeeze(cost, 1)
    return disparity_regression(F.softmax(cost, dim=1), maxdisp)


class GwcNet(nn.Module):
    """GwcNet; ``width`` scales the features, ``depth_width`` the 3D part. Forty groups, as in the paper."""

    def __init__(
        self, maxdisp: int = 192, use_concat_volume: bool = False, width: int = 32, depth_width: int = 32
    ) -> None:
        super().__init__()
        c = depth_width
        self.maxdisp = maxdisp
        self.use_concat_volume = use_concat_volume
        self.num_groups = 40
        self.concat_channels = 12 if use_concat_volume else 0
        self.feature_extraction = FeatureExtraction(width, self.concat_channels)
        self.dres0 = nn.Sequential(
            convbn_3d(self.num_groups + self.concat_channels * 2, c, 3, 1, 1),
            nn.ReLU(inplace=True),
            convbn_3d(c, c, 3, 1, 1),
            nn.ReLU(inplace=True),
        )
        self.dres1 = nn.Sequential(convbn_3d(c, c, 3, 1, 1), nn.ReLU(inplace=True), convbn_3d(c, c, 3, 1, 1))
        self.dres2 = Hourglass(c)
        self.dres3 = Hourglass(c)
        self.dres4 = Hourglass(c)
        self.classif0 = classifier(c)
        self.classif1 = classifier(c)
        self.classif2 = classifier(c)
        self.classif3 = classifier(c)
        init_weights(self)

    def forward(self, left: Tensor, right: Tensor) -> list[Tensor]:
        features_left = self.feature_extraction(left)
        features_right = self.feature_extraction(right)

        disparities = self.maxdisp // 4
        gwc_volume = build_gwc_volume(
            features_left["gwc_feature"], features_right["gwc_feature"], disparities, self.num_groups
        )
        if self.use_concat_volume:
            concat_volume = build_concat_volume(
                features_left["concat_feature"], features_right["concat_feature"], disparities
            )
            volume = torch.cat((gwc_volume, concat_volume), 1)
        else:
            volume = gwc_volume

        cost0 = self.dres0(volume)
        cost0 = self.dres1(cost0) + cost0

        out1 = self.dres2(cost0)
        out2 = self.dres3(out1)
        out3 = self.dres4(out2)

        if self.training:
            costs = [self.classif0(cost0), self.classif1(out1), self.classif2(out2), self.classif3(out3)]
            return [predict(cost, self.maxdisp, left) for cost in costs]
        return [predict(self.classif3(out3), self.maxdisp, left)]


PAIR = ((1, 3, 256, 512), (1, 3, 256, 512))
SMALL = ((2, 3, 32, 64), (2, 3, 32, 64))

NETWORKS = (
    Entry("GwcNet-G", "stereo", lambda: GwcNet(16, width=16, depth_width=8), SMALL, PAIR),
    Entry("GwcNet-GC", "stereo", lambda: GwcNet(16, use_concat_volume=True, width=16, depth_width=8), SMALL, PAIR),
)
