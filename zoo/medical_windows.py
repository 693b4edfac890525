"""Attention inside the windows of a volume with channels last, as nnFormer has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

Sizes = Sequence[int]


def window_partition(x: Tensor, window: int) -> Tensor:
    """Cubes of a volume with channels last, as many samples."""
    b, s, h, w, c = x.shape
    x = x.view(b, s // window, window, h // window, window, w // window, window, c)
    return x.permute(0, 1, 3, 5, 2, 4, 6, 7).contiguous().view(-1, window, window, window, c)


def window_reverse(windows: Tensor, window: int, s: int, h: int, w: int) -> Tensor:
    """The volume that cubes were cut from."""
    b = int(windows.shape[0] / (s * h * w / window / window / window))
    x = windows.view(b, s // window, h // window, w // window, window, window, window, -1)
    return x.permute(0, 1, 4, 2, 5, 3, 6, 7).contiguous().view(b, s, h, w, -1)


def shifted_mask(size: Sizes, window: int, device: torch.device) -> Tensor:
    """Minus 100 between two places of a window that a cyclic shift has brought together."""
    shift = window // 2
    padded = [int(np.ceil(n / window)) * window for n in size]
    img_mask = torch.zeros((1, *padded, 1), device=device)
    slices = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    cnt = 0
    for s in slices:
        for h in slices:
            for w in slices:
                img_mask[:, s, h, w, :] = cnt
                cnt += 1
    mask_windows = window_partition(img_mask, window).view(-1, window * window * window)
    attn_mask = mask_windows.unsqueeze(1) - mask_windows.unsqueeze(2)
    return attn_mask.masked_fill(attn_mask != 0, -100.0).masked_fill(attn_mask == 0, 0.0)


class WindowAttention(nn.Module):
    """Attention inside windows with a relative position bias; ``cross`` takes its queries as they come."""

    def __init__(self, dim: int, window_size: Sizes, num_heads: int, *, cross: bool = False) -> None:
        super().__init__()
        self.window_size = window_size
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        places = (2 * window_size[0] - 1) * (2 * window_size[1] - 1) * (2 * window_size[2] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(places, num_heads))
        axes = [torch.arange(size) for size in window_size]
        coords = torch.flatten(torch.stack(torch.meshgrid(axes, indexing="ij")), 1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        for axis in range(3):
            relative[:, :, axis] += window_size[axis] - 1
        relative[:, :, 0] *= 3 * window_size[1] - 1
        relative[:, :, 1] *= 2 * window_size[1] - 1
        self.register_buffer("relative_position_index", relative.sum(-1))
        if cross:
            self.kv = nn.Linear(dim, dim * 2)
        else:
            self.qkv = nn.Linear(dim, dim * 3)
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(0.0)
        self.softmax = nn.Softmax(dim=-1)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x: Tensor, x_up: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        b, n, c = x.shape
        if x_up is None:
            qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4).contiguous()
            q, k, v = qkv[0], qkv[1], qkv[2]
        else:
            kv = self.kv(x).reshape(b, n, 2, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4).contiguous()
            q = x_up.reshape(b, n, self.num_heads, c // self.num_heads).permute(0, 2, 1, 3).contiguous()
            k, v = kv[0], kv[1]
        q = q * self.scale
        attn = q @ k.transpose(-2, -1).contiguous()
        tokens = self.window_size[0] * self.window_size[1] * self.window_size[2]
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(tokens, tokens, -1)
        attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            attn = attn.view(b // windows, windows, self.num_heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, n, n)
        attn = self.attn_drop(self.softmax(attn))
        x = (attn @ v).transpose(1, 2).reshape(b, n, c).contiguous()
        return self.proj_drop(self.proj(x))
