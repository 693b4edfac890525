"""Restormer (Zamir 2022): attention over channels in a U-Net, for restoring images.

Special for pruning: queries, keys and values come out of a depthwise convolution in three chunks, queries meet keys
along places, so that a softmax runs over channels, and every perceptron is gated: one chunk times the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry


class WithBiasLayerNorm(nn.Module):
    """A layer norm over the last dimension, written out."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        mu = x.mean(-1, keepdim=True)
        sigma = x.var(-1, keepdim=True, unbiased=False)
        return (x - mu) / torch.sqrt(sigma + 1e-5) * self.weight + self.bias


class LayerNorm(nn.Module):
    """The same on an image, by way of tokens."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.body = WithBiasLayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = self.body(x.permute(0, 2, 3, 1).reshape(b, h * w, c))
        return x.reshape(b, h, w, c).permute(0, 3, 1, 2)


class FeedForward(nn.Module):
    """Gated perceptron with depthwise convolutions; its width need be no multiple of anything."""

    def __init__(self, dim: int, ffn_expansion_factor: float) -> None:
        super().__init__()
        hidden = int(dim * ffn_expansion_factor)
        self.project_in = nn.Conv2d(dim, hidden * 2, kernel_size=1, bias=False)
        self.dwconv = nn.Conv2d(hidden * 2, hidden * 2, 3, stride=1, padding=1, groups=hidden * 2, bias=False)
        self.project_out = nn.Conv2d(hidden, dim, kernel_size=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project_in(x)
        x1, x2 = self.dwconv(x).chunk(2, dim=1)
        x = F.gelu(x1) * x2
        return self.project_out(x)


class Attention(nn.Module):
    """Attention over the channels of every head."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.qkv = nn.Conv2d(dim, dim * 3, kernel_size=1, bias=False)
        self.qkv_dwconv = nn.Conv2d(dim * 3, dim * 3, 3, stride=1, padding=1, groups=dim * 3, bias=False)
        self.project_out = nn.Conv2d(dim, dim, kernel_size=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        qkv = self.qkv_dwconv(self.qkv(x))
        q, k, v = (y.reshape(b, self.num_heads, -1, h * w) for y in qkv.chunk(3, dim=1))
        q = F.normalize(q, dim=-1)
        k = F.normalize(k, dim=-1)
        attn = (q @ k.transpose(-2, -1)) * self.temperature
        attn = attn.softmax(dim=-1)
        out = attn @ v
        out = out.reshape(b, -1, h, w)
        return self.project_out(out)


class TransformerBlock(nn.Module):
    """Attention and gated perceptron, each behind a norm and with a residual."""

    def __init__(self, dim: int, num_heads: int, ffn_expansion_factor: float) -> None:
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.attn = Attention(dim, num_heads)
        self.norm2 = LayerNorm(dim)
        self.ffn = FeedForward(dim, ffn_expansion_factor)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


def downsample(dim: int) -> nn.Sequential:
    """Half the width, then places into channels."""
    return nn.Sequential(nn.Conv2d(dim, dim // 2, 3, padding=1, bias=False), nn.PixelUnshuffle(2))


def upsample(dim: int) -> nn.Sequential:
    """Twice the width, then channels into places."""
    return nn.Sequential(nn.Conv2d(dim, dim * 2, 3, padding=1, bias=False), nn.PixelShuffle(2))


class Restormer(nn.Module):
    """Four levels, refinement at full size, and a residual of the image itself."""

    def __init__(
        self,
        dim: int = 48,
        num_blocks: Sequence[int] = (4, 6, 6, 8),
        num_refinement_blocks: int = 4,
        heads: Sequence[int] = (1, 2, 4, 8),
        factor: float = 2.66,
    ) -> None:
        super().__init__()

        def blocks(level: int, count: int, width: int) -> nn.Sequential:
            return nn.Sequential(*[TransformerBlock(width, heads[level], factor) for _ in range(count)])

        self.patch_embed = nn.Conv2d(3, dim, kernel_size=3, padding=1, bias=False)
        self.encoder_level1 = blocks(0, num_blocks[0], dim)
        self.down1_2 = downsample(dim)
        self.encoder_level2 = blocks(1, num_blocks[1], dim * 2)
        self.down2_3 = downsample(dim * 2)
        self.encoder_level3 = blocks(2, num_blocks[2], dim * 4)
        self.down3_4 = downsample(dim * 4)
        self.latent = blocks(3, num_blocks[3], dim * 8)
        self.up4_3 = upsample(dim * 8)
        self.reduce_chan_level3 = nn.Conv2d(dim * 8, dim * 4, kernel_size=1, bias=False)
        self.decoder_level3 = blocks(2, num_blocks[2], dim * 4)
        self.up3_2 = upsample(dim * 4)
        self.reduce_chan_level2 = nn.Conv2d(dim * 4, dim * 2, kernel_size=1, bias=False)
        self.decoder_level2 = blocks(1, num_blocks[1], dim * 2)
        self.up2_1 = upsample(dim * 2)
        self.decoder_level1 = blocks(0, num_blocks[0], dim * 2)
        self.refinement = blocks(0, num_refinement_blocks, dim * 2)
        self.output = nn.Conv2d(dim * 2, 3, kernel_size=3, padding=1, bias=False)

    def forward(self, inp_img: Tensor) -> Tensor:
        level1 = self.encoder_level1(self.patch_embed(inp_img))
        level2 = self.encoder_level2(self.down1_2(level1))
        level3 = self.encoder_level3(self.down2_3(level2))
        latent = self.latent(self.down3_4(level3))

        x = torch.cat([self.up4_3(latent), level3], 1)
        x = self.decoder_level3(self.reduce_chan_level3(x))
        x = torch.cat([self.up3_2(x), level2], 1)
        x = self.decoder_level2(self.reduce_chan_level2(x))
        x = torch.cat([self.up2_1(x), level1], 1)
        x = self.refinement(self.decoder_level1(x))
        return self.output(x) + inp_img


NETWORKS = (
    Entry(
        "Restormer",
        "image",
        lambda: Restormer(8, (1, 2, 2, 2), 1),
        ((1, 3, 32, 32),),
        ((1, 3, 128, 128),),
    ),
)
