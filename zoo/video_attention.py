"""Video transformers: TimeSformer, ViViT, a transformer encoder behind a 3D convolutional network, Video Swin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from zoo.entry import Entry
from zoo.video_torchvision import r3d_18

Sizes = Sequence[int]


def drop_path(x: Tensor, drop_prob: float, training: bool) -> Tensor:
    """Leaves out the residual branch of some samples of a batch."""
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    random_tensor = keep_prob + torch.rand(shape, dtype=x.dtype, device=x.device)
    random_tensor.floor_()
    return x.div(keep_prob) * random_tensor


def rates(drop_path_rate: float, depth: int) -> list[float]:
    """Of stochastic depth, block by block: none in the first one, most in the last."""
    return [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]


class DropPath(nn.Module):
    """Stochastic depth as a module."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        return drop_path(x, self.drop_prob, self.training)


class Mlp(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, in_features: int, hidden_features: int, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_features, hidden_features)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_features, in_features)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        x = self.act(x)
        x = self.drop(x)
        x = self.fc2(x)
        return self.drop(x)


class Attention(nn.Module):
    """timm's attention with one linear layer for queries, keys and values."""

    def __init__(self, dim: int, num_heads: int = 8) -> None:
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.scale = head_dim**-0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=True)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(0.0)
        self.attn_drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = (attn @ v).transpose(1, 2).reshape(b, n, c)
        x = self.proj(x)
        return self.proj_drop(x)


class Block(nn.Module):
    """TimeSformer's block: attention over time, then over space, each with its own norm and residual."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float = 4.0, drop_path: float = 0.1) -> None:
        super().__init__()
        norm_layer = partial(nn.LayerNorm, eps=1e-6)
        self.norm1 = norm_layer(dim)
        self.attn = Attention(dim, num_heads)
        self.temporal_norm1 = norm_layer(dim)
        self.temporal_attn = Attention(dim, num_heads)
        self.temporal_fc = nn.Linear(dim, dim)
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = norm_layer(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor, b: int, t: int, w: int) -> Tensor:
        num_spatial_tokens = (x.size(1) - 1) // t
        h = num_spatial_tokens // w
        m = x.size(2)

        xt = x[:, 1:, :]
        xt = xt.reshape(b, h, w, t, m).reshape(b * h * w, t, m)
        res_temporal = self.drop_path(self.temporal_attn(self.temporal_norm1(xt)))
        res_temporal = res_temporal.reshape(b, h * w * t, m)
        res_temporal = self.temporal_fc(res_temporal)
        xt = x[:, 1:, :] + res_temporal

        init_cls_token = x[:, 0, :].unsqueeze(1)
        cls_token = init_cls_token.repeat(1, t, 1)
        cls_token = cls_token.reshape(b * t, m).unsqueeze(1)
        xs = xt.reshape(b, h, w, t, m).permute(0, 3, 1, 2, 4).reshape(b * t, h * w, m)
        xs = torch.cat((cls_token, xs), 1)
        res_spatial = self.drop_path(self.attn(self.norm1(xs)))

        cls_token = res_spatial[:, 0, :]
        cls_token = cls_token.reshape(b, t, m)
        cls_token = torch.mean(cls_token, 1, True)
        res_spatial = res_spatial[:, 1:, :]
        res = res_spatial.reshape(b, t, h, w, m).permute(0, 2, 3, 1, 4).reshape(b, h * w * t, m)

        x = torch.cat((init_cls_token, xt), 1) + torch.cat((cls_token, res), 1)
        return x + self.drop_path(self.mlp(self.norm2(x)))


class TimeSformer(nn.Module):
    """Divided space-time attention on patches of frames."""

    def __init__(
        self,
        img_size: int = 224,
        patch_size: int = 16,
        num_frames: int = 8,
        num_classes: int = 400,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        drop_path_rate: float = 0.1,
    ) -> None:
        super().__init__()
        num_patches = (img_size // patch_size) ** 2
        self.patch_embed = nn.Conv2d(3, embed_dim, kernel_size=patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, num_patches + 1, embed_dim))
        self.pos_drop = nn.Dropout(p=0.0)
        self.time_embed = nn.Parameter(torch.zeros(1, num_frames, embed_dim))
        self.time_drop = nn.Dropout(p=0.0)
        dpr = rates(drop_path_rate, depth)
        self.blocks = nn.ModuleList([Block(embed_dim, num_heads, drop_path=dpr[i]) for i in range(depth)])
        self.norm = nn.LayerNorm(embed_dim, eps=1e-6)
        self.head = nn.Linear(embed_dim, num_classes)

        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.constant_(m.bias, 0)
        for i, block in enumerate(self.blocks):
            if i > 0:
                nn.init.constant_(block.temporal_fc.weight, 0)
                nn.init.constant_(block.temporal_fc.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        b, c, t, h, w = x.shape
        x = x.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)
        x = self.patch_embed(x)
        w = x.size(-1)
        x = x.flatten(2).transpose(1, 2)
        cls_tokens = self.cls_token.expand(x.size(0), -1, -1)
        x = torch.cat((cls_tokens, x), dim=1)
        x = x + self.pos_embed
        x = self.pos_drop(x)

        cls_tokens = x[:b, 0, :].unsqueeze(1)
        x = x[:, 1:]
        n, m = x.size(1), x.size(2)
        x = x.reshape(b, t, n, m).permute(0, 2, 1, 3).reshape(b * n, t, m)
        x = x + self.time_embed
        x = self.time_drop(x)
        x = x.reshape(b, n * t, m)
        x = torch.cat((cls_tokens, x), dim=1)

        for blk in self.blocks:
            x = blk(x, b, t, w)
        x = self.norm(x)
        return self.head(x[:, 0])


class EncoderBlock(nn.Module):
    """torchvision's transformer block around ``nn.MultiheadAttention``."""

    def __init__(self, num_heads: int, hidden_dim: int, mlp_dim: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=0.0, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.ln_2 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.mlp = Mlp(hidden_dim, mlp_dim, drop=0.1)

    def forward(self, input: Tensor) -> Tensor:
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x)
        x = x + input

        y = self.ln_2(x)
        y = self.mlp(y)
        return x + y


