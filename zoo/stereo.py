"""Stereo networks with 3D convolutions on a cost volume: GC-Net and StereoNet here, GwcNet, ACVNet and AANet beside."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo import stereo_aanet, stereo_acvnet, stereo_groupwise
from zoo.entry import Entry


def conv2d_bn(inp: int, out: int, kernel_size: int = 3, stride: int = 1) -> nn.Sequential:
    """A 2D convolution with norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inp, out, kernel_size, stride, kernel_size // 2), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
    )


def conv3d_bn(inp: int, out: int, stride: int = 1) -> nn.Sequential:
    """A 3D convolution with norm and ReLU."""
    return nn.Sequential(nn.Conv3d(inp, out, 3, stride, 1), nn.BatchNorm3d(out), nn.ReLU(inplace=True))


def deconv3d_bn(inp: int, out: int) -> nn.Sequential:
    """A transposed 3D convolution with norm and ReLU that doubles the size."""
    return nn.Sequential(
        nn.ConvTranspose3d(inp, out, 3, stride=2, padding=1, output_padding=1),
        nn.BatchNorm3d(out),
        nn.ReLU(inplace=True),
    )


class GCBlock(nn.Module):
    """Two convolutions of the unary features beside the identity."""

    def __init__(self, planes: int) -> None:
        super().__init__()
        self.conv1 = conv2d_bn(planes, planes)
        self.conv2 = conv2d_bn(planes, planes)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x)) + x


class GCNet(nn.Module):
    """GC-Net: unary features, a concatenation volume, an encoder and decoder in 3D, soft argmin of the cost.

    Layers are numbered as in the paper's table.
    """

    def __init__(self, maxdisp: int = 192, width: int = 32) -> None:
        super().__init__()
        f = width
        self.maxdisp = maxdisp
        self.l1 = conv2d_bn(3, f, 5, 2)
        self.unary = nn.Sequential(*[GCBlock(f) for _ in range(8)])
        self.l18 = nn.Conv2d(f, f, 3, 1, 1)
        self.l19 = conv3d_bn(2 * f, f)
        self.l20 = conv3d_bn(f, f)
        self.l21 = conv3d_bn(2 * f, 2 * f, 2)
        self.l22 = conv3d_bn(2 * f, 2 * f)
        self.l23 = conv3d_bn(2 * f, 2 * f)
        self.l24 = conv3d_bn(2 * f, 2 * f, 2)
        self.l25 = conv3d_bn(2 * f, 2 * f)
        self.l26 = conv3d_bn(2 * f, 2 * f)
        self.l27 = conv3d_bn(2 * f, 2 * f, 2)
        self.l28 = conv3d_bn(2 * f, 2 * f)
        self.l29 = conv3d_bn(2 * f, 2 * f)
        self.l30 = conv3d_bn(2 * f, 4 * f, 2)
        self.l31 = conv3d_bn(4 * f, 4 * f)
        self.l32 = conv3d_bn(4 * f, 4 * f)
        self.l33 = deconv3d_bn(4 * f, 2 * f)
        self.l34 = deconv3d_bn(2 * f, 2 * f)
        self.l35 = deconv3d_bn(2 * f, 2 * f)
        self.l36 = deconv3d_bn(2 * f, f)
        self.l37 = nn.ConvTranspose3d(f, 1, 3, stride=2, padding=1, output_padding=1)

    def features(self, image: Tensor) -> Tensor:
        """The unary features of one image."""
        return self.l18(self.unary(self.l1(image)))

    def cost_volume(self, left: Tensor, right: Tensor) -> Tensor:
        """Both features side by side at every disparity, written into zeros."""
        channels, disparities = left.size(1), self.maxdisp // 2
        cost = left.new_zeros(left.size(0), channels * 2, disparities, left.size(2), left.size(3))
        for i in range(disparities):
            if i > 0:
                cost[:, :channels, i, :, i:] = left[:, :, :, i:]
                cost[:, channels:, i, :, i:] = right[:, :, :, :-i]
            else:
                cost[:, :channels, i, :, :] = left
                cost[:, channels:, i, :, :] = right
        return cost.contiguous()

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        volume = self.cost_volume(self.features(left), self.features(right))
        l20 = self.l20(self.l19(volume))
        l21 = self.l21(volume)
        l23 = self.l23(self.l22(l21))
        l24 = self.l24(l21)
        l26 = self.l26(self.l25(l24))
        l27 = self.l27(l24)
        l29 = self.l29(self.l28(l27))
        l32 = self.l32(self.l31(self.l30(l27)))
        out = self.l33(l32) + l29
        out = self.l34(out) + l26
        out = self.l35(out) + l23
        out = self.l36(out) + l20
        cost = self.l37(out).view(left.size(0), self.maxdisp, left.size(2), left.size(3))
        prob = F.softmax(-cost, 1)
        disparities = torch.arange(self.maxdisp, dtype=prob.dtype, device=prob.device)
        return torch.sum(prob * disparities[None, :, None, None], 1)


