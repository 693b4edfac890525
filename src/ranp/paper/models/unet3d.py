"""3D-UNet, the paper's network for ShapeNet (part segmentation) and BraTS (tumour segmentation).

Shapes are written BCDHW: batch, channel, depth, height, width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["UNet3d"]


class UNet3d(nn.Module):
    """Encoder, decoder and skip connections; the number of ``widths`` is the number of resolutions.

    Every activation is a module, so that the paper's memory convention sees it; upsampling and concatenation are
    functions, which it does not see.

    Args:
        in_channels: Channels of the input.
        classes: Channels of the output.
        widths: Output channels at each resolution, from the finest. Four make the 15-layer network, six the 23-layer.
        softmax_in_eval: Return probabilities instead of logits in eval mode, as the paper does on ShapeNet.

    Shape:
        (B, in_channels, D, H, W) to (B, classes, D, H, W). Any size of at least ``2 ** (len(widths) - 1)``.

    Example:
        >>> UNet3d(1, 5, widths=(4, 8))(torch.zeros(2, 1, 8, 8, 8)).shape
        torch.Size([2, 5, 8, 8, 8])
    """

    def __init__(
        self,
        in_channels: int = 1,
        classes: int = 50,
        widths: Sequence[int] = (64, 128, 256, 512),
        softmax_in_eval: bool = False,
    ) -> None:
        super().__init__()
        inputs = (in_channels, *widths[:-1])
        self.encoders = nn.ModuleList(
            Encoder(cin, cout, pool=level > 0) for level, (cin, cout) in enumerate(zip(inputs, widths, strict=True))
        )
        self.decoders = nn.ModuleList(
            Decoder(skip + below, skip) for skip, below in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.head = nn.Conv3d(widths[0], classes, kernel_size=1)
        self.softmax = nn.Softmax(dim=1) if softmax_in_eval else None

    def forward(self, volume: Tensor) -> Tensor:
        """Logits per voxel, or probabilities in eval mode if asked for."""
        skips: list[Tensor] = []
        features = volume
        for encoder in self.encoders:
            features = encoder(features)
            skips.append(features)
        for decoder, skip in zip(self.decoders, skips[-2::-1], strict=True):
            features = decoder(skip, features)
        logits: Tensor = self.head(features)
        if self.softmax is None or self.training:
            return logits
        probabilities: Tensor = self.softmax(logits)
        return probabilities


class Encoder(nn.Module):
    """Halve the resolution (except at the finest level), then two convolutions."""

    def __init__(self, in_channels: int, out_channels: int, *, pool: bool) -> None:
        super().__init__()
        middle = max(out_channels // 2, in_channels)
        self.pool = nn.MaxPool3d(2) if pool else None
        self.conv1 = _unit(in_channels, middle)
        self.conv2 = _unit(middle, out_channels)

    def forward(self, features: Tensor) -> Tensor:
        """Features of one resolution below."""
        if self.pool is not None:
            features = self.pool(features)
        result: Tensor = self.conv2(self.conv1(features))
        return result


class Decoder(nn.Module):
    """Bring features up to the size of the skip connection, append them to it, then two convolutions."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = _unit(in_channels, out_channels)
        self.conv2 = _unit(out_channels, out_channels)

    def forward(self, skip: Tensor, below: Tensor) -> Tensor:
        """Features at the skip's resolution."""
        above = F.interpolate(below, size=skip.shape[2:], mode="nearest")
        result: Tensor = self.conv2(self.conv1(torch.cat((skip, above), dim=1)))
        return result


def _unit(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm3d(out_channels),
        nn.ReLU(inplace=True),
    )
