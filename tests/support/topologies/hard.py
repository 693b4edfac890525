"""Topologies: where a careless tracer goes wrong: hidden sizes, hidden order, hidden branches, hidden operators."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.support.topologies.topology import Collection, Net, conv, image, several, tensor, unit, volume

HARD = Collection()


@HARD.add(volume(), prunable="a b", kept="stem head")
def written_size_in_view() -> nn.Module:
    """Sixteen is the number of channels, and the code says so."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(F.relu(m.a(x))))
        weights = x.view(x.shape[0], 16, -1).mean(2)
        return m.head(F.relu(m.b(x * weights.view(-1, 16, 1, 1, 1))))

    return Net(body, a=conv(2, 16), stem=conv(16, 16), b=conv(16, 16), head=conv(16, 2))


@HARD.add(image(), prunable="a", kept="stem head")
def written_size_in_factory() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(F.relu(m.a(x))))
        return m.head(x + torch.ones(6, 1, 1, device=x.device, dtype=x.dtype))

    return Net(body, a=conv(2, 6, dims=2), stem=conv(6, 6, dims=2), head=conv(6, 2, dims=2))


class Constant(nn.Module):
    """A tensor that is neither a parameter nor a buffer."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = [values.tolist()]

    def forward(self, x: Tensor) -> Tensor:
        return x * x.new_tensor(self.values[0])[None, :, None, None]


@HARD.add(image(), prunable="a", kept="stem head")
def constant_for_each_channel() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(m.constant(F.relu(m.stem(F.relu(m.a(x))))))

    return Net(
        body,
        a=conv(2, 6, dims=2),
        stem=conv(6, 6, dims=2),
        constant=Constant(tensor(6)),
        head=conv(6, 2, dims=2),
    )


class Table(nn.Module):
    """Holds a tensor as a plain attribute, neither a parameter nor a buffer."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, x: Tensor) -> Tensor:
        return x + self.values.expand(len(x), *self.values.shape[1:]).type_as(x).to(x.device).clone().detach()


@HARD.add(image(), prunable="a stem b", kept="head", together=("a b",))
def positions_in_an_attribute() -> nn.Module:
    """Two modules hold the same table."""
    values = tensor(1, 8, 6, 6)

    def body(m: Net, x: Tensor) -> Tensor:
        x = m.one(m.a(x))
        return m.head(F.relu(m.two(x + m.b(F.relu(m.stem(x))))))

    layers = {"a": conv(2, 8, dims=2), "stem": conv(8, 8, dims=2), "b": conv(8, 8, dims=2), "head": conv(8, 2, dims=2)}
    return Net(body, **layers, one=Table(values), two=Table(values))


@HARD.add(image(), prunable="a stem", kept="head", silenced=("stem",))
def products_with_an_attribute() -> nn.Module:
    """A fixed projection, from and to channels."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(F.relu(m.a(x)))).permute(0, 2, 3, 1) @ m.table.values.to(x)
        return m.head(x.permute(0, 3, 1, 2))

    layers = {"a": conv(2, 8, dims=2), "stem": conv(8, 8, dims=2), "head": conv(6, 2, dims=2)}
    return Net(body, **layers, table=Table(tensor(8, 6)))


@HARD.add(image(), prunable="a", kept="stem head", masked=False)
def attribute_in_the_memory_of_a_weight() -> nn.Module:
    """What is written to the weight is written to the attribute, which no copy of a part of it would see."""
    stem = conv(6, 6, dims=2)
    layers = {"a": conv(2, 6, dims=2), "stem": stem, "head": conv(6, 2, dims=2)}

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(m.table(F.relu(m.stem(F.relu(m.a(x))))))

    return Net(body, **layers, table=Table(stem.bias.detach()[None, :, None, None]))


class Scale(nn.Module):
    """A float buffer and a parameter with one value for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("fixed", tensor(1, channels, 1, 1, 1))
        self.learned = nn.Parameter(tensor(channels, seed=1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.fixed + self.learned.view(1, -1, 1, 1, 1)


@HARD.add(volume(), prunable="a b", kept="head", cuttable=(("scale.fixed", 1), ("scale.learned", 0)))
def buffer_for_each_channel() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(m.scale(F.relu(m.a(x))))))

    return Net(body, a=conv(2, 6), scale=Scale(6), b=conv(6, 6), head=conv(6, 2))


class Permutation(nn.Module):
    """A fixed order of the channels, kept as integers."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(channels, generator=torch.Generator().manual_seed(3)))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.order]


@HARD.add(volume(), prunable="a b", kept="stem head")
def channels_in_a_stored_order() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(m.mixed(F.relu(m.stem(F.relu(m.a(x))))))))

    return Net(body, a=conv(2, 6), stem=conv(6, 6), mixed=Permutation(6), b=conv(6, 6), head=conv(6, 2))


def order_of_channels(function: Any) -> Net:
    """A network whose middle layer ``stem`` meets a function of the order of its channels."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(function(F.relu(m.stem(F.relu(m.a(x))))))))

    return Net(body, a=conv(2, 6), stem=conv(6, 6), b=conv(6, 6), head=conv(6, 2))