class ViViT(nn.Module):
    """ViViT with a factorised encoder: tubelets, a transformer over space, then one over time."""

    def __init__(
        self,
        image_size: int = 224,
        frames: int = 32,
        tubelet: Sequence[int] = (2, 16, 16),
        num_classes: int = 400,
        hidden_dim: int = 768,
        num_heads: int = 12,
        spatial_depth: int = 12,
        temporal_depth: int = 4,
    ) -> None:
        super().__init__()
        tokens = (image_size // tubelet[1]) * (image_size // tubelet[2])
        self.to_patch_embedding = nn.Conv3d(3, hidden_dim, kernel_size=tuple(tubelet), stride=tuple(tubelet))
        self.space_token = nn.Parameter(torch.randn(1, 1, hidden_dim))
        self.pos_embedding = nn.Parameter(torch.randn(1, frames // tubelet[0], tokens + 1, hidden_dim) * 0.02)
        mlp_dim = 4 * hidden_dim
        self.space_transformer = nn.Sequential(
            *[EncoderBlock(num_heads, hidden_dim, mlp_dim) for _ in range(spatial_depth)]
        )
        self.temporal_token = nn.Parameter(torch.randn(1, 1, hidden_dim))
        self.temporal_transformer = nn.Sequential(
            *[EncoderBlock(num_heads, hidden_dim, mlp_dim) for _ in range(temporal_depth)]
        )
        self.mlp_head = nn.Sequential(nn.LayerNorm(hidden_dim), nn.Linear(hidden_dim, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.to_patch_embedding(x)
        x = x.flatten(3).permute(0, 2, 3, 1)
        b, t, _, _ = x.shape

        cls_space_tokens = self.space_token.unsqueeze(0).expand(b, t, -1, -1)
        x = torch.cat((cls_space_tokens, x), dim=2)
        x = x + self.pos_embedding
        x = x.flatten(0, 1)
        x = self.space_transformer(x)
        x = x[:, 0].view(b, t, -1)

        cls_temporal_tokens = self.temporal_token.expand(b, -1, -1)
        x = torch.cat((cls_temporal_tokens, x), dim=1)
        x = self.temporal_transformer(x)
        return self.mlp_head(x[:, 0])


class ConvTransformer(nn.Module):
    """R3D-18 without its head, and ``nn.TransformerEncoder`` over what is left of time."""

    def __init__(self, num_classes: int, width: int, num_heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.backbone = r3d_18(num_classes, width)
        dim = self.backbone.fc.in_features
        self.backbone.avgpool = nn.AdaptiveAvgPool3d((None, 1, 1))
        self.backbone.fc = nn.Identity()
        layer = nn.TransformerEncoderLayer(dim, num_heads, 2 * dim, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.backbone.stem(x)
        x = self.backbone.layer1(x)
        x = self.backbone.layer2(x)
        x = self.backbone.layer3(x)
        x = self.backbone.layer4(x)
        x = self.backbone.avgpool(x).squeeze(-1).squeeze(-1)
        x = x.transpose(1, 2)
        x = self.encoder(x)
        return self.head(x.mean(dim=1))


CLIP = ((1, 3, 16, 112, 112),)

NETWORKS = (
    Entry(
        "TimeSformer",
        "video",
        lambda: TimeSformer(img_size=16, patch_size=8, num_frames=2, num_classes=5, embed_dim=24, num_heads=3),
        ((2, 3, 2, 16, 16),),
    ),
    Entry(
        "ViViT, factorised encoder",
        "video",
        lambda: ViViT(16, 4, (2, 8, 8), 5, hidden_dim=24, num_heads=3),
        ((2, 3, 4, 16, 16),),
    ),
    Entry("R3D-18 and transformer encoder", "video", lambda: ConvTransformer(5, 8), ((2, 3, 16, 32, 32),), CLIP),
)
