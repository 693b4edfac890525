"""SegFormer3D (Perera 2024): a pyramid of attention with shortened keys, and a decoder of linear layers.

Special for pruning: `attention_head_dim` is a number in every block, convolutions that shorten the keys stand between
two token views, depthwise convolutions inside the perceptrons do so too, fused attention takes its scale from the width
of a head, and the side of the cube is computed from the count of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry

Sizes = Sequence[int]


def cube_root(n: int) -> int:
    """The side of a cube of so many tokens."""
    return round(math.pow(n, 1 / 3))


class PatchEmbedding(nn.Module):
    """Overlapping patches as normed tokens."""

    def __init__(self, in_channel: int, embed_dim: int, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.patch_embeddings = nn.Conv3d(in_channel, embed_dim, kernel_size, stride=stride, padding=padding)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch_embeddings(x)
        patches = patches.flatten(2).transpose(1, 2)
        return self.norm(patches)


class SelfAttention(nn.Module):
    """Queries of all tokens, keys and values of fewer: a strided convolution shortens them."""

    def __init__(self, embed_dim: int, num_heads: int, sr_ratio: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.embed_dim = embed_dim
        self.attention_head_dim = embed_dim // num_heads
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key_value = nn.Linear(embed_dim, 2 * embed_dim)
        self.attn_dropout_p = 0.0
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.proj_dropout = nn.Dropout(0.0)
        self.sr_ratio = sr_ratio
        if sr_ratio > 1:
            self.sr = nn.Conv3d(embed_dim, embed_dim, kernel_size=sr_ratio, stride=sr_ratio)
            self.sr_norm = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q = self.query(x).reshape(b, n, self.num_heads, self.attention_head_dim).permute(0, 2, 1, 3).contiguous()
        if self.sr_ratio > 1:
            side = cube_root(n)
            x_ = x.permute(0, 2, 1).reshape(b, c, side, side, side).contiguous()
            x_ = self.sr(x_).reshape(b, c, -1).permute(0, 2, 1).contiguous()
            x_ = self.sr_norm(x_)
        else:
            x_ = x
        kv = self.key_value(x_).reshape(b, -1, 2, self.num_heads, self.attention_head_dim).permute(2, 0, 3, 1, 4)
        k, v = kv[0].contiguous(), kv[1].contiguous()
        dropout = self.attn_dropout_p if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=dropout, is_causal=False)
        out = out.transpose(1, 2).reshape(b, n, c).contiguous()
        return self.proj_dropout(self.proj(out))


class DWConv(nn.Module):
    """A depthwise convolution with batch norm on tokens that become a cube for it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv3d(dim, dim, 3, 1, 1, bias=True, groups=dim)
        self.bn = nn.BatchNorm3d(dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        side = cube_root(n)
        x = x.transpose(1, 2).reshape(b, c, side, side, side).contiguous()
        x = self.bn(self.dwconv(x))
        return x.flatten(2).transpose(1, 2).contiguous()


class MixMlp(nn.Module):
    """Two linear layers with a depthwise convolution between them."""

    def __init__(self, in_feature: int, mlp_ratio: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_feature, mlp_ratio * in_feature)
        self.dwconv = DWConv(mlp_ratio * in_feature)
        self.fc2 = nn.Linear(mlp_ratio * in_feature, in_feature)
        self.act_fn = nn.GELU()
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.act_fn(self.dwconv(self.fc1(x))))
        return self.dropout(self.fc2(x))