@HARD.add(volume(), prunable="a b", kept="stem head")
def channels_sorted() -> nn.Module:
    return order_of_channels(lambda x: x.sort(dim=1).values)


@HARD.add(volume(), prunable="a b", kept="stem head")
def channels_top() -> nn.Module:
    return order_of_channels(lambda x: torch.cat([x.topk(3, dim=1).values] * 2, 1))


@HARD.add(volume(), prunable="a b", kept="stem head")
def channels_cumulated() -> nn.Module:
    return order_of_channels(lambda x: x.cumsum(1))


@HARD.add(volume(), prunable="a b", kept="stem head")
def channels_argmax() -> nn.Module:
    return order_of_channels(lambda x: x * x.argmax(1, keepdim=True).to(x.dtype))


@HARD.add(volume(), prunable="a b", kept="stem head")
def channels_gathered_by_data() -> nn.Module:
    return order_of_channels(lambda x: x.gather(1, x.argsort(1)))


@HARD.add(volume(), prunable="a b", kept="head")
def channels_compared_with_their_neighbours() -> nn.Module:
    """Every channel stands or falls with the next one, so with all."""
    return order_of_channels(lambda x: F.pad(x[:, 1:] - x[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0)))


@HARD.add(volume(), prunable="a b", kept="head", masked=False)
def channels_softmax() -> nn.Module:
    return order_of_channels(lambda x: x * x.softmax(1))


@HARD.add(volume(), prunable="a b", kept="head", masked=False)
def channels_normalised_by_their_length() -> nn.Module:
    return order_of_channels(lambda x: F.normalize(x, dim=1))


@torch.library.custom_op("ranp_topologies::mix", mutates_args=())
def mix(x: Tensor) -> Tensor:
    """An operator that nobody has heard of; it adds every channel to the one at the other end."""
    return x + x.flip(1)


@mix.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


mix.register_autograd(lambda _, gradient: mix(gradient))


@HARD.add(volume(), prunable="a b", kept="stem head", unknown=True)
def unknown_operator() -> nn.Module:
    return order_of_channels(lambda x: mix(x))


@HARD.add(volume(), prunable="a", kept="head")
def temporal_shift() -> nn.Module:
    """A part of the channels looks one step ahead, another one back (TSM); parts by the width of the moment."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(F.relu(m.a(x))))
        fold = x.shape[1] // 4
        y = torch.zeros_like(x)
        y[:, :fold, :-1] = x[:, :fold, 1:]
        y[:, fold : 2 * fold, 1:] = x[:, fold : 2 * fold, :-1]
        y[:, 2 * fold :] = x[:, 2 * fold :]
        return m.head(y)

    return Net(body, a=conv(2, 6), stem=conv(6, 8), head=conv(8, 2))


@HARD.add(volume(), prunable="stem a b", kept="head", together=("stem b",))
def in_place() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x).relu_()
        y = F.relu(m.a(x), inplace=True)
        y = m.b(y)
        y += x
        y.mul_(0.5).add_(x, alpha=0.1).clamp_(min=-1.0)
        return m.head(F.leaky_relu_(y, 0.1))

    return Net(body, stem=conv(2, 6), a=conv(6, 6), b=conv(6, 6), head=conv(6, 2))


@HARD.add(volume(), prunable="a b", kept="head")
def in_place_into_a_buffer_of_zeros() -> nn.Module:
    """Both branches are written into one new tensor, in their places."""

    def body(m: Net, x: Tensor) -> Tensor:
        a, b = F.relu(m.a(x)), F.relu(m.b(x))
        joint = torch.empty(a.shape[0], a.shape[1] + b.shape[1], *a.shape[2:], device=a.device, dtype=a.dtype)
        joint[:, : a.shape[1]] = a
        joint.narrow(1, a.shape[1], b.shape[1]).copy_(b)
        return m.head(joint)

    return Net(body, a=conv(2, 6), b=conv(2, 6), head=conv(12, 2))


@HARD.add(volume(), prunable="stem yes", kept="no head")
def branch_by_data() -> nn.Module:
    """Only one side of the question ever runs."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        x = F.relu(m.yes(x)) if float(x.detach().sum()) < 1e9 else F.relu(m.no(x))
        return m.head(x)

    return Net(body, stem=conv(2, 6), yes=conv(6, 6), no=conv(6, 6), head=conv(6, 2))


