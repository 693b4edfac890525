"""Topologies: the blocks that published networks are made of: gates, cost volumes, shuffles, attention, tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.topology import Collection, Net, conv, image, several, tensor, volume

BLOCKS = Collection()


@BLOCKS.add(volume(), prunable="stem main squeeze excite", kept="head", together=("main excite",))
def squeeze_and_excitation() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.main(F.relu(m.stem(x))))
        gate = m.excite(F.relu(m.squeeze(F.adaptive_avg_pool3d(x, 1)))).sigmoid()
        return m.head(x * gate)

    return Net(body, stem=conv(2, 6), main=conv(6, 6), squeeze=conv(6, 3, 1), excite=conv(3, 6, 1), head=conv(6, 2))


@BLOCKS.add(volume(), prunable="stem squeeze excite", kept="head", together=("stem excite",))
def squeeze_and_excitation_linear() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        b, c = x.shape[:2]
        gate = torch.sigmoid(m.excite(F.relu(m.squeeze(F.adaptive_avg_pool3d(x, 1).view(b, c)))))
        return m.head(x * gate.view(b, c, 1, 1, 1).expand_as(x))

    return Net(body, stem=conv(2, 8), squeeze=nn.Linear(8, 4), excite=nn.Linear(4, 8), head=conv(8, 2))


@BLOCKS.add(volume(), prunable="stem gate skip w_g w_x dec", kept="head psi", together=("w_g w_x",))
def attention_gate() -> nn.Module:
    """Attention U-Net: two projections are added, one channel comes out and is broadcast over the skip."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        gate, skip = F.relu(m.gate(x)), F.relu(m.skip(x))
        attention = torch.sigmoid(m.psi(F.relu(m.w_g(gate) + m.w_x(skip))))
        return m.head(F.relu(m.dec(torch.cat([skip * attention, gate], 1))))

    return Net(
        body,
        stem=conv(2, 4),
        gate=conv(4, 6),
        skip=conv(4, 6),
        w_g=conv(6, 4, 1),
        w_x=conv(6, 4, 1),
        psi=conv(4, 1, 1),
        dec=conv(12, 6),
        head=conv(6, 2),
    )


@BLOCKS.add(several(volume(), lambda: torch.ones(2, 3)), prunable="stem film b", kept="head")
def feature_wise_modulation() -> nn.Module:
    """FiLM: a vector gives scale and shift of every channel."""

    def body(m: Net, x: Tensor, context: Tensor) -> Tensor:
        scale, shift = m.film(context)[:, :, None, None, None].chunk(2, dim=1)
        return m.head(F.relu(m.b(F.relu(m.stem(x) * (1 + scale) + shift))))

    return Net(body, stem=conv(2, 6), film=nn.Linear(3, 12), b=conv(6, 6), head=conv(6, 2))


@BLOCKS.add(volume(), prunable="expand dw project stem", kept="head", together=("stem project", "expand dw"))
def inverted_residual() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.bn_stem(m.stem(x))
        y = F.relu6(m.bn_expand(m.expand(x)))
        y = F.relu6(m.bn_dw(m.dw(y)))
        return m.head(x + m.bn_project(m.project(y)))

    return Net(
        body,
        stem=conv(2, 4, bias=False),
        bn_stem=nn.BatchNorm3d(4),
        expand=conv(4, 8, 1, bias=False),
        bn_expand=nn.BatchNorm3d(8),
        dw=conv(8, 8, groups=8, bias=False),
        bn_dw=nn.BatchNorm3d(8),
        project=conv(8, 4, 1, bias=False),
        bn_project=nn.BatchNorm3d(4),
        head=conv(4, 2),
    )


