"""nnFormer (Zhou 2021): windowed attention in an encoder and a decoder, with convolutions to embed and resize.

Special for pruning: widths (`c`, `2 * c`, `c // 2`, `self.out_dim`) and sizes of windows are written into views, the
first block of a decoder stage takes its queries from the stream without a projection, and a custom autograd function
stands behind the transposed convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry
from zoo.medical_windows import Sizes, WindowAttention, shifted_mask, window_partition, window_reverse
from zoo.video_attention import DropPath, Mlp, rates


class ContiguousGrad(torch.autograd.Function):
    """Nothing forward; backward, a gradient that lies in memory in order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Tensor:
        return grad_out.contiguous()


class SwinTransformerBlock(nn.Module):
    """Windowed attention and a perceptron; ``cross`` reads keys and values from the encoder, queries from below."""

    def __init__(
        self,
        dim: int,
        resolution: Sizes,
        num_heads: int,
        window: int,
        shift: int,
        drop_path: float,
        cross: bool = False,
    ) -> None:
        super().__init__()
        self.input_resolution = resolution
        self.window_size, self.shift_size = window, shift
        if min(resolution) <= window:
            self.window_size, self.shift_size = min(resolution), 0
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, (self.window_size,) * 3, num_heads, cross=cross)
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * 4.0))

    def _windows(self, x: Tensor, pads: Sizes) -> Tensor:
        """Norm, padding to whole windows, cyclic shift and cubes."""
        b, _, c = x.shape
        x = self.norm1(x).view(b, *self.input_resolution, c)
        x = F.pad(x, (0, 0, 0, pads[2], 0, pads[1], 0, pads[0]))
        if self.shift_size > 0:
            x = torch.roll(x, shifts=(-self.shift_size,) * 3, dims=(1, 2, 3))
        return window_partition(x, self.window_size).view(-1, self.window_size**3, c)

    def forward(self, x: Tensor, mask: Tensor, skip: Tensor | None = None, x_up: Tensor | None = None) -> Tensor:
        b, length, c = x.shape
        s, h, w = self.input_resolution
        assert length == s * h * w, "input feature has wrong size"
        shortcut, window = x, self.window_size
        pads = [(window - n % window) % window for n in (s, h, w)]
        sp, hp, wp = s + pads[0], h + pads[1], w + pads[2]
        attn_mask = mask if self.shift_size > 0 else None
        if x_up is None or skip is None:
            attn_windows = self.attn(self._windows(x, pads), mask=attn_mask)
        else:
            attn_windows = self.attn(self._windows(skip, pads), self._windows(x_up, pads), mask=attn_mask)
        attn_windows = attn_windows.view(-1, window, window, window, c)
        x = window_reverse(attn_windows, window, sp, hp, wp)
        if self.shift_size > 0:
            x = torch.roll(x, shifts=(self.shift_size,) * 3, dims=(1, 2, 3))
        if any(pads):
            x = x[:, :s, :h, :w, :].contiguous()
        x = x.view(b, s * h * w, c)
        x = shortcut + self.drop_path(x)
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Half the size and twice the width by a strided convolution between two token views."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.reduction = nn.Conv3d(dim, dim * 2, kernel_size=3, stride=2, padding=1)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, s: int, h: int, w: int) -> Tensor:
        b, length, c = x.shape
        assert length == h * w * s, "input feature has wrong size"
        x = self.norm(F.gelu(x.view(b, s, h, w, c)))
        x = self.reduction(x.permute(0, 4, 1, 2, 3).contiguous())
        return x.permute(0, 2, 3, 4, 1).contiguous().view(b, -1, 2 * c)


