"""Topologies: variants of the joins, norms, shuffles and gates that real code writes in many ways."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.topology import Collection, Net, conv, image, several, tensor, up, volume

PATTERNS = Collection()


def between(
    function: Callable[[Net, Tensor], Tensor], width: int = 8, out: int | None = None, dims: int = 3, **members: Any
) -> Net:
    """A network whose layers ``stem`` and ``b`` have a function of the network between them.

    Args:
        function: What happens to the channels of ``stem``.
        width: Channels of ``stem``.
        out: Channels that ``b`` reads, if they are not ``width``.
        dims: Spatial dimensions.
        members: Modules and parameters that the function uses.
    """

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(function(m, F.relu(m.stem(F.relu(m.a(x))))))))

    layers = {
        "a": conv(2, 6, dims=dims),
        "stem": conv(6, width, dims=dims),
        "b": conv(out or width, 6, dims=dims),
        "head": conv(6, 2, 1, dims=dims),
    }
    return Net(body, **layers, **members)


def spatial(vector: Tensor) -> Tensor:
    """One value for each sample and channel, laid over three dimensions of space."""
    return vector[..., None, None, None]


def shuffled(x: Tensor, groups: int) -> Tensor:
    """Channel shuffle as ShuffleNet writes it."""
    b, c, *space = x.shape
    return x.view(b, groups, c // groups, *space).transpose(1, 2).reshape(b, c, *space)


@PATTERNS.add(image(), prunable="reduce dw expand again", kept="head")
def shuffle_across_groups() -> nn.Module:
    """ShuffleNet's unit twice: channels are dealt over groups of eight, and of five, and lie across their seams."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        x = F.relu(x + m.expand(m.norm(m.dw(shuffled(F.relu(m.reduce(x)), 3)))))
        return m.head(F.relu(x + m.again(shuffled(F.relu(m.inside(x)), 3))))

    return Net(
        body,
        stem=conv(2, 12, dims=2),
        reduce=conv(12, 24, 1, dims=2, groups=3),
        dw=conv(24, 24, dims=2, groups=24),
        norm=nn.BatchNorm2d(24),
        expand=conv(24, 12, 1, dims=2, groups=3),
        inside=conv(12, 15, 1, dims=2, groups=3),
        again=conv(15, 12, 1, dims=2, groups=3),
        head=conv(12, 2, dims=2),
    )


@PATTERNS.add(image(), prunable="a b c", kept="head")
def shuffle_between_other_groups() -> nn.Module:
    """Channels dealt over two groups are read in two, concatenated with others and read in three."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.b(shuffled(F.relu(m.a(x)), 2)))
        return m.head(F.relu(m.c(torch.cat([x, F.relu(m.beside(x))], 1))))

    return Net(
        body,
        a=conv(2, 14, dims=2),
        b=conv(14, 12, dims=2, groups=2),
        beside=conv(12, 6, 1, dims=2),
        c=conv(18, 9, dims=2, groups=3),
        head=conv(9, 2, dims=2),
    )


@PATTERNS.add(image(), prunable="stem enter first second third", kept="head")
def shuffle_units_in_a_row() -> nn.Module:
    """ShuffleNetV2's units one after the other: half of what is shuffled passes by, again and again."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        x = shuffled(torch.cat([x, F.relu(m.enter(x))], 1), 2)
        for unit in (m.first, m.second, m.third):
            passing, worked = x.chunk(2, 1)
            x = shuffled(torch.cat([passing, F.relu(unit(worked))], 1), 2)
        return m.head(x)

    units = {name: conv(16, 16, 1, dims=2) for name in ("enter", "first", "second", "third")}
    return Net(body, stem=conv(2, 16, dims=2), **units, head=conv(32, 2, dims=2))


@PATTERNS.add(volume(), prunable="a stem b", kept="head")
def shuffle_of_a_norm_in_other_groups() -> nn.Module:
    return between(lambda m, x: shuffled(m.norm(x), 2), 12, norm=nn.GroupNorm(3, 12))


