"""Video transformers that are trained by masking, as they are fine-tuned: VideoMAE's ViT and Hiera.

Special for pruning: VideoMAE's queries and values have biases of their own that are concatenated around zeros, and its
positions are a table of sines, a tensor that is neither a parameter nor a buffer. Hiera pools queries by a maximum over
a view, widens the stream at every stage, and cuts heads by `head_dim` and the result by `dim_out`, two numbers of the
block; fused attention takes its scale from the width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry
from zoo.video_attention import DropPath, Mlp, rates

Sizes = Sequence[int]


class Attention(nn.Module):
    """BEiT's attention: one weight for queries, keys and values, biases for queries and values alone."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        all_head_dim = head_dim * self.num_heads
        self.scale = head_dim**-0.5
        self.qkv = nn.Linear(dim, all_head_dim * 3, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(all_head_dim))
        self.v_bias = nn.Parameter(torch.zeros(all_head_dim))
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(all_head_dim, dim)
        self.proj_drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        qkv_bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias, requires_grad=False), self.v_bias))
        qkv = F.linear(input=x, weight=self.qkv.weight, bias=qkv_bias)
        qkv = qkv.reshape(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        q = q * self.scale
        attn = q @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = (attn @ v).transpose(1, 2).reshape(b, n, -1)
        return self.proj_drop(self.proj(x))


class Block(nn.Module):
    """Attention and perceptron behind norms, with stochastic depth."""

    def __init__(self, dim: int, num_heads: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads)
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, dim * 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


def sinusoids(positions: int, dim: int) -> Tensor:
    """Sines in even channels, cosines in odd ones."""
    angles = torch.arange(positions)[:, None] / torch.pow(10000, 2 * (torch.arange(dim) // 2) / dim)
    table = torch.where(torch.arange(dim) % 2 == 0, angles.sin(), angles.cos())
    return table.unsqueeze(0)


class VideoMAE(nn.Module):
    """The encoder of VideoMAE (Tong 2022) with its head for fine-tuning: tubelets, blocks, a mean over tokens."""

    def __init__(
        self,
        img_size: int = 224,
        patch_size: int = 16,
        num_classes: int = 400,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        all_frames: int = 16,
        tubelet_size: int = 2,
        drop_path_rate: float = 0.1,
    ) -> None:
        super().__init__()
        patch = (tubelet_size, patch_size, patch_size)
        num_patches = (img_size // patch_size) ** 2 * (all_frames // tubelet_size)
        self.patch_embed = nn.Conv3d(3, embed_dim, kernel_size=patch, stride=patch)
        self.pos_embed = sinusoids(num_patches, embed_dim)
        self.pos_drop = nn.Dropout(p=0.0)
        dpr = rates(drop_path_rate, depth)
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads, dpr[i]) for i in range(depth))
        self.fc_norm = nn.LayerNorm(embed_dim, eps=1e-6)
        self.fc_dropout = nn.Dropout(p=0.0)
        self.head = nn.Linear(embed_dim, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        b, _, _ = x.size()
        x = x + self.pos_embed.expand(b, -1, -1).type_as(x).to(x.device).clone().detach()
        x = self.pos_drop(x)
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.fc_dropout(self.fc_norm(x.mean(1))))


class MaskUnitAttention(nn.Module):
    """Attention inside mask units or over everything, with pooled queries where the size changes."""

    def __init__(self, dim: int, dim_out: int, heads: int, q_stride: int, window_size: int, mask_unit: bool) -> None:
        super().__init__()
        self.dim_out = dim_out
        self.heads = heads
        self.q_stride = q_stride
        self.head_dim = dim_out // heads
        self.qkv = nn.Linear(dim, 3 * dim_out)
        self.proj = nn.Linear(dim_out, dim_out)
        self.window_size = window_size
        self.use_mask_unit_attn = mask_unit

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        windows = (n // (self.q_stride * self.window_size)) if self.use_mask_unit_attn else 1
        qkv = self.qkv(x).reshape(b, -1, windows, 3, self.heads, self.head_dim).permute(3, 0, 4, 2, 1, 5)
        q, k, v = qkv[0], qkv[1], qkv[2]
        if self.q_stride > 1:
            q = q.view(b, self.heads, windows, self.q_stride, -1, self.head_dim).max(dim=3).values
        x = F.scaled_dot_product_attention(q, k, v)
        x = x.transpose(1, 3).reshape(b, -1, self.dim_out)
        return self.proj(x)


class HieraBlock(nn.Module):
    """Attention with pooled queries beside a pooled projection of the stream, then a perceptron."""

    def __init__(
        self, dim: int, dim_out: int, heads: int, drop_path: float, q_stride: int, window_size: int, mask_unit: bool
    ) -> None:
        super().__init__()
        norm_layer = partial(nn.LayerNorm, eps=1e-6)
        self.dim = dim
        self.dim_out = dim_out
        self.norm1 = norm_layer(dim)
        self.attn = MaskUnitAttention(dim, dim_out, heads, q_stride, window_size, mask_unit)
        self.norm2 = norm_layer(dim_out)
        self.mlp = Mlp(dim_out, dim_out * 4)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.widens = dim != dim_out
        if self.widens:
            self.proj = nn.Linear(dim, dim_out)

    def forward(self, x: Tensor) -> Tensor:
        x_norm = self.norm1(x)
        if self.widens:
            x = self.proj(x_norm)
            x = x.view(x.shape[0], self.attn.q_stride, -1, x.shape[-1]).max(dim=1).values
        x = x + self.drop_path(self.attn(x_norm))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class Unroll(nn.Module):
    """Orders tokens so that those of a pooling window lie a constant stride apart."""

    def __init__(self, size: Sizes, schedule: Sequence[Sizes]) -> None:
        super().__init__()
        self.size = list(size)
        self.schedule = schedule

    def forward(self, x: Tensor) -> Tensor:
        b, _, c = x.shape
        cur_size = self.size
        x = x.view(b, *cur_size, c)
        for strides in self.schedule:
            cur_size = [i // s for i, s in zip(cur_size, strides, strict=True)]
            new_shape = [b, *[n for pair in zip(cur_size, strides, strict=True) for n in pair], c]
            x = x.view(new_shape)
            last = len(new_shape) - 1
            x = x.permute([0, *range(2, last, 2), *range(1, last, 2), last])
            x = x.flatten(0, len(strides))
            b *= math.prod(strides)
        return x.reshape(-1, math.prod(self.size), c)


class Hiera(nn.Module):
    """Hiera (Ryali 2023) for clips: plain blocks that pool three times, with separate embeddings of place and time."""

    def __init__(
        self,
        input_size: Sizes = (16, 224, 224),
        embed_dim: int = 96,
        num_heads: int = 1,
        num_classes: int = 400,
        stages: Sizes = (2, 3, 16, 3),
        q_stride: Sizes = (1, 2, 2),
        mask_unit_size: Sizes = (1, 8, 8),
        drop_path_rate: float = 0.1,
    ) -> None:
        super().__init__()
        tokens = [i // s for i, s in zip(input_size, (2, 4, 4), strict=True)]
        self.tokens_spatial_shape = tokens
        self.stage_ends = [sum(stages[:i]) - 1 for i in range(1, len(stages) + 1)]
        self.patch_embed = nn.Conv3d(3, embed_dim, (3, 7, 7), stride=(2, 4, 4), padding=(1, 3, 3))
        self.pos_embed_spatial = nn.Parameter(torch.zeros(1, tokens[1] * tokens[2], embed_dim))
        self.pos_embed_temporal = nn.Parameter(torch.zeros(1, tokens[0], embed_dim))
        self.unroll = Unroll(tokens, [q_stride] * (len(stages) - 1))
        flat_mu_size, flat_q_stride = math.prod(mask_unit_size), math.prod(q_stride)
        dpr = rates(drop_path_rate, sum(stages))
        stage = 0
        self.blocks = nn.ModuleList()
        for i in range(sum(stages)):
            dim_out, mask_unit, pools = embed_dim, stage < 2, i - 1 in self.stage_ends
            if pools:
                dim_out, num_heads, stage = embed_dim * 2, num_heads * 2, stage + 1
                flat_mu_size //= flat_q_stride
            stride = flat_q_stride if pools else 1
            self.blocks.append(HieraBlock(embed_dim, dim_out, num_heads, dpr[i], stride, flat_mu_size, mask_unit))
            embed_dim = dim_out
        self.norm = nn.LayerNorm(embed_dim, eps=1e-6)
        self.head = nn.Linear(embed_dim, num_classes)
        for parameter in (self.pos_embed_spatial, self.pos_embed_temporal):
            nn.init.trunc_normal_(parameter, std=0.02)
        for m in self.modules():
            if isinstance(m, nn.Linear | nn.Conv3d):
                nn.init.trunc_normal_(m.weight, std=0.02)

    def get_pos_embed(self) -> Tensor:
        """Place and time, one for every token."""
        t, h, w = self.tokens_spatial_shape
        temporal = torch.repeat_interleave(self.pos_embed_temporal, h * w, dim=1)
        return self.pos_embed_spatial.repeat(1, t, 1) + temporal

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        x = x.reshape(x.shape[0], x.shape[1], -1).transpose(2, 1)
        x = x + self.get_pos_embed()
        x = self.unroll(x)
        for blk in self.blocks:
            x = blk(x)
        x = self.norm(x.mean(dim=1))
        x = self.head(x)
        return x if self.training else x.softmax(dim=-1)


NETWORKS = (
    Entry(
        "VideoMAE, ViT",
        "video",
        lambda: VideoMAE(16, 8, 5, embed_dim=24, depth=6, num_heads=3, all_frames=4),
        ((2, 3, 4, 16, 16),),
    ),
    Entry(
        "Hiera",
        "video",
        lambda: Hiera((4, 64, 64), 16, 2, 5, stages=(1, 2, 2, 1)),
        ((2, 3, 4, 64, 64),),
    ),
)