class PatchExpanding(nn.Module):
    """Twice the size and half the width by a transposed convolution between two token views."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.ConvTranspose3d(dim, dim // 2, 2, 2)

    def forward(self, x: Tensor, s: int, h: int, w: int) -> Tensor:
        b, length, c = x.shape
        assert length == h * w * s, "input feature has wrong size"
        x = self.norm(x.view(b, s, h, w, c)).permute(0, 4, 1, 2, 3).contiguous()
        x = ContiguousGrad.apply(self.up(x))
        return x.permute(0, 2, 3, 4, 1).contiguous().view(b, -1, c // 2)


class BasicLayer(nn.Module):
    """A stage of the encoder."""

    def __init__(
        self,
        dim: int,
        resolution: Sizes,
        depth: int,
        num_heads: int,
        window: int,
        drop_path: Sequence[float],
        last: bool,
    ) -> None:
        super().__init__()
        self.window_size = window
        self.blocks = nn.ModuleList(
            SwinTransformerBlock(dim, resolution, num_heads, window, 0 if i % 2 == 0 else window // 2, drop_path[i])
            for i in range(depth)
        )
        self.downsample = None if last else PatchMerging(dim)

    def forward(self, x: Tensor, s: int, h: int, w: int) -> tuple[Tensor, Tensor]:
        attn_mask = shifted_mask((s, h, w), self.window_size, x.device)
        for blk in self.blocks:
            x = blk(x, attn_mask)
        return x, x if self.downsample is None else self.downsample(x, s, h, w)


class BasicLayerUp(nn.Module):
    """A stage of the decoder: upsampled, added to the skip, and attended across before plain blocks."""

    def __init__(
        self, dim: int, resolution: Sizes, depth: int, num_heads: int, window: int, drop_path: Sequence[float]
    ) -> None:
        super().__init__()
        self.window_size = window
        self.blocks = nn.ModuleList(
            SwinTransformerBlock(
                dim, resolution, num_heads, window, 0 if i == 0 else window // 2, drop_path[i], cross=i == 0
            )
            for i in range(depth)
        )
        self.upsample = PatchExpanding(2 * dim)

    def forward(self, x: Tensor, skip: Tensor, s: int, h: int, w: int) -> Tensor:
        x_up = self.upsample(x, s, h, w)
        x = x_up + skip
        attn_mask = shifted_mask((2 * s, 2 * h, 2 * w), self.window_size, x.device)
        x = self.blocks[0](x, attn_mask, skip=skip, x_up=x_up)
        for blk in self.blocks[1:]:
            x = blk(x, attn_mask)
        return x


class Project(nn.Module):
    """Two convolutions with GELU and a layer norm over channels, by way of tokens and back."""

    def __init__(self, in_dim: int, out_dim: int, stride: Sizes, last: bool) -> None:
        super().__init__()
        self.out_dim = out_dim
        self.conv1 = nn.Conv3d(in_dim, out_dim, kernel_size=3, stride=tuple(stride), padding=1)
        self.conv2 = nn.Conv3d(out_dim, out_dim, kernel_size=3, stride=1, padding=1)
        self.activate = nn.GELU()
        self.norm1 = nn.LayerNorm(out_dim)
        self.norm2 = None if last else nn.LayerNorm(out_dim)

    def _normed(self, x: Tensor, norm: nn.Module) -> Tensor:
        ws, wh, ww = x.size(2), x.size(3), x.size(4)
        x = norm(x.flatten(2).transpose(1, 2).contiguous())
        return x.transpose(1, 2).contiguous().view(-1, self.out_dim, ws, wh, ww)

    def forward(self, x: Tensor) -> Tensor:
        x = self._normed(self.activate(self.conv1(x)), self.norm1)
        x = self.conv2(x)
        return x if self.norm2 is None else self._normed(self.activate(x), self.norm2)


class Encoder(nn.Module):
    """Patches by convolutions, then stages of windowed attention; every stage hands out a normed volume."""

    def __init__(
        self, crop: Sizes, patch: Sizes, in_chans: int, dim: int, depths: Sizes, num_heads: Sizes, window_size: Sizes
    ) -> None:
        super().__init__()
        strides = [p // 2 for p in patch]
        self.proj1 = Project(in_chans, dim // 2, strides, False)
        self.proj2 = Project(dim // 2, dim, [p // q for p, q in zip(patch, strides, strict=True)], True)
        self.norm = nn.LayerNorm(dim)
        self.num_features = [dim * 2**i for i in range(len(depths))]
        dpr = rates(0.2, sum(depths))
        self.layers = nn.ModuleList()
        for i, width in enumerate(self.num_features):
            resolution = [c // p // 2**i for c, p in zip(crop, patch, strict=True)]
            drops = dpr[sum(depths[:i]) : sum(depths[: i + 1])]
            last = i == len(depths) - 1
            self.layers.append(BasicLayer(width, resolution, depths[i], num_heads[i], window_size[i], drops, last))
            self.add_module(f"norm{i}", nn.LayerNorm(width))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.proj2(self.proj1(x))
        s, h, w = x.size(2), x.size(3), x.size(4)
        x = self.norm(x.flatten(2).transpose(1, 2).contiguous())
        down = []
        for i, layer in enumerate(self.layers):
            x_out, x = layer(x, s, h, w)
            x_out = getattr(self, f"norm{i}")(x_out)
            down.append(x_out.view(-1, s, h, w, self.num_features[i]).permute(0, 4, 1, 2, 3).contiguous())
            s, h, w = (s + 1) // 2, (h + 1) // 2, (w + 1) // 2
        return down


class NNFormer(nn.Module):
    """The whole network with deep supervision: a segmentation at every size of the decoder."""

    def __init__(
        self,
        crop_size: Sizes = (64, 128, 128),
        embedding_dim: int = 192,
        input_channels: int = 1,
        num_classes: int = 14,
        depths: Sizes = (2, 2, 2, 2),
        num_heads: Sizes = (6, 12, 24, 48),
        patch_size: Sizes = (2, 4, 4),
        window_size: Sizes = (4, 4, 8, 4),
    ) -> None:
        super().__init__()
        self.model_down = Encoder(crop_size, patch_size, input_channels, embedding_dim, depths, num_heads, window_size)
        count = len(depths) - 1
        self.num_features = [embedding_dim * 2**i for i in range(count)]
        dpr = rates(0.2, sum(depths[:count]))
        self.decoder = nn.ModuleList()
        for i, width in enumerate(self.num_features):
            resolution = [c // p // 2**i for c, p in zip(crop_size, patch_size, strict=True)]
            drops = dpr[sum(depths[:i]) : sum(depths[: i + 1])]
            self.decoder.append(BasicLayerUp(width, resolution, depths[i], num_heads[i], window_size[i], drops))
        self.final = nn.ModuleList(
            nn.ConvTranspose3d(width, num_classes, tuple(patch_size), tuple(patch_size)) for width in self.num_features
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        skips = self.model_down(x)
        neck = skips[-1]
        s, h, w = neck.size(2), neck.size(3), neck.size(4)
        x = neck.flatten(2).transpose(1, 2).contiguous()
        skips = [skip.flatten(2).transpose(1, 2).contiguous() for skip in skips]
        seg_outputs = []
        for i in reversed(range(len(self.decoder))):
            x = self.decoder[i](x, skips[i], s, h, w)
            s, h, w = s * 2, h * 2, w * 2
            out = x.view(-1, s, h, w, self.num_features[i]).permute(0, 4, 1, 2, 3).contiguous()
            seg_outputs.append(self.final[i](out))
        return seg_outputs[::-1]


NETWORKS = (
    Entry(
        "nnFormer",
        "medical",
        lambda: NNFormer((16, 32, 32), 16, 1, 3, depths=(2, 2, 2), num_heads=(2, 4, 8), window_size=(4, 4, 2)),
        ((2, 1, 16, 32, 32),),
    ),
)