class TransformerBlock(nn.Module):
    """Attention and perceptron, each behind a norm and with a residual."""

    def __init__(self, embed_dim: int, mlp_ratio: int, num_heads: int, sr_ratio: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attention = SelfAttention(embed_dim, num_heads, sr_ratio)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = MixMlp(embed_dim, mlp_ratio)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MixVisionTransformer(nn.Module):
    """Four stages; each hands out a volume."""

    def __init__(
        self, in_channels: int, sr_ratios: Sizes, embed_dims: Sizes, mlp_ratios: Sizes, num_heads: Sizes, depths: Sizes
    ) -> None:
        super().__init__()
        channels = (in_channels, *embed_dims)
        for i in range(4):
            kernel, stride, padding = (7, 4, 3) if i == 0 else (3, 2, 1)
            embed = PatchEmbedding(channels[i], channels[i + 1], kernel, stride, padding)
            blocks = [
                TransformerBlock(embed_dims[i], mlp_ratios[i], num_heads[i], sr_ratios[i]) for _ in range(depths[i])
            ]
            self.add_module(f"embed_{i + 1}", embed)
            self.add_module(f"tf_block{i + 1}", nn.ModuleList(blocks))
            self.add_module(f"norm{i + 1}", nn.LayerNorm(embed_dims[i]))

    def forward(self, x: Tensor) -> list[Tensor]:
        out = []
        for i in range(1, 5):
            x = getattr(self, f"embed_{i}")(x)
            b, n, _ = x.shape
            side = cube_root(n)
            for blk in getattr(self, f"tf_block{i}"):
                x = blk(x)
            x = getattr(self, f"norm{i}")(x)
            x = x.reshape(b, side, side, side, -1).permute(0, 4, 1, 2, 3).contiguous()
            out.append(x)
        return out


class LinearEmbedding(nn.Module):
    """A volume as tokens of the decoder's width."""

    def __init__(self, input_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.proj = nn.Linear(input_dim, embed_dim)
        self.bn = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2).contiguous()
        return self.bn(self.proj(x))


class SegFormerDecoderHead(nn.Module):
    """Every stage at the same width and size, concatenated, fused and upsampled."""

    def __init__(self, input_feature_dims: Sizes, embedding_dim: int, num_classes: int) -> None:
        super().__init__()
        self.linear_c4 = LinearEmbedding(input_feature_dims[3], embedding_dim)
        self.linear_c3 = LinearEmbedding(input_feature_dims[2], embedding_dim)
        self.linear_c2 = LinearEmbedding(input_feature_dims[1], embedding_dim)
        self.linear_c1 = LinearEmbedding(input_feature_dims[0], embedding_dim)
        self.linear_fuse = nn.Sequential(
            nn.Conv3d(4 * embedding_dim, embedding_dim, kernel_size=1, bias=False),
            nn.BatchNorm3d(embedding_dim),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(0.0)
        self.linear_pred = nn.Conv3d(embedding_dim, num_classes, kernel_size=1)
        self.upsample_volume = nn.Upsample(scale_factor=4.0, mode="trilinear", align_corners=False)

    def forward(self, c1: Tensor, c2: Tensor, c3: Tensor, c4: Tensor) -> Tensor:
        n, _, _, _, _ = c4.shape
        volumes = []
        for linear, c in (
            (self.linear_c4, c4),
            (self.linear_c3, c3),
            (self.linear_c2, c2),
            (self.linear_c1, c1),
        ):
            volume = linear(c).permute(0, 2, 1).reshape(n, -1, c.shape[2], c.shape[3], c.shape[4]).contiguous()
            if c is not c1:
                volume = F.interpolate(volume, size=c1.size()[2:], mode="trilinear", align_corners=False)
            volumes.append(volume)
        x = self.dropout(self.linear_fuse(torch.cat(volumes, dim=1)))
        return self.upsample_volume(self.linear_pred(x))


class SegFormer3D(nn.Module):
    """Encoder and decoder."""

    def __init__(
        self,
        in_channels: int = 4,
        sr_ratios: Sizes = (4, 2, 1, 1),
        embed_dims: Sizes = (32, 64, 160, 256),
        mlp_ratios: Sizes = (4, 4, 4, 4),
        num_heads: Sizes = (1, 2, 5, 8),
        depths: Sizes = (2, 2, 2, 2),
        decoder_head_embedding_dim: int = 256,
        num_classes: int = 3,
    ) -> None:
        super().__init__()
        self.segformer_encoder = MixVisionTransformer(in_channels, sr_ratios, embed_dims, mlp_ratios, num_heads, depths)
        self.segformer_decoder = SegFormerDecoderHead(embed_dims, decoder_head_embedding_dim, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Conv3d):
                fan_out = math.prod(m.kernel_size) * m.out_channels // m.groups
                m.weight.data.normal_(0, math.sqrt(2.0 / fan_out))

    def forward(self, x: Tensor) -> Tensor:
        c1, c2, c3, c4 = self.segformer_encoder(x)
        return self.segformer_decoder(c1, c2, c3, c4)


NETWORKS = (
    Entry(
        "SegFormer3D",
        "medical",
        lambda: SegFormer3D(1, embed_dims=(8, 16, 40, 64), decoder_head_embedding_dim=32),
        ((1, 1, 64, 64, 64),),
    ),
)
