"""Video Swin after torchvision: attention in shifted windows, whose weights are used by function call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry

Size = tuple[int, int, int]


def missing(size: Sequence[int], window: Sequence[int]) -> list[int]:
    """Padding up to whole windows."""
    return [(window[i] - size[i] % window[i]) % window[i] for i in range(3)]


def attention_mask(x: Tensor, size: Size, window: Sequence[int], shift: Sequence[int]) -> Tensor:
    """Forbids attention between regions that the cyclic shift brought together."""
    mask = x.new_zeros(*size)
    count = 0
    slices = [((0, -window[i]), (-window[i], -shift[i]), (-shift[i], None)) for i in range(3)]
    for d in slices[0]:
        for h in slices[1]:
            for w in slices[2]:
                mask[d[0] : d[1], h[0] : h[1], w[0] : w[1]] = count
                count += 1
    t, h, w = (size[i] // window[i] for i in range(3))
    mask = mask.view(t, window[0], h, window[1], w, window[2])
    mask = mask.permute(0, 2, 4, 1, 3, 5).reshape(t * h * w, window[0] * window[1] * window[2])
    mask = mask.unsqueeze(1) - mask.unsqueeze(2)
    return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)


class ShiftedWindowAttention3d(nn.Module):
    """Multi-head attention inside windows with a learned bias by relative position."""

    def __init__(self, dim: int, window_size: list[int], shift_size: list[int], num_heads: int) -> None:
        super().__init__()
        self.window_size = window_size
        self.shift_size = shift_size
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3, bias=True)
        self.proj = nn.Linear(dim, dim, bias=True)
        wd, wh, ww = window_size
        positions = (2 * wd - 1) * (2 * wh - 1) * (2 * ww - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(positions, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        axes = [torch.arange(size) for size in window_size]
        coords = torch.flatten(torch.stack(torch.meshgrid(*axes, indexing="ij")), 1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        relative[:, :, 0] += wd - 1
        relative[:, :, 1] += wh - 1
        relative[:, :, 2] += ww - 1
        relative[:, :, 0] *= (2 * wh - 1) * (2 * ww - 1)
        relative[:, :, 1] *= 2 * ww - 1
        self.register_buffer("relative_position_index", relative.sum(-1))

    def bias(self, window: Sequence[int]) -> Tensor:
        """The bias of every pair of positions of a window, by head."""
        volume = window[0] * window[1] * window[2]
        bias = self.relative_position_bias_table[self.relative_position_index[:volume, :volume].flatten()]
        return bias.view(volume, volume, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def forward(self, input: Tensor) -> Tensor:
        b, t, h, w, c = input.shape
        window, shift = self.window_size.copy(), self.shift_size.copy()
        for i, size in enumerate((t, h, w)):
            if size <= window[i]:
                window[i], shift[i] = size, 0
        bias = self.bias(window)

        pad = missing((t, h, w), window)
        x = F.pad(input, (0, 0, 0, pad[2], 0, pad[1], 0, pad[0]))
        _, tp, hp, wp, _ = x.shape
        if sum(shift) > 0:
            x = torch.roll(x, shifts=(-shift[0], -shift[1], -shift[2]), dims=(1, 2, 3))

        nt, nh, nw = tp // window[0], hp // window[1], wp // window[2]
        num_windows = nt * nh * nw
        x = x.view(b, nt, window[0], nh, window[1], nw, window[2], c)
        x = x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(b * num_windows, window[0] * window[1] * window[2], c)

        qkv = F.linear(x, self.qkv.weight, self.qkv.bias)
        qkv = qkv.reshape(x.size(0), x.size(1), 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        q = q * (c // self.num_heads) ** -0.5
        attn = q.matmul(k.transpose(-2, -1))
        attn = attn + bias
        if sum(shift) > 0:
            mask = attention_mask(x, (tp, hp, wp), window, shift)
            attn = attn.view(x.size(0) // num_windows, num_windows, self.num_heads, x.size(1), x.size(1))
            attn = attn + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, x.size(1), x.size(1))
        attn = F.softmax(attn, dim=-1)
        x = attn.matmul(v).transpose(1, 2).reshape(x.size(0), x.size(1), c)
        x = F.linear(x, self.proj.weight, self.proj.bias)

        x = x.view(b, nt, nh, nw, window[0], window[1], window[2], c)
        x = x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(b, tp, hp, wp, c)
        if sum(shift) > 0:
            x = torch.roll(x, shifts=(shift[0], shift[1], shift[2]), dims=(1, 2, 3))
        return x[:, :t, :h, :w, :].contiguous()


class StochasticDepth(nn.Module):
    """Leaves out a branch for some samples of a batch."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return input
        survival_rate = 1.0 - self.p
        size = [input.shape[0]] + [1] * (input.ndim - 1)
        noise = torch.empty(size, dtype=input.dtype, device=input.device)
        noise = noise.bernoulli_(survival_rate)
        if survival_rate > 0.0:
            noise.div_(survival_rate)
        return input * noise


