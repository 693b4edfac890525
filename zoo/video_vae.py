"""A causal video autoencoder with feature caches, after Wan 2.1's (2025): one frame first, then chunks of four.

Special for pruning: every causal convolution reads the last frames of the chunk before from a list that the network
holds as an attribute, with None or a string in it before the first chunk; channels become two frames by a view; norms
are `F.normalize` over channels times a number; upsampling runs in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry

CACHE_T = 2
Cache = list[Any]


class CausalConv3d(nn.Conv3d):
    """A convolution that looks back only; what is cached takes the place of padding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        t, h, w = self.padding
        self._padding = (w, w, h, h, 2 * t, 0)
        self.padding = (0, 0, 0)

    def forward(self, x: Tensor, cache_x: Tensor | None = None) -> Tensor:
        padding = list(self._padding)
        if cache_x is not None and self._padding[4] > 0:
            cache_x = cache_x.to(x.device)
            x = torch.cat([cache_x, x], dim=2)
            padding[4] -= cache_x.shape[2]
        x = F.pad(x, padding)
        return super().forward(x)


def cached(conv: CausalConv3d, x: Tensor, feat_cache: Cache, feat_idx: list[int]) -> Tensor:
    """The convolution after the frames of its cache, which then holds the last two frames."""
    idx = feat_idx[0]
    cache_x = x[:, :, -CACHE_T:, :, :].clone()
    if cache_x.shape[2] < 2 and feat_cache[idx] is not None:
        cache_x = torch.cat([feat_cache[idx][:, :, -1, :, :].unsqueeze(2).to(cache_x.device), cache_x], dim=2)
    x = conv(x, feat_cache[idx])
    feat_cache[idx] = cache_x
    feat_idx[0] += 1
    return x


class RMSNorm(nn.Module):
    """Channels of length one, times the root of their count and a learnt scale."""

    def __init__(self, dim: int, images: bool = True) -> None:
        super().__init__()
        self.scale = dim**0.5
        self.gamma = nn.Parameter(torch.ones((dim, 1, 1) if images else (dim, 1, 1, 1)))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) * self.scale * self.gamma


class Upsample(nn.Upsample):
    """Nearest neighbours in float32, whatever comes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float()).type_as(x)


class Resample(nn.Module):
    """Changes the size frame by frame, and the count of frames where the mode says 3d."""

    def __init__(self, dim: int, mode: str) -> None:
        super().__init__()
        self.mode = mode
        if mode.startswith("up"):
            up = Upsample(scale_factor=(2.0, 2.0), mode="nearest-exact")
            self.resample = nn.Sequential(up, nn.Conv2d(dim, dim // 2, 3, padding=1))
        else:
            self.resample = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(dim, dim, 3, stride=(2, 2)))
        if mode == "upsample3d":
            self.time_conv = CausalConv3d(dim, dim * 2, (3, 1, 1), padding=(1, 0, 0))
        elif mode == "downsample3d":
            self.time_conv = CausalConv3d(dim, dim, (3, 1, 1), stride=(2, 1, 1), padding=(0, 0, 0))

    def _more_frames(self, x: Tensor, feat_cache: Cache, feat_idx: list[int]) -> Tensor:
        b, c, t, h, w = x.size()
        idx = feat_idx[0]
        feat_idx[0] += 1
        if feat_cache[idx] is None:
            feat_cache[idx] = "Rep"
            return x
        first = isinstance(feat_cache[idx], str)
        cache_x = x[:, :, -CACHE_T:, :, :].clone()
        if cache_x.shape[2] < 2:
            before = torch.zeros_like(cache_x) if first else feat_cache[idx][:, :, -1, :, :].unsqueeze(2)
            cache_x = torch.cat([before.to(cache_x.device), cache_x], dim=2)
        x = self.time_conv(x) if first else self.time_conv(x, feat_cache[idx])
        feat_cache[idx] = cache_x
        x = x.reshape(b, 2, c, t, h, w)
        x = torch.stack((x[:, 0, :, :, :, :], x[:, 1, :, :, :, :]), 3)
        return x.reshape(b, c, t * 2, h, w)

    def _fewer_frames(self, x: Tensor, feat_cache: Cache, feat_idx: list[int]) -> Tensor:
        idx = feat_idx[0]
        feat_idx[0] += 1
        if feat_cache[idx] is None:
            feat_cache[idx] = x.clone()
            return x
        cache_x = x[:, :, -1:, :, :].clone()
        x = self.time_conv(torch.cat([feat_cache[idx][:, :, -1:, :, :], x], 2))
        feat_cache[idx] = cache_x
        return x

    def forward(self, x: Tensor, feat_cache: Cache, feat_idx: list[int]) -> Tensor:
        if self.mode == "upsample3d":
            x = self._more_frames(x, feat_cache, feat_idx)
        b, c, t, h, w = x.size()
        x = x.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)
        x = self.resample(x)
        _, c, h, w = x.size()
        x = x.reshape(-1, t, c, h, w).permute(0, 2, 1, 3, 4)
        return self._fewer_frames(x, feat_cache, feat_idx) if self.mode == "downsample3d" else x


class ResidualBlock(nn.Module):
    """Two causal convolutions behind norms; the shortcut is projected where the width changes."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            RMSNorm(in_dim, images=False),
            nn.SiLU(),
            CausalConv3d(in_dim, out_dim, 3, padding=1),
            RMSNorm(out_dim, images=False),
            nn.SiLU(),
            nn.Dropout(0.0),
            CausalConv3d(out_dim, out_dim, 3, padding=1),
        )
        self.shortcut = CausalConv3d(in_dim, out_dim, 1) if in_dim != out_dim else nn.Identity()

    def forward(self, x: Tensor, feat_cache: Cache, feat_idx: list[int]) -> Tensor:
        h = self.shortcut(x)
        for layer in self.residual:
            x = cached(layer, x, feat_cache, feat_idx) if isinstance(layer, CausalConv3d) else layer(x)
        return x + h