def features(m: Net, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """What the shared feature layers see in both views."""
    return m.f(F.relu(m.stem(left))), m.f(F.relu(m.stem(right)))


def regressed(m: Net, volume: Tensor) -> Tensor:
    """Two 3D layers, then the expected disparity."""
    cost = m.classify(F.relu(m.a(volume))).squeeze(1)
    return (cost.softmax(1) * torch.arange(cost.shape[1], device=cost.device)[None, :, None, None]).sum(1)


@BLOCKS.add(several(image(3), image(3)), prunable="stem f a", kept="classify")
def cost_volume_by_concatenation() -> nn.Module:
    """PSMNet: features of both views are written into a volume of zeros, disparity by disparity."""

    def body(m: Net, left: Tensor, right: Tensor) -> Tensor:
        left, right = features(m, left, right)
        b, c, h, w = left.shape
        volume = torch.zeros(b, 2 * c, 3, h, w, device=left.device, dtype=left.dtype)
        for shift in range(3):
            if shift == 0:
                volume[:, :c, shift] = left
                volume[:, c:, shift] = right
            else:
                volume[:, :c, shift, :, shift:] = left[:, :, :, shift:]
                volume[:, c:, shift, :, shift:] = right[:, :, :, :-shift]
        return regressed(m, volume.contiguous())

    return Net(body, stem=conv(3, 6, dims=2), f=conv(6, 6, dims=2), a=conv(12, 6), classify=conv(6, 1))


@BLOCKS.add(several(image(3), image(3)), prunable="stem f a", kept="classify")
def cost_volume_with_new_zeros_and_size() -> nn.Module:
    def body(m: Net, left: Tensor, right: Tensor) -> Tensor:
        left, right = features(m, left, right)
        volume = left.new_zeros(left.size(0), left.size(1) * 2, 2, left.size(2), left.size(3))
        for shift in range(2):
            volume[:, : left.size(1), shift, :, shift:] = left[..., shift:]
            volume[:, left.size(1) :, shift, :, shift:] = right[..., : right.size(3) - shift]
        return regressed(m, volume)

    return Net(body, stem=conv(3, 4, dims=2), f=conv(4, 6, dims=2), a=conv(12, 6), classify=conv(6, 1))


@BLOCKS.add(several(image(3), image(3)), prunable="stem f a", kept="classify")
def cost_volume_by_difference() -> nn.Module:
    def body(m: Net, left: Tensor, right: Tensor) -> Tensor:
        left, right = features(m, left, right)
        shifted = [F.pad(left[..., d:] - right[..., : right.shape[-1] - d], (d, 0)) for d in range(3)]
        return regressed(m, torch.stack(shifted, 2))

    return Net(body, stem=conv(3, 6, dims=2), f=conv(6, 6, dims=2), a=conv(6, 6), classify=conv(6, 1))


@BLOCKS.add(several(image(3), image(3)), prunable="stem a", kept="classify", masked=False)
def cost_volume_by_group_correlation() -> nn.Module:
    """GwcNet: the mean product of the features in each of two groups of channels."""

    def body(m: Net, left: Tensor, right: Tensor) -> Tensor:
        left, right = features(m, left, right)
        b, c, h, w = left.shape
        volume = left.new_zeros(b, 2, 3, h, w)
        for d in range(3):
            product = left[..., d:] * right[..., : w - d]
            volume[:, :, d, :, d:] = product.view(b, 2, c // 2, h, w - d).mean(2)
        return regressed(m, volume)

    return Net(body, stem=conv(3, 6, dims=2), f=conv(6, 8, dims=2), a=conv(2, 6), classify=conv(6, 1))


@BLOCKS.add(several(image(3), image(3)), prunable="stem a", kept="classify", silenced=("f",))
def cost_volume_by_full_correlation() -> nn.Module:
    def body(m: Net, left: Tensor, right: Tensor) -> Tensor:
        left, right = features(m, left, right)
        rows = [(left * right.roll(d, dims=-1)).sum(1, keepdim=True) for d in range(3)]
        return regressed(m, torch.stack(rows, 2))

    return Net(body, stem=conv(3, 6, dims=2), f=conv(6, 8, dims=2), a=conv(1, 6), classify=conv(6, 1))


@BLOCKS.add(image(), prunable="stem a b", kept="head")
def channel_shuffle() -> nn.Module:
    """ShuffleNet: a grouped layer, then its groups are interleaved."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(F.relu(m.stem(x))))
        b, c, h, w = x.shape
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return m.head(F.relu(m.b(x)))

    return Net(
        body,
        stem=conv(2, 8, dims=2),
        a=conv(8, 8, dims=2, groups=2),
        b=conv(8, 6, dims=2),
        head=conv(6, 2, dims=2),
    )


@BLOCKS.add(image(), prunable="b", kept="head")
def channel_shuffle_operator() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(m.shuffle(F.relu(m.stem(x))))))

    return Net(
        body, stem=conv(2, 8, dims=2), shuffle=nn.ChannelShuffle(2), b=conv(8, 6, dims=2), head=conv(6, 2, dims=2)
    )


@BLOCKS.add(image(2, 6), prunable="stem keep dw", kept="head", together=("keep dw",))
def shuffle_unit() -> nn.Module:
    """ShuffleNetV2: half of the channels pass, the other half is worked on, both are shuffled together."""

    def body(m: Net, x: Tensor) -> Tensor:
        passing, worked = F.relu(m.stem(x)).chunk(2, 1)
        x = torch.cat([passing, F.relu(m.project(m.dw(F.relu(m.keep(worked)))))], 1)
        b, c, h, w = x.shape
        return m.head(x.reshape(b, 2, c // 2, h, w).transpose(1, 2).flatten(1, 2))

    return Net(
        body,
        stem=conv(2, 8, dims=2),
        keep=conv(4, 6, 1, dims=2),
        dw=conv(6, 6, dims=2, groups=6),
        project=conv(6, 4, 1, dims=2),
        head=conv(8, 2, dims=2),
    )


@BLOCKS.add(image(2, 4), prunable="a b", kept="head")
def pixel_shuffle() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.pixel_shuffle(m.a(x), 2)
        return m.head(F.pixel_unshuffle(F.relu(m.b(F.relu(x))), 2))

    return Net(body, a=conv(2, 12, dims=2), b=conv(3, 4, dims=2), head=conv(16, 2, dims=2))


@BLOCKS.add(volume(2, 3), prunable="a b", kept="head")
def voxel_shuffle() -> nn.Module:
    """Pixel shuffle in 3D, by reshaping, as MONAI writes it."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = m.a(x)
        b, c, d, h, w = x.shape
        x = x.reshape(b, c // 8, 2, 2, 2, d, h, w).permute(0, 1, 5, 2, 6, 3, 7, 4)
        return m.head(F.relu(m.b(x.reshape(b, c // 8, 2 * d, 2 * h, 2 * w))))

    return Net(body, a=conv(2, 24), b=conv(3, 6), head=conv(6, 2, 1))


@BLOCKS.add(volume(2, 4), prunable="a b", kept="head")
def space_to_depth() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x))
        parts = [x[:, :, i::2, j::2, k::2] for i in (0, 1) for j in (0, 1) for k in (0, 1)]
        return m.head(F.relu(m.b(torch.cat(parts, 1))))

    return Net(body, a=conv(2, 6), b=conv(48, 6), head=conv(6, 2, 1))


@BLOCKS.add(volume(), prunable="stem", kept="spatial head", masked=False)
def spatial_attention() -> nn.Module:
    """CBAM's second half: mean and maximum over the channels give one map."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.b(F.relu(m.stem(x))))
        summary = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return m.head(x * torch.sigmoid(m.spatial(summary)))

    return Net(body, stem=conv(2, 6), b=conv(6, 6), spatial=conv(2, 1), head=conv(6, 2))


@BLOCKS.add(volume(), prunable="a b", kept="stem head")
def efficient_channel_attention() -> nn.Module:
    """ECA convolves along the channel axis: channels are positions there, and none can go."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(F.relu(m.a(x))))
        along = m.eca(x.mean((2, 3, 4)).unsqueeze(1)).squeeze(1)
        return m.head(F.relu(m.b(x * along.sigmoid()[:, :, None, None, None])))

    return Net(body, a=conv(2, 6), stem=conv(6, 6), eca=nn.Conv1d(1, 1, 3, padding=1), b=conv(6, 6), head=conv(6, 2))


@BLOCKS.add(volume(2, 3), prunable="stem", kept="head", silenced=("theta", "phi"), together=("theta phi",))
def non_local() -> nn.Module:
    """Every position looks at every other one; two projections meet in a product of matrices."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        theta, phi, g = (layer(x).flatten(2) for layer in (m.theta, m.phi, m.g))
        attention = torch.bmm(theta.transpose(1, 2), phi).softmax(-1)
        y = torch.bmm(g, attention.transpose(1, 2)).reshape(x.shape[0], -1, *x.shape[2:])
        return m.head(x + m.out(y))

    return Net(
        body,
        stem=conv(2, 6),
        theta=conv(6, 4, 1),
        phi=conv(6, 4, 1),
        g=conv(6, 4, 1),
        out=conv(4, 6, 1),
        head=conv(6, 2, 1),
    )


@BLOCKS.add(volume(2, 4), prunable="up", kept="head")
def vision_transformer() -> nn.Module:
    """Patches, learned positions, torch's own attention, an MLP: at least the MLP's hidden width is free."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = m.patch(x).flatten(2).transpose(1, 2) + m.position
        y = m.norm_a(x)
        x = x + m.attention(y, y, y, need_weights=False)[0]
        x = x + m.down(F.gelu(m.up(m.norm_b(x))))
        return m.head(m.norm_c(x).mean(1))

    return Net(
        body,
        patch=nn.Conv3d(2, 8, 2, stride=2),
        position=nn.Parameter(tensor(1, 8, 8)),
        norm_a=nn.LayerNorm(8),
        attention=nn.MultiheadAttention(8, 2, batch_first=True),
        norm_b=nn.LayerNorm(8),
        up=nn.Linear(8, 16),
        down=nn.Linear(16, 8),
        norm_c=nn.LayerNorm(8),
        head=nn.Linear(8, 3),
    )


@BLOCKS.add(lambda: tensor(2, 5, 4), prunable="embed up", kept="head", masked=False)
def attention_written_out() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.embed(x)
        b, t, _ = x.shape
        q, k, v = m.qkv(m.norm(x)).reshape(b, t, 3, 2, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, -1)
        x = x + m.out(y)
        return m.head(x + m.down(F.gelu(m.up(x))))

    return Net(
        body,
        embed=nn.Linear(4, 8),
        norm=nn.LayerNorm(8),
        qkv=nn.Linear(8, 24),
        out=nn.Linear(8, 8),
        up=nn.Linear(8, 8),
        down=nn.Linear(8, 8),
        head=nn.Linear(8, 4),
    )


@BLOCKS.add(volume(), prunable="stem dw expand project", kept="head", together=("stem dw project",))
def convnext_block() -> nn.Module:
    """Depthwise layer, channels last, linear layers, a learned scale for every channel, and the residual."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        y = m.norm(m.dw(x).permute(0, 2, 3, 4, 1))
        y = m.scale * m.project(F.gelu(m.expand(y)))
        return m.head(x + y.permute(0, 4, 1, 2, 3))

    return Net(
        body,
        stem=conv(2, 6),
        dw=conv(6, 6, groups=6),
        norm=nn.LayerNorm(6),
        expand=nn.Linear(6, 12),
        project=nn.Linear(12, 6),
        scale=nn.Parameter(torch.full((6,), 0.5)),
        head=conv(6, 2),
    )
