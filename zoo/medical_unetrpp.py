"""UNETR++ (Shaker 2022): a hierarchical encoder and decoder of efficient paired attention (EPA).

Special for pruning: one linear layer makes queries, keys and two kinds of values; queries and keys meet along channels
(channel attention: a softmax over channels) and along places; a group norm has as many groups as the stage before has
channels; `hidden_size` is a number of the network that cuts the last stage back into a volume. The published code
brings the result of the spatial attention back by the permutation of the other one, so that its view mixes places with
channels, which nothing can cut; `ordered` writes what the paper says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry
from zoo.medical_residual import UnetResBlock

Sizes = Sequence[int]


class EPA(nn.Module):
    """Efficient paired attention: queries and keys are shared by attention over channels and over places."""

    def __init__(
        self, input_size: int, hidden_size: int, proj_size: int, num_heads: int, dropout: float, ordered: bool
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.back = (0, 2, 1, 3) if ordered else (0, 3, 1, 2)
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.temperature2 = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.qkvv = nn.Linear(hidden_size, hidden_size * 4, bias=False)
        bound = 1 / math.sqrt(proj_size)
        self.EF = nn.Parameter(torch.empty(input_size, proj_size).uniform_(-bound, bound))
        self.attn_drop = nn.Dropout(dropout)
        self.attn_drop_2 = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkvv = self.qkvv(x).reshape(b, n, 4, self.num_heads, c // self.num_heads)
        qkvv = qkvv.permute(2, 0, 3, 1, 4)
        q_shared, k_shared, v_ca, v_sa = qkvv[0], qkvv[1], qkvv[2], qkvv[3]
        q_shared = q_shared.transpose(-2, -1)
        k_shared = k_shared.transpose(-2, -1)
        v_ca = v_ca.transpose(-2, -1)
        v_sa = v_sa.transpose(-2, -1)

        k_projected, v_projected = (torch.einsum("bhdn,nk->bhdk", y, self.EF) for y in (k_shared, v_sa))
        q_shared = F.normalize(q_shared, dim=-1)
        k_shared = F.normalize(k_shared, dim=-1)

        attn_ca = (q_shared @ k_shared.transpose(-2, -1)) * self.temperature
        attn_ca = self.attn_drop(attn_ca.softmax(dim=-1))
        x_ca = (attn_ca @ v_ca).permute(0, 3, 1, 2).reshape(b, n, c)

        attn_sa = (q_shared.permute(0, 1, 3, 2) @ k_projected) * self.temperature2
        attn_sa = self.attn_drop_2(attn_sa.softmax(dim=-1))
        x_sa = (attn_sa @ v_projected.transpose(-2, -1)).permute(self.back).reshape(b, n, c)
        return x_ca + x_sa


class TransformerBlock(nn.Module):
    """EPA with a position embedding and a layer scale, then convolutions around it."""

    def __init__(self, input_size: int, hidden_size: int, proj_size: int, num_heads: int, ordered: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.gamma = nn.Parameter(1e-6 * torch.ones(hidden_size))
        self.epa_block = EPA(input_size, hidden_size, proj_size, num_heads, 0.1, ordered)
        self.conv51 = UnetResBlock(hidden_size, hidden_size, nn.BatchNorm3d)
        self.conv8 = nn.Sequential(nn.Dropout3d(0.1, False), nn.Conv3d(hidden_size, hidden_size, 1))
        self.pos_embed = nn.Parameter(torch.zeros(1, input_size, hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w, d = x.shape
        x = x.reshape(b, c, h * w * d).permute(0, 2, 1)
        x = x + self.pos_embed
        attn = x + self.gamma * self.epa_block(self.norm(x))
        attn_skip = attn.reshape(b, h, w, d, c).permute(0, 4, 1, 2, 3)
        attn = self.conv51(attn_skip)
        return attn_skip + self.conv8(attn)


class UnetrPPEncoder(nn.Module):
    """Four stages; the last one hands out tokens, the others volumes."""

    def __init__(
        self,
        in_channels: int,
        places: Sizes,
        dims: Sizes,
        proj_size: Sizes,
        depths: Sizes,
        num_heads: int,
        ordered: bool,
    ) -> None:
        super().__init__()
        self.downsample_layers = nn.ModuleList()
        self.downsample_layers.append(
            nn.Sequential(
                nn.Conv3d(in_channels, dims[0], kernel_size=4, stride=4, bias=False),
                nn.GroupNorm(in_channels, dims[0]),
            )
        )
        for i in range(3):
            self.downsample_layers.append(
                nn.Sequential(
                    nn.Conv3d(dims[i], dims[i + 1], kernel_size=2, stride=2, bias=False),
                    nn.GroupNorm(dims[i], dims[i + 1]),
                )
            )
        self.stages = nn.ModuleList(
            nn.Sequential(
                *[TransformerBlock(places[i], dims[i], proj_size[i], num_heads, ordered) for _ in range(depths[i])],
            )
            for i in range(4)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        hidden_states = []
        for i in range(4):
            x = self.downsample_layers[i](x)
            x = self.stages[i](x)
            if i == 3:
                x = x.flatten(2).permute(0, 2, 1)
            hidden_states.append(x)
        return hidden_states


class UnetrUpBlock(nn.Module):
    """Upsampled, added to the skip, then EPA blocks; a residual block at full size."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        places: int = 0,
        proj_size: int = 0,
        depth: int = 0,
        num_heads: int = 0,
        ordered: bool = False,
    ) -> None:
        super().__init__()
        self.transp_conv = nn.ConvTranspose3d(in_channels, out_channels, kernel, stride=kernel, bias=False)
        if depth:
            blocks = [TransformerBlock(places, out_channels, proj_size, num_heads, ordered) for _ in range(depth)]
            self.decoder_block = nn.ModuleList([nn.Sequential(*blocks)])
        else:
            self.decoder_block = nn.ModuleList([UnetResBlock(out_channels, out_channels)])

    def forward(self, inp: Tensor, skip: Tensor) -> Tensor:
        out = self.transp_conv(inp)
        out = out + skip
        return self.decoder_block[0](out)