class AttentionBlock(nn.Module):
    """Attention inside a frame with a single head."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = RMSNorm(dim)
        self.to_qkv = nn.Conv2d(dim, dim * 3, 1)
        self.proj = nn.Conv2d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        b, c, t, h, w = x.size()
        x = x.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)
        x = self.norm(x)
        q, k, v = self.to_qkv(x).reshape(b * t, 1, c * 3, -1).permute(0, 1, 3, 2).contiguous().chunk(3, dim=-1)
        x = F.scaled_dot_product_attention(q, k, v)
        x = x.squeeze(1).permute(0, 2, 1).reshape(b * t, c, h, w)
        x = self.proj(x)
        return x.reshape(b, t, c, h, w).permute(0, 2, 1, 3, 4) + identity


class Coder(nn.Module):
    """What encoder and decoder share: a first convolution, blocks in a row, and a head."""

    def __init__(self, in_dim: int, dims: Sequence[int], blocks: Sequence[nn.Module], out_dim: int) -> None:
        super().__init__()
        self.conv1 = CausalConv3d(in_dim, dims[0], 3, padding=1)
        self.blocks = nn.Sequential(*blocks)
        norm = RMSNorm(dims[-1], images=False)
        self.head = nn.Sequential(norm, nn.SiLU(), CausalConv3d(dims[-1], out_dim, 3, padding=1))

    def forward(self, x: Tensor, feat_cache: Cache, feat_idx: list[int]) -> Tensor:
        x = cached(self.conv1, x, feat_cache, feat_idx)
        for layer in self.blocks:
            x = layer(x) if isinstance(layer, AttentionBlock) else layer(x, feat_cache, feat_idx)
        for layer in self.head:
            x = cached(layer, x, feat_cache, feat_idx) if isinstance(layer, CausalConv3d) else layer(x)
        return x


def middle(dim: int) -> list[nn.Module]:
    """Attention between two residual blocks at the smallest size."""
    return [ResidualBlock(dim, dim), AttentionBlock(dim), ResidualBlock(dim, dim)]


def encoder(dim: int, z_dim: int, dim_mult: Sequence[int], num_res_blocks: int, temporal: Sequence[bool]) -> Coder:
    """From frames to latents; ``temporal`` says which steps halve the count of frames."""
    dims, blocks = [dim * u for u in (1, *dim_mult)], []
    for i, (in_dim, out_dim) in enumerate(pairwise(dims)):
        blocks += [ResidualBlock(in_dim if j == 0 else out_dim, out_dim) for j in range(num_res_blocks)]
        if i != len(dim_mult) - 1:
            blocks.append(Resample(out_dim, "downsample3d" if temporal[i] else "downsample2d"))
    return Coder(3, dims, [*blocks, *middle(dims[-1])], z_dim)


def decoder(dim: int, z_dim: int, dim_mult: Sequence[int], num_res_blocks: int, temporal: Sequence[bool]) -> Coder:
    """From latents to frames; ``temporal`` says which steps double the count of frames."""
    dims, blocks = [dim * u for u in (dim_mult[-1], *dim_mult[::-1])], []
    for i, (in_dim, out_dim) in enumerate(pairwise(dims)):
        first = in_dim // 2 if i > 0 else in_dim
        blocks += [ResidualBlock(first if j == 0 else out_dim, out_dim) for j in range(num_res_blocks + 1)]
        if i != len(dim_mult) - 1:
            blocks.append(Resample(out_dim, "upsample3d" if temporal[i] else "upsample2d"))
    return Coder(z_dim, dims, [*middle(dims[0]), *blocks], 3)


class WanVAE(nn.Module):
    """Encoder and decoder chunk by chunk; returns the reconstruction and the moments of the latents."""

    def __init__(
        self,
        dim: int = 96,
        z_dim: int = 16,
        dim_mult: Sequence[int] = (1, 2, 4, 4),
        num_res_blocks: int = 2,
        temporal: Sequence[bool] = (False, True, True),
    ) -> None:
        super().__init__()
        self.encoder = encoder(dim, z_dim * 2, dim_mult, num_res_blocks, temporal)
        self.conv1 = CausalConv3d(z_dim * 2, z_dim * 2, 1)
        self.conv2 = CausalConv3d(z_dim, z_dim, 1)
        self.decoder = decoder(dim, z_dim, dim_mult, num_res_blocks, temporal[::-1])

    def clear_cache(self) -> None:
        """A place for each causal convolution."""
        self._feat_map: Cache = [None] * sum(isinstance(m, CausalConv3d) for m in self.decoder.modules())
        self._enc_feat_map: Cache = [None] * sum(isinstance(m, CausalConv3d) for m in self.encoder.modules())

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The moments of the latents: of the first frame, then of every four."""
        self.clear_cache()
        for i in range(1 + (x.shape[2] - 1) // 4):
            self._enc_conv_idx = [0]
            if i == 0:
                out = self.encoder(x[:, :, :1, :, :], self._enc_feat_map, self._enc_conv_idx)
            else:
                chunk = x[:, :, 1 + 4 * (i - 1) : 1 + 4 * i, :, :]
                out_ = self.encoder(chunk, self._enc_feat_map, self._enc_conv_idx)
                out = torch.cat([out, out_], 2)
        mu, log_var = self.conv1(out).chunk(2, dim=1)
        self.clear_cache()
        return mu, log_var

    def decode(self, z: Tensor) -> Tensor:
        """Frames, latent by latent."""
        self.clear_cache()
        x = self.conv2(z)
        for i in range(z.shape[2]):
            self._conv_idx = [0]
            if i == 0:
                out = self.decoder(x[:, :, i : i + 1, :, :], self._feat_map, self._conv_idx)
            else:
                out_ = self.decoder(x[:, :, i : i + 1, :, :], self._feat_map, self._conv_idx)
                out = torch.cat([out, out_], 2)
        self.clear_cache()
        return out

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, log_var = self.encode(x)
        std = torch.exp(0.5 * log_var)
        z = torch.randn_like(std) * std + mu
        return self.decode(z), mu, log_var


NETWORKS = (Entry("Wan VAE, causal", "video", lambda: WanVAE(8, 4, num_res_blocks=1), ((1, 3, 5, 32, 32),)),)
