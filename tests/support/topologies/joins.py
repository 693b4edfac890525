"""Topologies: branches that part and meet again: adds, concatenations, splits, shared modules, gates."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.topology import Collection, Net, conv, image, several, unit, up, volume

JOINS = Collection()


@JOINS.add(volume(), prunable="stem a b", kept="head", together=("stem b",))
def residual_identity() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(F.relu(x + m.b(F.relu(m.a(x)))))

    return Net(body, stem=conv(2, 6), a=conv(6, 6), b=conv(6, 6), head=conv(6, 6))


@JOINS.add(volume(), prunable="stem.0 a.0 b.0 c.0", kept="head", together=("stem.0 a.0 b.0 c.0",))
def residual_chain_with_norms() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        for block in (m.a, m.b, m.c):
            x = x + block(x)
        return m.head(x)

    return Net(body, stem=unit(2, 6), a=unit(6, 6), b=unit(6, 6), c=unit(6, 6), head=conv(6, 2))


@JOINS.add(volume(), prunable="stem a b short", kept="head", together=("b short",))
def residual_projected() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(F.relu(m.short(x) + m.b(F.relu(m.a(x)))))

    return Net(body, stem=conv(2, 6), a=conv(6, 6), b=conv(6, 8), short=conv(6, 8, 1, bias=False), head=conv(8, 2))


@JOINS.add(volume(), prunable="stem a b", kept="head")
def residual_padded() -> nn.Module:
    """The shortcut gets zero channels behind its own, as many as the shapes of the moment ask for."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        y = m.b(F.relu(m.a(x)))
        return m.head(F.relu(y + F.pad(x, (0, 0, 0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))))

    return Net(body, stem=conv(2, 5), a=conv(5, 5), b=conv(5, 9), head=conv(9, 2))


@JOINS.add(volume(), prunable="stem a b", kept="head")
def residual_concatenated_with_zeros() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        y = m.b(F.relu(m.a(x)))
        zeros = torch.zeros(x.shape[0], y.shape[1] - x.shape[1], *x.shape[2:], device=x.device, dtype=x.dtype)
        return m.head(F.relu(y + torch.cat([x, zeros], 1)))

    return Net(body, stem=conv(2, 5), a=conv(5, 5), b=conv(5, 8), head=conv(8, 2))


@JOINS.add(image(), prunable="a", kept="head")
def residual_padded_on_both_sides() -> nn.Module:
    """The number of zero channels on each side is written in the code (option A of CIFAR ResNets)."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(F.relu(m.b(F.relu(m.a(x))) + F.pad(x, (0, 0, 0, 0, 2, 2))))

    return Net(body, stem=conv(2, 4, dims=2), a=conv(4, 8, dims=2), b=conv(8, 8, dims=2), head=conv(8, 2, dims=2))


@JOINS.add(volume(4), prunable="inner", kept="outer head")
def residual_on_the_input() -> nn.Module:
    """The input's channels cannot go, so neither can those that are added to them."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(x + m.outer(F.relu(m.inner(x)))))

    return Net(body, inner=conv(4, 6), outer=conv(6, 4), head=conv(4, 2))


@JOINS.add(volume(), prunable="inner", kept="stem outer")
def residual_as_output() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        return x + m.outer(F.relu(m.inner(F.relu(x))))

    return Net(body, stem=conv(2, 6), inner=conv(6, 6), outer=conv(6, 6))


@JOINS.add(volume(), prunable="a b", kept="head")
def concatenation() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(torch.cat([F.relu(m.a(x)), x, F.relu(m.b(x))], dim=1))

    return Net(body, a=conv(2, 6), b=conv(2, 6, 1), head=conv(14, 2))


@JOINS.add(volume(), prunable="a b c d e", kept="head", together=("a b", "c d"))
def concatenation_of_additions() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        left, right = m.a(x) + m.b(x), m.c(x) + m.d(x)
        both = F.relu(torch.cat([left, right], dim=-4))
        return m.head(F.relu(both + m.e(both)))

    return Net(body, a=conv(2, 4), b=conv(2, 4), c=conv(2, 4), d=conv(2, 4, 1), e=conv(8, 8), head=conv(8, 2))


@JOINS.add(image(), prunable="a b c", kept="head")
def dense_block() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        seen = [x]
        for layer in (m.a, m.b, m.c):
            seen.append(F.relu(layer(torch.cat(seen, 1))))
        return m.head(torch.cat(seen, 1))

    return Net(body, a=conv(2, 4, dims=2), b=conv(6, 4, dims=2), c=conv(10, 4, dims=2), head=conv(14, 2, dims=2))