@HARD.add(volume(), prunable="stem.0 a.0 b.0", kept="head", together=("stem.0 b.0",))
def checkpointed() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        y = checkpoint(m.a, x, use_reentrant=False)
        return m.head(x + checkpoint(m.b, y, use_reentrant=True))

    return Net(body, stem=unit(2, 6), a=unit(6, 6), b=unit(6, 6), head=conv(6, 2))


@HARD.add(volume(), prunable="a b c", kept="head")
def frozen_layers() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.c(F.relu(m.b(F.relu(m.a(x)))))))

    net = Net(body, a=conv(2, 6), b=conv(6, 6), c=conv(6, 4), head=conv(4, 2))
    net.a.requires_grad_(False)
    net.b.bias.requires_grad_(False)
    return net


@HARD.add(volume(), prunable="a b", kept="head aux")
def softmax_in_eval_and_help_in_training() -> nn.Module:
    """The auxiliary head runs in training mode only, the softmax in eval mode only."""

    def body(m: Net, x: Tensor) -> Any:
        a = F.relu(m.a(x))
        b = F.relu(m.b(a))
        return (m.head(b), m.aux(a)) if m.training else m.head(b).softmax(1)

    return Net(body, a=conv(2, 6), b=conv(6, 6), head=conv(6, 4), aux=conv(6, 4))


@HARD.add(volume(), prunable="a", kept="unused head")
def unused_layer() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.a(x)))

    return Net(body, a=conv(2, 6), unused=conv(6, 6), head=conv(6, 2))


@HARD.add(volume(), prunable="a b aside", kept="head")
def dead_end() -> nn.Module:
    """A branch that is computed and thrown away: nobody misses its channels."""

    def body(m: Net, x: Tensor) -> Tensor:
        a = F.relu(m.a(x))
        m.aside(a)
        return m.head(F.relu(m.b(a)))

    return Net(body, a=conv(2, 6), aside=conv(6, 6), b=conv(6, 6), head=conv(6, 2))


@HARD.add(volume(), prunable="a", kept="stem head")
def through_numpy() -> nn.Module:
    """What leaves torch cannot be followed."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.stem(F.relu(m.a(x))))
        return m.head(torch.from_numpy(x.detach().cpu().numpy() * 2.0))

    return Net(body, a=conv(2, 6), stem=conv(6, 6), head=conv(6, 2))


@HARD.add(image(), prunable="a c", kept="head", masked=False)
def weight_standardised() -> nn.Module:
    """The weight is normalised over its inputs before use: these cannot go without a change of what stays."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.b(F.relu(m.a(x))))
        w = m.c.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return m.head(F.relu(F.conv2d(x, w, m.c.bias, padding=1)))

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), c=conv(6, 6, dims=2), head=conv(6, 2, dims=2))


@HARD.add(image(), prunable="a", kept="head", masked=False, unknown=None)
def parametrized_weights() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.c(F.relu(m.b(F.relu(m.a(x)))))))

    return Net(
        body,
        a=conv(2, 6, dims=2),
        b=nn.utils.parametrizations.weight_norm(conv(6, 6, dims=2)),
        c=nn.utils.parametrizations.spectral_norm(conv(6, 6, dims=2)),
        head=conv(6, 2, dims=2),
    )


@HARD.add(lambda: tensor(2, 5, 4), prunable="embed", kept="head", masked=False, unknown=None)
def recurrent() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.after(m.gru(F.relu(m.before(F.relu(m.embed(x)))))[0])))

    return Net(
        body,
        embed=nn.Linear(4, 6),
        before=nn.Linear(6, 6),
        gru=nn.GRU(6, 6, batch_first=True),
        after=nn.Linear(6, 6),
        head=nn.Linear(6, 4),
    )


@HARD.add(several(volume(), lambda: torch.tensor([1, 4])), prunable="b", kept="head", unknown=None)
def embedded_condition() -> nn.Module:
    def body(m: Net, x: Tensor, index: Tensor) -> Tensor:
        x = F.relu(m.a(x) + m.table(index)[:, :, None, None, None])
        return m.head(F.relu(m.b(x)))

    return Net(body, a=conv(2, 6), table=nn.Embedding(6, 6), b=conv(6, 6), head=conv(6, 2))


@HARD.add(image(2, 4), prunable="b", kept="head", unknown=None)
def patches_to_columns() -> nn.Module:
    """``unfold`` lays kernel positions beside channels; a linear layer reads the columns."""

    def body(m: Net, x: Tensor) -> Tensor:
        columns = F.unfold(F.relu(m.a(x)), 2, stride=2).transpose(1, 2)
        return m.head(F.relu(m.b(columns)))

    return Net(body, a=conv(2, 6, dims=2), b=nn.Linear(24, 6), head=nn.Linear(6, 2))
