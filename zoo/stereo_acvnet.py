"""ACVNet: GwcNet's parts, with a concatenation volume that attention weighs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.entry import Entry
from zoo.stereo_groupwise import (
    FeatureExtraction,
    Hourglass,
    build_concat_volume,
    build_gwc_volume,
    classifier,
    convbn_3d,
    init_weights,
    predict,
)


class AttentionBlock(nn.Module):
    """ACVNet's self-attention inside blocks of the volume, padded to whole blocks."""

    def __init__(self, channels_3d: int, num_heads: int = 8, block: tuple[int, int, int] = (4, 4, 4)) -> None:
        super().__init__()
        self.block = block
        self.dim_3d = channels_3d
        self.num_heads = num_heads
        head_dim_3d = self.dim_3d // num_heads
        self.scale_3d = head_dim_3d**-0.5
        self.qkv_3d = nn.Linear(self.dim_3d, self.dim_3d * 3, bias=True)
        self.final1x1 = nn.Conv3d(self.dim_3d, self.dim_3d, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, d0, h0, w0 = x.shape
        bd, bh, bw = self.block
        pad_l = pad_t = 0
        pad_r = (bw - w0 % bw) % bw
        pad_b = (bh - h0 % bh) % bh
        x = F.pad(x, (pad_l, pad_r, pad_t, pad_b))
        b, c, d0, h1, w1 = x.shape
        d, h, w = d0 // bd, h1 // bh, w1 // bw

        x = x.view(b, c, d, bd, h, bh, w, bw).permute(0, 2, 4, 6, 3, 5, 7, 1)
        qkv_3d = self.qkv_3d(x).reshape(b, d * h * w, bd * bh * bw, 3, self.num_heads, c // self.num_heads)
        qkv_3d = qkv_3d.permute(3, 0, 1, 4, 2, 5)
        q_3d, k_3d, v_3d = qkv_3d[0], qkv_3d[1], qkv_3d[2]
        attn = (q_3d @ k_3d.transpose(-2, -1)) * self.scale_3d
        if pad_r > 0 or pad_b > 0:
            mask = torch.zeros((1, h1, w1), device=x.device)
            mask[:, -pad_b:, :].fill_(1)
            mask[:, :, -pad_r:].fill_(1)
            mask = mask.reshape(1, h, bh, w, bw).transpose(2, 3).reshape(1, h * w, bh * bw)
            attn_mask = mask.unsqueeze(2) - mask.unsqueeze(3)
            attn_mask = attn_mask.masked_fill(attn_mask != 0, -1000.0).masked_fill(attn_mask == 0, 0.0)
            attn = attn + attn_mask.repeat(1, d, bd, bd).unsqueeze(2)
        attn = torch.softmax(attn, dim=-1)

        x = (attn @ v_3d).view(b, d, h, w, self.num_heads, bd, bh, bw, -1).permute(0, 4, 8, 1, 5, 2, 6, 3, 7)
        x = x.reshape(b, c, d0, h1, w1)
        if pad_r > 0 or pad_b > 0:
            x = x[:, :, :, :h0, :w0]
        return self.final1x1(x)


class AttentionHourglass(Hourglass):
    """The hourglass with attention at its bottom."""

    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels)
        self.attention_block = AttentionBlock(in_channels * 4, num_heads=16, block=(4, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        conv1 = self.conv1(x)
        conv2 = self.conv2(conv1)

        conv3 = self.conv3(conv2)
        conv4 = self.conv4(conv3)
        conv4 = self.attention_block(conv4)

        conv5 = F.relu(self.conv5(conv4) + self.redir2(conv2), inplace=True)
        return F.relu(self.conv6(conv5) + self.redir1(x), inplace=True)


class ACVNet(nn.Module):
    """ACVNet: the correlation volume makes weights for the concatenation volume."""

    def __init__(self, maxdisp: int = 192, width: int = 32, depth_width: int = 32) -> None:
        super().__init__()
        c, half = depth_width, depth_width // 2
        self.maxdisp = maxdisp
        self.num_groups = 40
        self.concat_channels = depth_width
        self.feature_extraction = FeatureExtraction(width, self.concat_channels)
        self.patch_l1 = nn.Conv3d(8, 8, (1, 3, 3), dilation=1, groups=8, padding=(0, 1, 1), bias=False)
        self.patch_l2 = nn.Conv3d(16, 16, (1, 3, 3), dilation=2, groups=16, padding=(0, 2, 2), bias=False)
        self.patch_l3 = nn.Conv3d(16, 16, (1, 3, 3), dilation=3, groups=16, padding=(0, 3, 3), bias=False)
        self.dres1_att = nn.Sequential(
            convbn_3d(40, half, 3, 1, 1), nn.ReLU(inplace=True), convbn_3d(half, half, 3, 1, 1)
        )
        self.dres2_att = AttentionHourglass(half)
        self.classif_att = classifier(half)
        self.dres0 = nn.Sequential(
            convbn_3d(self.concat_channels * 2, c, 3, 1, 1),
            nn.ReLU(inplace=True),
            convbn_3d(c, c, 3, 1, 1),
            nn.ReLU(inplace=True),
        )
        self.dres1 = nn.Sequential(convbn_3d(c, c, 3, 1, 1), nn.ReLU(inplace=True), convbn_3d(c, c, 3, 1, 1))
        self.dres2 = AttentionHourglass(c)
        self.dres3 = AttentionHourglass(c)
        self.classif0 = classifier(c)
        self.classif1 = classifier(c)
        self.classif2 = classifier(c)
        init_weights(self)

    def forward(self, left: Tensor, right: Tensor) -> list[Tensor]:
        features_left = self.feature_extraction(left)
        features_right = self.feature_extraction(right)

        disparities = self.maxdisp // 4
        gwc_volume = build_gwc_volume(
            features_left["gwc_feature"], features_right["gwc_feature"], disparities, self.num_groups
        )
        patch_l1 = self.patch_l1(gwc_volume[:, :8])
        patch_l2 = self.patch_l2(gwc_volume[:, 8:24])
        patch_l3 = self.patch_l3(gwc_volume[:, 24:40])
        patch_volume = torch.cat((patch_l1, patch_l2, patch_l3), dim=1)
        concat_volume = build_concat_volume(
            features_left["concat_feature"], features_right["concat_feature"], disparities, cropped=False
        )
        cost_attention = self.dres1_att(patch_volume)
        cost_attention = self.dres2_att(cost_attention)
        att_weights = self.classif_att(cost_attention)
        ac_volume = F.softmax(att_weights, dim=2) * concat_volume

        cost0 = self.dres0(ac_volume)
        cost0 = self.dres1(cost0) + cost0
        out1 = self.dres2(cost0)
        out2 = self.dres3(out1)

        if self.training:
            costs = [att_weights, self.classif0(cost0), self.classif1(out1), self.classif2(out2)]
            return [predict(cost, self.maxdisp, left) for cost in costs]
        return [predict(self.classif2(out2), self.maxdisp, left)]


PAIR = ((1, 3, 256, 512), (1, 3, 256, 512))

NETWORKS = (
    Entry("ACVNet", "stereo", lambda: ACVNet(64, width=8, depth_width=16), ((1, 3, 32, 80), (1, 3, 32, 80)), PAIR),
)
