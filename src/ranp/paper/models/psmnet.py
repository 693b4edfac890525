"""PSMNet with stacked hourglasses, the paper's network for SceneFlow (stereo matching).

A 2D feature network shared by both views, a cost volume over disparities, and a 3D network on it. Shapes are written
BCHW for images and BCDHW for volumes, D being the disparity.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp.errors import DataError, UnsupportedError

__all__ = ["PSMNet"]


class PSMNet(nn.Module):
    """Disparity of a rectified pair of images.

    The cost volume, upsampling, the softmax over disparities and its expectation are functions; every ReLU is a
    module, also the two in each hourglass that follow an addition.

    Args:
        disparities: Disparities searched, 0 to ``disparities - 1``; a multiple of 16.
        in_channels: Channels of each image.
        width: Factor on every width, at least one channel each.
        blocks: Residual blocks of the four stages of the feature network.
        windows: Windows of the pyramid pooling, at a quarter of the image's size, from the largest.

    Shape:
        Two images (B, in_channels, H, W), H and W multiples of 16 and at least four times the largest window, to
        three maps (B, H, W) in training mode (the last is the best), to the last one in eval mode.
    """

    def __init__(
        self,
        disparities: int = 192,
        in_channels: int = 3,
        width: float = 1.0,
        blocks: tuple[int, int, int, int] = (3, 16, 3, 3),
        windows: Sequence[int] = (64, 32, 16, 8),
    ) -> None:
        super().__init__()
        if disparities <= 0 or disparities % 16:
            raise UnsupportedError(
                f"disparities={disparities}: the volume is halved four times; pass a positive multiple of 16."
            )
        self.disparities = disparities
        base = max(1, round(32 * width))
        self.features = FeatureNet(in_channels, base, blocks, windows)
        self.reduce = nn.Sequential(
            *_unit3d(2 * base, base), nn.ReLU(inplace=True), *_unit3d(base, base), nn.ReLU(inplace=True)
        )
        self.refine = nn.Sequential(*_unit3d(base, base), nn.ReLU(inplace=True), *_unit3d(base, base))
        self.hourglass1 = Hourglass(base)
        self.head1 = _head(base)
        self.hourglass2 = Hourglass(base)
        self.head2 = _head(base)
        self.hourglass3 = Hourglass(base)
        self.head3 = _head(base)

    def forward(self, left: Tensor, right: Tensor) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Disparity maps of the left view: three in training mode, the last one in eval mode."""
        size = left.shape[2:]
        if any(extent % 16 for extent in size):
            raise DataError(f"image of {size[0]} x {size[1]}: it is halved four times; crop or pad to multiples of 16.")
        volume = cost_volume(self.features(left), self.features(right), self.disparities // 4)
        reduced = self.reduce(volume)
        cost0 = self.refine(reduced) + reduced
        out1, pre1, post1 = self.hourglass1(cost0)
        out1 = out1 + cost0
        out2, _, post2 = self.hourglass2(out1, pre1, post1)
        out2 = out2 + cost0
        out3, _, _ = self.hourglass3(out2, pre1, post2)
        out3 = out3 + cost0
        cost1 = self.head1(out1)
        cost2 = self.head2(out2) + cost1
        cost3 = self.head3(out3) + cost2
        if self.training:
            return self._disparity(cost1, size), self._disparity(cost2, size), self._disparity(cost3, size)
        return self._disparity(cost3, size)

    def _disparity(self, cost: Tensor, size: torch.Size) -> Tensor:
        """Expected disparity at full size."""
        full = F.interpolate(cost, size=(self.disparities, *size), mode="trilinear", align_corners=True)
        probabilities = F.softmax(full.squeeze(1), dim=1)
        values = torch.arange(self.disparities, device=cost.device, dtype=cost.dtype)
        return (probabilities * values.view(1, -1, 1, 1)).sum(dim=1)


def cost_volume(left: Tensor, right: Tensor, disparities: int) -> Tensor:
    """Left features beside the right features that each disparity would match, zero where there are none.

    Shape:
        Two (B, C, H, W) to (B, 2C, D, H, W).
    """
    batch, channels, height, width = left.shape
    volume = left.new_zeros((batch, 2 * channels, disparities, height, width))
    for shift in range(min(disparities, width)):
        volume[:, :channels, shift, :, shift:] = left[:, :, :, shift:]
        volume[:, channels:, shift, :, shift:] = right[:, :, :, : width - shift]
    return volume


class FeatureNet(nn.Module):
    """Residual features at a quarter of the image's size, with context from pyramid pooling."""

    def __init__(self, in_channels: int, base: int, blocks: Sequence[int], windows: Sequence[int]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *_unit2d(in_channels, base, stride=2),
            nn.ReLU(inplace=True),
            *_unit2d(base, base),
            nn.ReLU(inplace=True),
            *_unit2d(base, base),
            nn.ReLU(inplace=True),
        )
        self.stage1 = _stage(base, base, blocks[0])
        self.stage2 = _stage(base, 2 * base, blocks[1], stride=2)
        self.stage3 = _stage(2 * base, 4 * base, blocks[2])
        self.stage4 = _stage(4 * base, 4 * base, blocks[3], dilation=2)
        self.pyramid = nn.ModuleList(
            nn.Sequential(nn.AvgPool2d(window), *_unit2d(4 * base, base, kernel=1), nn.ReLU(inplace=True))
            for window in windows
        )
        self.fuse = nn.Sequential(
            *_unit2d((2 + 4 + len(windows)) * base, 4 * base),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * base, base, kernel_size=1, bias=False),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Features of one view, (B, C, H / 4, W / 4)."""
        shallow = self.stage2(self.stage1(self.stem(image)))
        deep = self.stage4(self.stage3(shallow))
        context = [
            F.interpolate(branch(deep), size=deep.shape[2:], mode="bilinear", align_corners=True)
            for branch in self.pyramid
        ]
        fused: Tensor = self.fuse(torch.cat((shallow, deep, *reversed(context)), dim=1))
        return fused


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut; no ReLU after the addition."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            *_unit2d(in_channels, out_channels, stride=stride, dilation=dilation), nn.ReLU(inplace=True)
        )
        self.conv2 = nn.Sequential(*_unit2d(out_channels, out_channels, dilation=dilation))
        self.shortcut = (
            nn.Sequential(*_unit2d(in_channels, out_channels, kernel=1, stride=stride))
            if stride != 1 or in_channels != out_channels
            else None
        )

    def forward(self, features: Tensor) -> Tensor:
        """Features of the next block."""
        result: Tensor = self.conv2(self.conv1(features))
        return result + (features if self.shortcut is None else self.shortcut(features))


class Hourglass(nn.Module):
    """Down twice and up twice; hands its inner features to the next hourglass."""

    def __init__(self, base: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(*_unit3d(base, 2 * base, stride=2), nn.ReLU(inplace=True))
        self.conv2 = nn.Sequential(*_unit3d(2 * base, 2 * base))
        self.relu2 = nn.ReLU(inplace=True)
        self.conv3 = nn.Sequential(*_unit3d(2 * base, 2 * base, stride=2), nn.ReLU(inplace=True))
        self.conv4 = nn.Sequential(*_unit3d(2 * base, 2 * base), nn.ReLU(inplace=True))
        self.conv5 = nn.Sequential(*_up3d(2 * base, 2 * base))
        self.relu5 = nn.ReLU(inplace=True)
        self.conv6 = nn.Sequential(*_up3d(2 * base, base))

    def forward(
        self, volume: Tensor, presqu: Tensor | None = None, postsqu: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The volume, then the half-size features before and after the squeeze.

        Args:
            volume: (B, C, D, H, W).
            presqu: Half-size features before the squeeze of the first hourglass, to add after this one's squeeze.
            postsqu: Half-size features after the previous hourglass's squeeze, to add before this one's.
        """
        half = self.conv2(self.conv1(volume))
        pre = self.relu2(half if postsqu is None else half + postsqu)
        squeezed = self.conv4(self.conv3(pre))
        post = self.relu5(self.conv5(squeezed) + (pre if presqu is None else presqu))
        return self.conv6(post), pre, post


def _stage(in_channels: int, out_channels: int, count: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    first = BasicBlock(in_channels, out_channels, stride, dilation)
    rest = (BasicBlock(out_channels, out_channels, 1, dilation) for _ in range(count - 1))
    return nn.Sequential(first, *rest)


def _unit2d(
    in_channels: int, out_channels: int, *, kernel: int = 3, stride: int = 1, dilation: int = 1
) -> tuple[nn.Module, nn.Module]:
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(in_channels, out_channels, kernel, stride, padding, dilation=dilation, bias=False)
    return conv, nn.BatchNorm2d(out_channels)


def _unit3d(in_channels: int, out_channels: int, *, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv3d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)
    return conv, nn.BatchNorm3d(out_channels)


def _up3d(in_channels: int, out_channels: int) -> tuple[nn.Module, nn.Module]:
    conv = nn.ConvTranspose3d(
        in_channels, out_channels, kernel_size=3, stride=2, padding=1, output_padding=1, bias=False
    )
    return conv, nn.BatchNorm3d(out_channels)


def _head(base: int) -> nn.Sequential:
    return nn.Sequential(
        *_unit3d(base, base), nn.ReLU(inplace=True), nn.Conv3d(base, 1, kernel_size=3, padding=1, bias=False)
    )