@PATTERNS.add(volume(), prunable="a b", kept="stem head")
def shuffle_twice_in_different_groups() -> nn.Module:
    """Three shares and four shares of twelve: every channel is tied to every other one."""
    return between(lambda m, x: F.channel_shuffle(F.relu(shuffled(x, 3)), 4), 12)


def subpixel(m: Net, x: Tensor) -> Tensor:
    """MONAI's sub-pixel upsampling: a convolution, the shuffle by views, padding and pooling."""
    x = m.conv_block(x)
    b, c, *size = x.shape
    x = x.reshape([b, c // 8, 2, 2, 2, *size]).permute([0, 1, 5, 2, 6, 3, 7, 4])
    x = x.reshape([b, c // 8, *(2 * n for n in size)])
    return F.avg_pool3d(F.pad(x, (1, 0) * 3), 2, stride=1)


@PATTERNS.add(volume(2, 2), prunable="a stem conv_block b", kept="head")
def subpixel_upsampling_with_icnr() -> nn.Module:
    """All eight filters of an output channel start equal: equal values must not confuse channels."""
    net = between(subpixel, 4, 3, conv_block=conv(4, 24))
    net.conv_block.weight.data = net.conv_block.weight.data[::8].repeat_interleave(8, 0)
    return net


@PATTERNS.add(volume(2, 2), prunable="a stem b", kept="head")
def voxel_shuffle_with_factors_first() -> nn.Module:
    def shuffle(_: Net, x: Tensor) -> Tensor:
        b, c, d, h, w = x.shape
        x = x.view(b, 2, 2, 2, c // 8, d, h, w).permute(0, 4, 5, 1, 6, 2, 7, 3)
        return x.reshape(b, c // 8, 2 * d, 2 * h, 2 * w)

    return between(shuffle, 24, 3)


@PATTERNS.add(volume(2, 4), prunable="a stem inner b", kept="head")
def voxel_unshuffle() -> nn.Module:
    def fold(m: Net, x: Tensor) -> Tensor:
        b, c, d, h, w = x.shape
        x = x.view(b, c, d // 2, 2, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 7, 2, 4, 6)
        return m.inner(x.reshape(b, c * 8, d // 2, h // 2, w // 2))

    return between(fold, 4, 6, inner=conv(32, 6, 1))


@PATTERNS.add(volume(2, 2), prunable="a b", kept="stem head")
def voxel_shuffle_into_a_written_width() -> nn.Module:
    """The output's two channels are typed in, so all eight for each of them must stay."""

    def shuffle(_: Net, x: Tensor) -> Tensor:
        b, _, d, h, w = x.shape
        x = x.view(b, 2, 2, 2, 2, d, h, w).permute(0, 1, 5, 2, 6, 3, 7, 4)
        return x.reshape(b, 2, 2 * d, 2 * h, 2 * w)

    return between(shuffle, 16, 2)


@PATTERNS.add(volume(), prunable="a stem grouped b", kept="head")
def grouped_transposed_with_output_size() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.grouped(F.avg_pool3d(x, 2), output_size=x.shape[2:])

    return between(body, 8, 12, grouped=nn.ConvTranspose3d(8, 12, 3, stride=2, padding=1, groups=4))


@PATTERNS.add(image(), prunable="a stem grouped b", kept="head")
def grouped_transposed_then_norm_in_other_groups() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return F.avg_pool2d(m.norm(m.grouped(x)), 2)

    return between(body, 6, 12, 2, grouped=up(6, 12, dims=2, groups=3), norm=nn.GroupNorm(2, 12))


@PATTERNS.add(volume(), prunable="a stem b", kept="head")
def group_norm_of_a_prime_width() -> nn.Module:
    return between(lambda m, x: m.norm(x), 7, norm=nn.GroupNorm(7, 7))


@PATTERNS.add(volume(), prunable="a stem b", kept="head")
def group_norm_of_odd_groups() -> nn.Module:
    return between(lambda m, x: m.norm(x), 15, norm=nn.GroupNorm(5, 15))


@PATTERNS.add(volume(2, 3), prunable="a stem b", kept="head")
def group_norm_of_thirty_two_groups() -> nn.Module:
    """Groups of one and of two channels, as the usual 32 groups leave in thin layers."""
    return between(
        lambda m, x: m.norm_b(m.inner(F.relu(m.norm_a(x)))),
        32,
        64,
        norm_a=nn.GroupNorm(32, 32),
        inner=conv(32, 64, 1),
        norm_b=nn.GroupNorm(32, 64),
    )


@PATTERNS.add(volume(), prunable="a stem b", kept="head", together=("stem inner",))
def group_norm_of_small_groups_in_a_stream() -> nn.Module:
    return between(lambda m, x: x + m.inner(F.relu(m.norm(x))), 12, inner=conv(12, 12), norm=nn.GroupNorm(6, 12))


@PATTERNS.add(volume(), prunable="a stem p b", kept="head")
def group_norms_of_one_count_over_a_concatenation() -> nn.Module:
    """The way up of a diffusion network: groups of three channels across the seam of groups of two and of one."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.both(torch.cat([m.one(x), m.two(m.p(x))], 1))

    norms = {"one": nn.GroupNorm(6, 12), "two": nn.GroupNorm(6, 6), "both": nn.GroupNorm(6, 18)}
    return between(body, 12, 18, p=conv(12, 6), **norms)


@PATTERNS.add(volume(), prunable="a stem b", kept="head")
def group_norm_of_small_groups_without_affine() -> nn.Module:
    return between(lambda m, x: m.norm(x), 12, norm=nn.GroupNorm(4, 12, affine=False))


@PATTERNS.add(volume(), prunable="a b", kept="stem head")
def group_norms_that_share_no_divisor() -> nn.Module:
    """Widths must be multiples of three and of four: of twelve channels, none can go."""
    return between(lambda m, x: m.four(F.relu(m.three(x))), 12, three=nn.GroupNorm(3, 12), four=nn.GroupNorm(4, 12))


@PATTERNS.add(volume(), prunable="a stem p q b", kept="head")
def group_norm_across_the_seam_of_a_concatenation() -> nn.Module:
    return between(
        lambda m, x: m.norm(torch.cat([F.relu(m.p(x)), F.relu(m.q(x))], 1)),
        out=12,
        p=conv(8, 5),
        q=conv(8, 7),
        norm=nn.GroupNorm(3, 12),
    )


@PATTERNS.add(volume(), prunable="a b", kept="stem head")
def group_norm_by_function_with_written_groups() -> nn.Module:
    """Eight groups of eight channels: one group for each, and the code says eight."""
    return between(lambda _, x: F.group_norm(x, 8))


@PATTERNS.add(volume(), prunable="a stem b", kept="head", together=("stem inner",))
def group_norm_in_a_residual_branch() -> nn.Module:
    return between(lambda m, x: x + m.norm(m.inner(x)), inner=conv(8, 8), norm=nn.GroupNorm(2, 8))


@PATTERNS.add(volume(), prunable="a stem inner b", kept="head")
def chunk_worked_on_and_concatenated() -> nn.Module:
    """CSP: one layer is called again on what it made of one half."""

    def body(m: Net, x: Tensor) -> Tensor:
        past, work = x.chunk(2, 1)
        once = F.relu(m.inner(work))
        return torch.cat([past, once, F.relu(m.inner(once))], 1)

    return between(body, 8, 12, inner=conv(4, 4))


@PATTERNS.add(volume(), prunable="a stem b", kept="head")
def chunk_in_a_hierarchy() -> nn.Module:
    """Res2Net: each part is added to what the part before it became."""

    def body(m: Net, x: Tensor) -> Tensor:
        first, second, third, fourth = x.chunk(4, 1)
        second = m.p(second)
        return torch.cat([first, second, m.q(second + third), fourth], 1)

    return between(body, 12, p=conv(3, 3), q=conv(3, 3))


@PATTERNS.add(volume(), prunable="a b", kept="head")
def chunk_that_leaves_a_smaller_rest() -> nn.Module:
    return between(lambda _, x: torch.cat(x.chunk(3, 1)[::-1], 1))


@PATTERNS.add(volume(), prunable="a b p q r s", kept="head")
def addition_of_concatenations() -> nn.Module:
    """The seams of both sides lie at different channels."""
    return between(
        lambda m, x: torch.cat([m.p(x), m.q(x)], 1) + torch.cat([m.r(x), m.s(x)], 1),
        out=12,
        p=conv(8, 4),
        q=conv(8, 8),
        r=conv(8, 8),
        s=conv(8, 4),
    )


@PATTERNS.add(volume(), prunable="a stem p q b", kept="head", together=("p q",))
def addition_of_crossed_concatenations() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        p, q = m.p(x), m.q(x)
        return torch.cat([p, q], 1) + torch.cat([q, p], 1)

    return between(body, p=conv(8, 4), q=conv(8, 4))


@PATTERNS.add(volume(), prunable="a stem b wide", kept="head")
def zero_padded_with_a_written_width() -> nn.Module:
    """Shortcut A with strides and as many zeros as the constructor knew: what meets them stays, the rest may go."""

    def body(m: Net, x: Tensor) -> Tensor:
        y = m.wide(x)
        zeros = torch.zeros(y.shape[0], 8, *y.shape[2:], dtype=y.dtype, device=y.device)
        return torch.cat([x[:, :, ::2, ::2, ::2], zeros], 1) + y

    return between(body, 8, 16, wide=nn.Conv3d(8, 16, 3, 2, 1))


class PaddedBlock(nn.Module):
    """A residual block whose shortcut is a function that knows the width."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.conv, self.shortcut = conv(width, out), partial(self._padded, planes=out, stride=1)

    @staticmethod
    def _padded(x: Tensor, planes: int, stride: int) -> Tensor:
        x = x[:, :, ::stride, ::stride, ::stride]
        return torch.cat([x, x.new_zeros(len(x), planes - x.shape[1], *x.shape[2:])], 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x) + self.shortcut(x))


@PATTERNS.add(volume(), prunable="a stem b blocks.0.conv blocks.1.conv blocks.2.conv", kept="head")
def zero_padded_by_partial_functions() -> nn.Module:
    """Shortcut A as MONAI and 3D-ResNets write it: the width lies in the arguments of a partial function."""
    blocks = nn.Sequential(PaddedBlock(8, 12), PaddedBlock(12, 16), PaddedBlock(16, 24))
    return between(lambda m, x: m.blocks(x), 8, 24, blocks=blocks)


@PATTERNS.add(volume(), prunable="a stem b", kept="head")
def channels_tiled_and_added() -> nn.Module:
    return between(lambda m, x: m.wide(x) + torch.tile(x, (1, 2, 1, 1, 1)), 8, 16, wide=conv(8, 16))


@PATTERNS.add(volume(), prunable="a b", kept="stem head", masked=False)
def mean_expanded_to_a_written_width() -> nn.Module:
    return between(lambda _, x: x * x.mean(1, keepdim=True).expand(-1, 8, -1, -1, -1))


@PATTERNS.add(volume(), prunable="a b", kept="stem head")
def channels_repeated_by_their_own_counts() -> nn.Module:
    return between(lambda _, x: x.repeat_interleave(torch.tensor([1, 2] * 4), 1), out=12)


@PATTERNS.add(several(volume(), volume(2, 8)), prunable="a joint", kept="head")
def called_on_inputs_of_two_sizes() -> nn.Module:
    def body(m: Net, near: Tensor, far: Tensor) -> Tensor:
        features = [F.relu(m.a(near)), F.avg_pool3d(F.relu(m.a(far)), 2)]
        return m.head(F.relu(m.joint(torch.cat(features, 1))))

    return Net(body, a=conv(2, 6), joint=conv(12, 6), head=conv(6, 2))


@PATTERNS.add(volume(), prunable="a stem inner b", kept="head", together=("stem inner",))
def one_block_many_times() -> nn.Module:
    def deeper(m: Net, x: Tensor, depth: int) -> Tensor:
        return x if depth == 0 else deeper(m, F.relu(m.inner(x)), depth - 1) + x

    return between(lambda m, x: deeper(m, x, 3), inner=conv(8, 8))


@PATTERNS.add(volume(), prunable="a stem squeeze excite b", kept="head", together=("stem excite",))
def gate_by_hard_sigmoid() -> nn.Module:
    return between(
        lambda m, x: x * spatial(F.hardsigmoid(m.excite(F.relu(m.squeeze(x.mean((2, 3, 4))))))),
        squeeze=nn.Linear(8, 4),
        excite=nn.Linear(4, 8),
    )


@PATTERNS.add(volume(), prunable="a squeeze b", kept="stem excite head")
def gate_with_a_written_width() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool3d(x, 1).view(-1, 8)
        return x * m.excite(F.relu(m.squeeze(pooled))).sigmoid().view(-1, 8, 1, 1, 1)

    return between(body, squeeze=nn.Linear(8, 4), excite=nn.Linear(4, 8))


@PATTERNS.add(volume(), prunable="a stem squeeze excite b", kept="where head", masked=False)
def gates_of_channels_then_space() -> nn.Module:
    """CBAM: one small network judges both the mean and the maximum; then a map made of both over the channels."""

    def body(m: Net, x: Tensor) -> Tensor:
        judged = [m.excite(F.relu(m.squeeze(pooled))) for pooled in (x.mean((2, 3, 4)), x.amax((2, 3, 4)))]
        x = x * spatial(sum(judged).sigmoid())
        return x * m.where(torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True).values], 1)).sigmoid()

    return between(body, squeeze=nn.Linear(8, 4), excite=nn.Linear(4, 8), where=conv(2, 1))


@PATTERNS.add(volume(), prunable="a stem b query key", kept="head", masked=False)
def gate_of_channels_by_channels() -> nn.Module:
    """Attention among channels: two projections make a table of channels by channels."""

    def body(m: Net, x: Tensor) -> Tensor:
        table = torch.einsum("bcl,bkl->bck", m.query(x).flatten(2), m.key(x).flatten(2)).softmax(-1)
        return torch.einsum("bck,bkdhw->bcdhw", table, x)

    return between(body, query=conv(8, 8, 1), key=conv(8, 8, 1))


@PATTERNS.add(volume(), prunable="a stem b", kept="head", masked=False, cuttable=(("code", 1),))
def einsum_with_a_codebook() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        near = torch.einsum("bcdhw,kc->bkdhw", x, m.code).softmax(1)
        return torch.einsum("bkdhw,kc->bcdhw", near, m.code)

    return between(body, code=nn.Parameter(tensor(5, 8)))


@PATTERNS.add(image(), prunable="a stem b", kept="head")
def neighbours_weighed_by_features() -> nn.Module:
    """Local attention: ``unfold`` lays the neighbours of every pixel beside its channels, a softmax weighs them."""

    def body(m: Net, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        near = F.unfold(x, 3, padding=1).view(b, c, 9, h, w)
        return (near * m.weigh(x).softmax(1)[:, None]).sum(2)

    return between(body, dims=2, weigh=conv(8, 9, 1, dims=2))


class Involution(nn.Module):
    """Kernels made at every pixel, one for each group of channels."""

    def __init__(self, width: int, each: int) -> None:
        super().__init__()
        self.groups, self.each = width // each, each
        self.reduce, self.span = conv(width, 6, 1, dims=2), conv(6, 9 * self.groups, 1, dims=2)
        self.unfold = nn.Unfold(3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        kernels = self.span(F.relu(self.reduce(x))).view(b, self.groups, 1, 9, h, w)
        near = self.unfold(x).view(b, self.groups, self.each, 9, h, w)
        return (kernels * near).sum(3).view(b, c, h, w)


@PATTERNS.add(image(), prunable="a stem involution.reduce b", kept="involution.span head")
def involution() -> nn.Module:
    """The kernels of a group are read by all its channels, so every group stays, and loses as many places."""
    return between(lambda m, x: m.involution(x), 12, dims=2, involution=Involution(12, 4))
