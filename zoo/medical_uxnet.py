"""3D UX-Net (Lee 2022): an encoder of large depthwise convolutions after ConvNeXt, and UNETR's convolutional decoder.

Special for pruning: layer norms over channels written out in the first dimension, depthwise convolutions with an
expansion behind them, and skips that are concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry
from zoo.medical_residual import UnetResBlock

Sizes = Sequence[int]


class LayerNorm(nn.Module):
    """A layer norm over channels that stand last, or first: then written out."""

    def __init__(self, normalized_shape: int, data_format: str = "channels_last") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = 1e-6
        self.data_format = data_format
        self.normalized_shape = (normalized_shape,)

    def forward(self, x: Tensor) -> Tensor:
        if self.data_format == "channels_last":
            return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None, None] * x + self.bias[:, None, None, None]


class UXBlock(nn.Module):
    """A large depthwise convolution, a norm, and an expansion by 1x1x1 convolutions; layer scale and residual."""

    def __init__(self, dim: int, kernel_size: int = 7) -> None:
        super().__init__()
        self.dwconv = nn.Conv3d(dim, dim, kernel_size=kernel_size, padding=kernel_size // 2, groups=dim)
        self.norm = LayerNorm(dim)
        self.pwconv1 = nn.Conv3d(dim, 4 * dim, kernel_size=1, groups=dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Conv3d(4 * dim, dim, kernel_size=1, groups=dim)
        self.gamma = nn.Parameter(1e-6 * torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 4, 1)
        x = self.norm(x)
        x = x.permute(0, 4, 1, 2, 3)
        x = self.pwconv1(x)
        x = self.act(x)
        x = self.pwconv2(x)
        x = x.permute(0, 2, 3, 4, 1)
        x = self.gamma * x
        x = x.permute(0, 4, 1, 2, 3)
        return shortcut + x


class UXNetConv(nn.Module):
    """The encoder: four stages of blocks, a normed volume from each."""

    def __init__(self, in_chans: int, depths: Sizes, dims: Sizes) -> None:
        super().__init__()
        self.downsample_layers = nn.ModuleList()
        stem = nn.Conv3d(in_chans, dims[0], kernel_size=7, stride=2, padding=3)
        self.downsample_layers.append(nn.Sequential(stem, LayerNorm(dims[0], "channels_first")))
        for i in range(3):
            conv = nn.Conv3d(dims[i], dims[i + 1], kernel_size=2, stride=2)
            self.downsample_layers.append(nn.Sequential(LayerNorm(dims[i], "channels_first"), conv))
        self.stages = nn.ModuleList(nn.Sequential(*[UXBlock(dims[i]) for _ in range(depths[i])]) for i in range(4))
        for i in range(4):
            self.add_module(f"norm{i}", LayerNorm(dims[i], "channels_first"))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outs = []
        for i in range(4):
            x = self.downsample_layers[i](x)
            x = self.stages[i](x)
            outs.append(getattr(self, f"norm{i}")(x))
        return tuple(outs)


class UnetrUpBlock(nn.Module):
    """Upsampled, concatenated to the skip, and a residual block."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.transp_conv = nn.ConvTranspose3d(in_channels, out_channels, 2, stride=2, bias=False)
        self.conv_block = UnetResBlock(out_channels + out_channels, out_channels)

    def forward(self, inp: Tensor, skip: Tensor) -> Tensor:
        out = self.transp_conv(inp)
        out = torch.cat((out, skip), dim=1)
        return self.conv_block(out)


class UXNET(nn.Module):
    """Encoder, a residual block on every skip, and the decoder."""

    def __init__(
        self,
        in_chans: int = 1,
        out_chans: int = 13,
        depths: Sizes = (2, 2, 2, 2),
        feat_size: Sizes = (48, 96, 192, 384),
        hidden_size: int = 768,
    ) -> None:
        super().__init__()
        f = feat_size
        self.uxnet_3d = UXNetConv(in_chans, depths, f)
        self.encoder1 = UnetResBlock(in_chans, f[0])
        self.encoder2 = UnetResBlock(f[0], f[1])
        self.encoder3 = UnetResBlock(f[1], f[2])
        self.encoder4 = UnetResBlock(f[2], f[3])
        self.encoder5 = UnetResBlock(f[3], hidden_size)
        self.decoder5 = UnetrUpBlock(hidden_size, f[3])
        self.decoder4 = UnetrUpBlock(f[3], f[2])
        self.decoder3 = UnetrUpBlock(f[2], f[1])
        self.decoder2 = UnetrUpBlock(f[1], f[0])
        self.decoder1 = UnetResBlock(f[0], f[0])
        self.out = nn.Conv3d(f[0], out_chans, 1)

    def forward(self, x_in: Tensor) -> Tensor:
        outs = self.uxnet_3d(x_in)
        enc1 = self.encoder1(x_in)
        enc2 = self.encoder2(outs[0])
        enc3 = self.encoder3(outs[1])
        enc4 = self.encoder4(outs[2])
        enc_hidden = self.encoder5(outs[3])
        dec3 = self.decoder5(enc_hidden, enc4)
        dec2 = self.decoder4(dec3, enc3)
        dec1 = self.decoder3(dec2, enc2)
        dec0 = self.decoder2(dec1, enc1)
        return self.out(self.decoder1(dec0))


NETWORKS = (
    Entry(
        "3D UX-Net",
        "medical",
        lambda: UXNET(1, 3, feat_size=(8, 16, 32, 64), hidden_size=128),
        ((1, 1, 32, 32, 32),),
        ((1, 1, 96, 96, 96),),
    ),
)
