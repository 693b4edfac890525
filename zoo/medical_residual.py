"""The residual block of DynUNet as UNETR++ and 3D UX-Net use it (there taken from MONAI)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Norm = Callable[[int], nn.Module]


def instance_norm(channels: int) -> nn.Module:
    """Instance norm with parameters."""
    return nn.InstanceNorm3d(channels, affine=True)


class UnetResBlock(nn.Module):
    """Two convolutions with norms, and a shortcut that is projected where the width changes."""

    def __init__(self, in_channels: int, out_channels: int, norm: Norm = instance_norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(in_channels, out_channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv3d(out_channels, out_channels, 3, padding=1, bias=False)
        self.lrelu = nn.LeakyReLU(negative_slope=0.01, inplace=True)
        self.norm1 = norm(out_channels)
        self.norm2 = norm(out_channels)
        self.downsample = in_channels != out_channels
        if self.downsample:
            self.conv3 = nn.Conv3d(in_channels, out_channels, 1, bias=False)
            self.norm3 = norm(out_channels)

    def forward(self, inp: Tensor) -> Tensor:
        residual = inp
        out = self.lrelu(self.norm1(self.conv1(inp)))
        out = self.norm2(self.conv2(out))
        if self.downsample:
            residual = self.norm3(self.conv3(residual))
        out += residual
        return self.lrelu(out)