class UNETRPP(nn.Module):
    """UNETR++ as trained on brain tumours, with deep supervision; ``img_size`` is the side of the cube."""

    def __init__(
        self,
        in_channels: int = 4,
        out_channels: int = 3,
        img_size: int = 128,
        feature_size: int = 16,
        num_heads: int = 4,
        proj_size: Sizes = (64, 64, 64, 32),
        depths: Sizes = (3, 3, 3, 3),
        ordered: bool = False,
    ) -> None:
        super().__init__()
        sides = [img_size // 4 // 2**i for i in range(4)]
        dims = [feature_size * 2 ** (i + 1) for i in range(4)]
        self.feat_size = (sides[3],) * 3
        self.hidden_size = dims[3]
        places = [side**3 for side in sides]
        self.unetr_pp_encoder = UnetrPPEncoder(in_channels, places, dims, proj_size, depths, num_heads, ordered)
        self.encoder1 = UnetResBlock(in_channels, feature_size)
        self.decoder5 = UnetrUpBlock(dims[3], dims[2], 2, places[2], proj_size[0], depths[2], num_heads, ordered)
        self.decoder4 = UnetrUpBlock(dims[2], dims[1], 2, places[1], proj_size[0], depths[1], num_heads, ordered)
        self.decoder3 = UnetrUpBlock(dims[1], dims[0], 2, places[0], proj_size[0], depths[0], num_heads, ordered)
        self.decoder2 = UnetrUpBlock(dims[0], feature_size, 4)
        self.out1 = nn.Conv3d(feature_size, out_channels, 1)
        self.out2 = nn.Conv3d(dims[0], out_channels, 1)
        self.out3 = nn.Conv3d(dims[1], out_channels, 1)

    def proj_feat(self, x: Tensor, hidden_size: int, feat_size: Sizes) -> Tensor:
        """Tokens as a volume."""
        x = x.view(x.size(0), feat_size[0], feat_size[1], feat_size[2], hidden_size)
        return x.permute(0, 4, 1, 2, 3).contiguous()

    def forward(self, x_in: Tensor) -> list[Tensor]:
        hidden_states = self.unetr_pp_encoder(x_in)
        conv_block = self.encoder1(x_in)
        enc1, enc2, enc3, enc4 = hidden_states
        dec4 = self.proj_feat(enc4, self.hidden_size, self.feat_size)
        dec3 = self.decoder5(dec4, enc3)
        dec2 = self.decoder4(dec3, enc2)
        dec1 = self.decoder3(dec2, enc1)
        out = self.decoder2(dec1, conv_block)
        return [self.out1(out), self.out2(dec1), self.out3(dec2)]


NETWORKS = (
    Entry(
        "UNETR++",
        "medical",
        lambda: UNETRPP(1, 3, 64, 8, proj_size=(8, 8, 8, 4), depths=(1, 1, 1, 1)),
        ((1, 1, 64, 64, 64),),
    ),
    Entry(
        "UNETR++, places in order",
        "medical",
        lambda: UNETRPP(1, 3, 64, 8, proj_size=(8, 8, 8, 4), depths=(1, 1, 1, 1), ordered=True),
        ((1, 1, 64, 64, 64),),
    ),
)
