"""UniFormer (Li 2022): convolutional blocks in the first two stages, attention over space and time in the last two.

Special for pruning: one residual stream per stage runs through depthwise convolutions, convolutions as perceptrons and
attention, and tokens become a volume again by `reshape(B, T, H, W, -1)` or with the width `C` that they had.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from zoo.entry import Entry
from zoo.video_attention import Attention, DropPath, Mlp, rates


class CMlp(nn.Module):
    """A perceptron of 1x1x1 convolutions."""

    def __init__(self, in_features: int, hidden_features: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv3d(in_features, hidden_features, 1)
        self.act = nn.GELU()
        self.fc2 = nn.Conv3d(hidden_features, in_features, 1)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.act(self.fc1(x)))
        return self.drop(self.fc2(x))


class CBlock(nn.Module):
    """Local relations: a depthwise convolution between two 1x1x1 takes the place of attention."""

    def __init__(self, dim: int, mlp_ratio: float, drop_path: float) -> None:
        super().__init__()
        self.pos_embed = nn.Conv3d(dim, dim, 3, padding=1, groups=dim)
        self.norm1 = nn.BatchNorm3d(dim)
        self.conv1 = nn.Conv3d(dim, dim, 1)
        self.conv2 = nn.Conv3d(dim, dim, 1)
        self.attn = nn.Conv3d(dim, dim, 5, padding=2, groups=dim)
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = nn.BatchNorm3d(dim)
        self.mlp = CMlp(dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pos_embed(x)
        x = x + self.drop_path(self.conv2(self.attn(self.conv1(self.norm1(x)))))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class SABlock(nn.Module):
    """Global relations: attention over all places of all frames."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float, drop_path: float) -> None:
        super().__init__()
        norm_layer = partial(nn.LayerNorm, eps=1e-6)
        self.pos_embed = nn.Conv3d(dim, dim, 3, padding=1, groups=dim)
        self.norm1 = norm_layer(dim)
        self.attn = Attention(dim, num_heads)
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = norm_layer(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pos_embed(x)
        b, c, t, h, w = x.shape
        x = x.flatten(2).transpose(1, 2)
        x = x + self.drop_path(self.attn(self.norm1(x)))
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x.transpose(1, 2).reshape(b, c, t, h, w)


class SplitSABlock(SABlock):
    """Attention over frames first, then over the places of a frame."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float, drop_path: float) -> None:
        super().__init__(dim, num_heads, mlp_ratio, drop_path)
        self.t_norm = nn.LayerNorm(dim, eps=1e-6)
        self.t_attn = Attention(dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pos_embed(x)
        b, c, t, h, w = x.shape
        attn = x.view(b, c, t, h * w).permute(0, 3, 2, 1).contiguous()
        attn = attn.view(b * h * w, t, c)
        attn = attn + self.drop_path(self.t_attn(self.t_norm(attn)))
        attn = attn.view(b, h * w, t, c).permute(0, 2, 1, 3).contiguous()
        attn = attn.view(b * t, h * w, c)
        residual = x.view(b, c, t, h * w).permute(0, 2, 3, 1).contiguous()
        residual = residual.view(b * t, h * w, c)
        attn = residual + self.drop_path(self.attn(self.norm1(attn)))
        attn = attn.view(b, t * h * w, c)
        out = attn + self.drop_path(self.mlp(self.norm2(attn)))
        return out.transpose(1, 2).reshape(b, c, t, h, w)


class PatchEmbed(nn.Module):
    """Patches by a strided convolution, normed as tokens; the first one takes every other frame as well."""

    def __init__(self, in_chans: int, embed_dim: int, patch_size: int, first: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        kernel, stride, padding = (3, 2, 1) if first else (1, 1, 0)
        self.proj = nn.Conv3d(
            in_chans, embed_dim, (kernel, patch_size, patch_size), (stride, patch_size, patch_size), (padding, 0, 0)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.proj(x)
        b, _, t, h, w = x.shape
        x = x.flatten(2).transpose(1, 2)
        x = self.norm(x)
        return x.reshape(b, t, h, w, -1).permute(0, 4, 1, 2, 3).contiguous()


class Uniformer(nn.Module):
    """Four stages and a classifier; ``split`` divides attention into time and space."""

    def __init__(
        self,
        depth: Sequence[int] = (3, 4, 8, 3),
        embed_dim: Sequence[int] = (64, 128, 320, 512),
        head_dim: int = 64,
        num_classes: int = 400,
        mlp_ratio: float = 4.0,
        drop_path_rate: float = 0.1,
        split: bool = False,
    ) -> None:
        super().__init__()
        dpr = iter(rates(drop_path_rate, sum(depth)))
        channels = (3, *embed_dim)
        attention = SplitSABlock if split else SABlock
        for i in range(4):
            embed = PatchEmbed(channels[i], channels[i + 1], 4 if i == 0 else 2, first=i == 0)
            self.add_module(f"patch_embed{i + 1}", embed)
            dim, heads = embed_dim[i], embed_dim[i] // head_dim
            blocks = [
                CBlock(dim, mlp_ratio, next(dpr)) if i < 2 else attention(dim, heads, mlp_ratio, next(dpr))
                for _ in range(depth[i])
            ]
            self.add_module(f"blocks{i + 1}", nn.ModuleList(blocks))
        self.pos_drop = nn.Dropout(0.0)
        self.norm = nn.BatchNorm3d(embed_dim[-1])
        self.head = nn.Linear(embed_dim[-1], num_classes)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.constant_(m.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, 5):
            x = getattr(self, f"patch_embed{i}")(x)
            if i == 1:
                x = self.pos_drop(x)
            for blk in getattr(self, f"blocks{i}"):
                x = blk(x)
        x = self.norm(x)
        x = x.flatten(2).mean(-1)
        return self.head(x)


SMALL = {"depth": (2, 2, 2, 2), "embed_dim": (16, 32, 48, 64), "head_dim": 16, "num_classes": 5}
CLIP = ((2, 3, 4, 64, 64),)

NETWORKS = (
    Entry("UniFormer", "video", lambda: Uniformer(**SMALL), CLIP),
    Entry("UniFormer, split attention", "video", lambda: Uniformer(**SMALL, split=True), CLIP),
)