@JOINS.add(volume(2, 4), prunable="down0.0 down1.0 bottom.0 up1 dec1.0 up0 dec0.0", kept="head")
def unet_transposed() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        skip0 = m.down0(x)
        skip1 = m.down1(F.max_pool3d(skip0, 2))
        x = m.bottom(F.max_pool3d(skip1, 2))
        x = m.dec1(torch.cat([m.up1(x), skip1], 1))
        return m.head(m.dec0(torch.cat([skip0, m.up0(x)], 1)))

    return Net(
        body,
        down0=unit(2, 4),
        down1=unit(4, 6),
        bottom=unit(6, 6),
        up1=up(6, 6),
        dec1=unit(12, 6),
        up0=up(6, 4),
        dec0=unit(8, 4),
        head=conv(4, 3, 1),
    )


@JOINS.add(volume(1, 5), prunable="down0.0 bottom.0 dec0.0", kept="head")
def unet_interpolated() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        skip = m.down0(x)
        x = m.bottom(F.max_pool3d(skip, 2))
        x = F.interpolate(x, size=skip.shape[2:], mode="nearest")
        return m.head(m.dec0(torch.cat((skip, x), 1)))

    return Net(body, down0=unit(1, 6), bottom=unit(6, 6), dec0=unit(12, 6), head=conv(6, 3, 1))


@JOINS.add(volume(), prunable="stem b", kept="head")
def chunk_gate() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        value, gate = m.stem(x).chunk(2, dim=1)
        return m.head(F.relu(m.b(value * gate.sigmoid())))

    return Net(body, stem=conv(2, 12), b=conv(6, 6), head=conv(6, 2))


@JOINS.add(volume(), prunable="stem b", kept="head")
def chunk_concatenated_in_another_order() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        first, second, third = F.relu(m.stem(x)).chunk(3, 1)
        return m.head(F.relu(m.b(torch.cat([third, first, second], 1))))

    return Net(body, stem=conv(2, 9), b=conv(9, 6), head=conv(6, 2))


@JOINS.add(volume(), prunable="stem b", kept="head")
def split_by_size_and_added() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        first, second = torch.split(x, x.shape[1] // 2, dim=1)
        return m.head(F.relu(m.b(first + second)))

    return Net(body, stem=conv(2, 8), b=conv(4, 6), head=conv(6, 2))


@JOINS.add(volume(), prunable="b", kept="head")
def split_in_unequal_sizes() -> nn.Module:
    """Sizes by arithmetic on the width of the moment: a quarter, and the rest, joined again the other way round."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        quarter = x.shape[1] // 4
        first, second = torch.split(x, [quarter, x.shape[1] - quarter], dim=1)
        return m.head(F.relu(m.b(torch.cat([second, first], 1))))

    return Net(body, stem=conv(2, 8), b=conv(8, 6), head=conv(6, 2))


@JOINS.add(volume(), prunable="b", kept="head")
def split_in_written_sizes() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        first, second = torch.split(F.relu(m.stem(x)), [3, 5], dim=1)
        return m.head(F.relu(m.b(torch.cat([second, first], 1))))

    return Net(body, stem=conv(2, 8), b=conv(8, 6), head=conv(6, 2))


@JOINS.add(image(), prunable="b", kept="head")
def slice_half() -> nn.Module:
    """One half goes through a layer, the other past it; the cut is at half the width of the moment."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        half = x.shape[1] // 2
        return m.head(torch.cat([F.relu(m.b(x[:, :half])), x[:, half:]], 1))

    return Net(body, stem=conv(2, 8, dims=2), b=conv(4, 6, dims=2), head=conv(10, 2, dims=2))


@JOINS.add(image(), prunable="b", kept="head")
def slice_with_written_bounds() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(torch.cat([F.relu(m.b(x[:, 2:6])), x[:, ::2]], 1))

    return Net(body, stem=conv(2, 8, dims=2), b=conv(4, 6, dims=2), head=conv(10, 2, dims=2))


@JOINS.add(image(), prunable="b", kept="head")
def every_second_channel() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(F.relu(m.b(x[:, ::2] * x[:, 1::2])))

    return Net(body, stem=conv(2, 8, dims=2), b=conv(4, 6, dims=2), head=conv(6, 2, dims=2))


@JOINS.add(volume(), prunable="b", kept="head")
def gated_linear_unit() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(F.glu(m.stem(x), dim=1))))

    return Net(body, stem=conv(2, 12), b=conv(6, 6), head=conv(6, 2))