class ResBlock(nn.Module):
    """StereoNet's residual block; the activation follows the sum."""

    def __init__(self, channels: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.batch_norm_1 = nn.BatchNorm2d(channels)
        self.activation_1 = nn.LeakyReLU(negative_slope=0.2)
        self.conv_2 = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.batch_norm_2 = nn.BatchNorm2d(channels)
        self.activation_2 = nn.LeakyReLU(negative_slope=0.2)

    def forward(self, x: Tensor) -> Tensor:
        res = self.conv_1(x)
        res = self.batch_norm_1(res)
        res = self.activation_1(res)
        res = self.conv_2(res)
        res = self.batch_norm_2(res)
        # The residual is added before the last activation; the paper leaves the order open.
        out = res + x
        return self.activation_2(out)


class FeatureExtractor(nn.Module):
    """StereoNet's features: strided 5x5 convolutions, six residual blocks, a last convolution."""

    def __init__(self, out_channels: int, k_downsampling_layers: int) -> None:
        super().__init__()
        net: OrderedDict[str, nn.Module] = OrderedDict()
        channels = 3
        for block_idx in range(k_downsampling_layers):
            net[f"segment_0_conv_{block_idx}"] = nn.Conv2d(channels, out_channels, kernel_size=5, stride=2, padding=2)
            channels = out_channels
        for block_idx in range(6):
            net[f"segment_1_res_{block_idx}"] = ResBlock(out_channels)
        net["segment_2_conv_0"] = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1)
        self.net = nn.Sequential(net)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def difference_volume(reference: Tensor, target: Tensor, disparities: int) -> Tensor:
    """The difference of the features at every disparity, in a tensor made the old way."""
    batch, channel, height, width = reference.size()
    cost = torch.Tensor(batch, channel, disparities, height, width).zero_()
    cost = cost.type_as(reference)
    cost[:, :, 0, :, :] = reference - target
    for idx in range(1, disparities):
        cost[:, :, idx, :, idx:] = reference[:, :, :, idx:] - target[:, :, :, :-idx]
    return cost.contiguous()


class CostVolume(nn.Module):
    """StereoNet's filter of the difference volume."""

    def __init__(self, channels: int, disparities: int) -> None:
        super().__init__()
        self._disparities = disparities
        net: OrderedDict[str, nn.Module] = OrderedDict()
        for block_idx in range(4):
            net[f"segment_0_conv_{block_idx}"] = nn.Conv3d(channels, channels, kernel_size=3, padding=1)
            net[f"segment_0_bn_{block_idx}"] = nn.BatchNorm3d(num_features=channels)
            net[f"segment_0_act_{block_idx}"] = nn.LeakyReLU(negative_slope=0.2)
        net["segment_1_conv_0"] = nn.Conv3d(channels, 1, kernel_size=3, padding=1)
        self.net = nn.Sequential(net)

    def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
        reference_embedding, target_embedding = x
        cost = difference_volume(reference_embedding, target_embedding, self._disparities)
        cost = self.net(cost)
        return torch.squeeze(cost, dim=1)


class Refinement(nn.Module):
    """One step of StereoNet's edge-aware upsampling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        net: OrderedDict[str, nn.Module] = OrderedDict()
        net["segment_0_conv_0"] = nn.Conv2d(4, channels, kernel_size=3, padding=1)
        for block_idx, dilation in enumerate([1, 2, 4, 8, 1, 1]):
            net[f"segment_1_res_{block_idx}"] = ResBlock(channels, dilation)
        net["segment_2_conv_0"] = nn.Conv2d(channels, 1, kernel_size=3, padding=1)
        self.net = nn.Sequential(net)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class StereoNet(nn.Module):
    """StereoNet; while training every level of the pyramid is returned."""

    def __init__(self, maxdisp: int = 256, k: int = 3, width: int = 32) -> None:
        super().__init__()
        self.k = k
        self.feature_extractor = FeatureExtractor(width, k)
        self.cost_volumizer = CostVolume(width, (maxdisp + 1) // (2**k))
        self.refiners = nn.ModuleList()
        for _ in range(k):
            self.refiners.append(Refinement(width))

    @staticmethod
    def soft_argmin(cost: Tensor, max_downsampled_disps: int) -> Tensor:
        """The expected disparity."""
        disparity_softmax = F.softmax(-cost, dim=1)
        grid = torch.linspace(0, max_downsampled_disps, disparity_softmax.size(1)).reshape(1, -1, 1, 1)
        grid = grid.type_as(disparity_softmax)
        return torch.sum(disparity_softmax * grid, dim=1, keepdim=True)

    def forward(self, left: Tensor, right: Tensor) -> Tensor | list[Tensor]:
        reference_embedding = self.feature_extractor(left)
        shifting_embedding = self.feature_extractor(right)
        cost = self.cost_volumizer((reference_embedding, shifting_embedding))
        disparity_pyramid = [self.soft_argmin(cost, cost.size(1))]

        for idx, refiner in enumerate(self.refiners, start=1):
            scale = (2**self.k) / (2**idx)
            new_h, new_w = int(left.size()[2] // scale), int(left.size()[3] // scale)
            rescaled = F.interpolate(left, [new_h, new_w], mode="bilinear", align_corners=True)
            low = F.interpolate(disparity_pyramid[-1], [new_h, new_w], mode="bilinear", align_corners=True)
            refined_disparity = F.relu(refiner(torch.cat((rescaled, low), dim=1)) + low)
            disparity_pyramid.append(refined_disparity)
        return disparity_pyramid if self.training else disparity_pyramid[-1]


PAIR = ((1, 3, 256, 512), (1, 3, 256, 512))

NETWORKS: tuple[Entry, ...] = (
    Entry("GC-Net", "stereo", lambda: GCNet(maxdisp=32, width=8), ((2, 3, 32, 64), (2, 3, 32, 64)), PAIR),
    Entry("StereoNet", "stereo", lambda: StereoNet(maxdisp=31, width=16), ((2, 3, 32, 64), (2, 3, 32, 64)), PAIR),
    *stereo_groupwise.NETWORKS,
    *stereo_acvnet.NETWORKS,
    *stereo_aanet.NETWORKS,
)