class SwinTransformerBlock(nn.Module):
    """Window attention and MLP, each behind a norm and beside a shortcut."""

    def __init__(self, dim: int, num_heads: int, window_size: list[int], shift_size: list[int], drop: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-5)
        self.attn = ShiftedWindowAttention3d(dim, window_size, shift_size, num_heads)
        self.stochastic_depth = StochasticDepth(drop)
        self.norm2 = nn.LayerNorm(dim, eps=1e-5)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * dim, dim), nn.Dropout(0.0)
        )
        for m in self.mlp.modules():
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                nn.init.normal_(m.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Lays four neighbours into the channels and halves them."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(4 * dim, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        h, w, _ = x.shape[-3:]
        x = F.pad(x, (0, 0, 0, w % 2, 0, h % 2))
        x0 = x[..., 0::2, 0::2, :]
        x1 = x[..., 1::2, 0::2, :]
        x2 = x[..., 0::2, 1::2, :]
        x3 = x[..., 1::2, 1::2, :]
        x = torch.cat([x0, x1, x2, x3], -1)
        x = self.norm(x)
        return self.reduction(x)


class PatchEmbed3d(nn.Module):
    """Tubelets as tokens, channels last."""

    def __init__(self, patch_size: Size, embed_dim: int) -> None:
        super().__init__()
        self.tuple_patch_size = patch_size
        self.proj = nn.Conv3d(3, embed_dim, kernel_size=patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(embed_dim, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        _, _, t, h, w = x.size()
        pad = missing((t, h, w), self.tuple_patch_size)
        x = F.pad(x, (0, pad[2], 0, pad[1], 0, pad[0]))
        x = self.proj(x)
        x = x.permute(0, 2, 3, 4, 1)
        return self.norm(x)


class SwinTransformer3d(nn.Module):
    """Video Swin; the defaults are those of the tiny network."""

    def __init__(
        self,
        num_classes: int = 400,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: Size = (8, 7, 7),
        patch_size: Size = (2, 4, 4),
        stochastic_depth_prob: float = 0.1,
    ) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed3d(patch_size, embed_dim)
        self.pos_drop = nn.Dropout(p=0.0)
        layers: list[nn.Module] = []
        block = 0
        for stage, depth in enumerate(depths):
            dim = embed_dim * 2**stage
            blocks = []
            for index in range(depth):
                drop = stochastic_depth_prob * block / (sum(depths) - 1)
                shift = [0 if index % 2 == 0 else size // 2 for size in window_size]
                blocks.append(SwinTransformerBlock(dim, num_heads[stage], list(window_size), shift, drop))
                block += 1
            layers.append(nn.Sequential(*blocks))
            if stage < len(depths) - 1:
                layers.append(PatchMerging(dim))
        self.features = nn.Sequential(*layers)
        num_features = embed_dim * 2 ** (len(depths) - 1)
        self.norm = nn.LayerNorm(num_features, eps=1e-5)
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        self.head = nn.Linear(num_features, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        x = self.pos_drop(x)
        x = self.features(x)
        x = self.norm(x)
        x = x.permute(0, 4, 1, 2, 3)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.head(x)


NETWORKS = (
    Entry(
        "Video Swin-T",
        "video",
        lambda: SwinTransformer3d(5, embed_dim=24, window_size=(2, 3, 3)),
        ((2, 3, 4, 32, 32),),
        ((1, 3, 16, 112, 112),),
    ),
)