@JOINS.add(volume(), prunable="a b c", kept="head", together=("a b c",))
def stack_and_sum() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(torch.stack([m.a(x), m.b(x), m.c(x)], dim=1).sum(1)))

    return Net(body, a=conv(2, 6), b=conv(2, 6), c=conv(2, 6, 1), head=conv(6, 2))


@JOINS.add(volume(), prunable="a b squeeze expand_a expand_b", kept="head", together=("a b expand_a expand_b",))
def selective_kernel() -> nn.Module:
    """Two branches are weighted by a softmax across them, channel by channel (SKNet)."""

    def body(m: Net, x: Tensor) -> Tensor:
        branches = torch.stack([F.relu(m.a(x)), F.relu(m.b(x))], dim=0)
        context = F.relu(m.squeeze(branches.sum(0).mean((2, 3, 4))))
        weights = torch.stack([m.expand_a(context), m.expand_b(context)], dim=0).softmax(0)
        return m.head((branches * weights[..., None, None, None]).sum(0))

    return Net(
        body,
        a=conv(2, 6),
        b=conv(2, 6, 1),
        squeeze=nn.Linear(6, 4),
        expand_a=nn.Linear(4, 6),
        expand_b=nn.Linear(4, 6),
        head=conv(6, 2),
    )


@JOINS.add(volume(), prunable="a b", kept="head")
def elementwise_of_branches() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        a, b = m.a(x), m.b(x)
        y = torch.maximum(a, b) * torch.sigmoid(a) - torch.where(b > 0, b, 0.1 * a)
        return m.head(torch.lerp(y, torch.addcmul(a, a, b, value=0.5), 0.3).clamp(-4, 4))

    return Net(body, a=conv(2, 6), b=conv(2, 6, 1), head=conv(6, 2))


@JOINS.add(volume(), prunable="stem twice", kept="head", together=("stem twice",))
def called_twice_in_a_row() -> nn.Module:
    """What comes out of the shared layer goes into it again, so its input and output channels are the same."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(F.relu(m.twice(F.relu(m.twice(x)))))

    return Net(body, stem=conv(2, 6), twice=conv(6, 6), head=conv(6, 2))


@JOINS.add(volume(), prunable="stem twice", kept="head")
def called_twice_on_the_same_input() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(F.relu(m.twice(x)) + torch.tanh(m.twice(x)))

    return Net(body, stem=conv(2, 6), twice=conv(6, 6), head=conv(6, 2))


@JOINS.add(several(image(), image()), prunable="a b joint", kept="head")
def siamese() -> nn.Module:
    def body(m: Net, left: Tensor, right: Tensor) -> Tensor:
        features = [F.relu(m.b(F.relu(m.a(view)))) for view in (left, right)]
        return m.head(F.relu(m.joint(torch.cat(features, 1))))

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), joint=conv(12, 6, dims=2), head=conv(6, 2, dims=2))


@JOINS.add(several(image(), image()), prunable="a b joint", kept="head")
def siamese_along_the_batch() -> nn.Module:
    def body(m: Net, left: Tensor, right: Tensor) -> Tensor:
        both = F.relu(m.b(F.relu(m.a(torch.cat([left, right], 0)))))
        return m.head(F.relu(m.joint((both.chunk(2, 0)[0] - both.chunk(2, 0)[1]).abs())))

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), joint=conv(6, 6, dims=2), head=conv(6, 2, dims=2))


@JOINS.add(volume(), prunable="stem a b", kept="head")
def weight_shared_by_two_layers() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        return m.head(torch.cat([F.relu(m.a(x)), F.relu(m.b(x))], 1))

    net = Net(body, stem=conv(2, 6), a=conv(6, 6), b=conv(6, 6), head=conv(12, 2))
    net.b.weight = net.a.weight
    return net


@JOINS.add(image(), prunable="stem enc", kept="head", consumers={"enc.weight": 0})
def tied_autoencoder() -> nn.Module:
    """The decoder is the encoder's weight read the other way."""

    def body(m: Net, x: Tensor) -> Tensor:
        code = F.relu(m.enc(F.relu(m.stem(x))))
        return m.head(F.relu(F.conv_transpose2d(code, m.enc.weight, padding=1)))

    return Net(body, stem=conv(2, 6, dims=2), enc=conv(6, 6, dims=2), head=conv(6, 2, dims=2))
