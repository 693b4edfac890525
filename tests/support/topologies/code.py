"""Topologies: code around the operators: computed weights, branches, state, hooks, random order, late construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.support.topologies.patterns import between, spatial
from tests.support.topologies.topology import Collection, Net, conv, line, tensor, up, volume

CODE = Collection()


def through(layer: nn.Module) -> Net:
    """A network with one more layer, ``inner``, between ``stem`` and ``b``."""
    return between(lambda m, x: m.inner(x), inner=layer)


@CODE.add(volume(), prunable="a stem inner b", kept="head", masked=False)
def weight_norm_by_hook() -> nn.Module:
    net = through(nn.utils.weight_norm(conv(8, 8)))
    with torch.no_grad():  # the computed weight is left on the layer; on a graph it could not be copied by anyone
        net(tensor(2, 2, 4, 4, 4))
    return net


@CODE.add(volume(), prunable="a b", kept="head", masked=False)
def spectral_norm_by_hook() -> nn.Module:
    return through(nn.utils.spectral_norm(conv(8, 8)))


@CODE.add(volume(), prunable="a b", kept="head", masked=False)
def weight_norm_of_a_transposed_layer() -> nn.Module:
    return between(lambda m, x: m.inner(x), inner=nn.utils.parametrizations.weight_norm(up(8, 8), dim=1))


@CODE.add(line(), prunable="stem inner", kept="head", together=("stem inner",), masked=False)
def weight_norm_along_a_kernel() -> nn.Module:
    """One length for each place of the kernel, over inputs and outputs; the layer's groups stand for positions."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        return m.head(x + torch.tanh(m.inner(x)))

    inner = nn.utils.parametrizations.weight_norm(conv(8, 8, dims=1, groups=2), dim=2)
    return Net(body, stem=conv(2, 8, dims=1), inner=inner, head=conv(8, 3, dims=1))


class Computed(nn.Module):
    """A parametrization from a function of the weight."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, weight: Tensor) -> Tensor:
        return self.function(weight)


class LowRank(nn.Module):
    """A parametrization that adds a product of two thin matrices, as LoRA does."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(tensor(8, 3) / 3), nn.Parameter(tensor(3, 8, seed=2) / 3)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + spatial(self.up @ self.down)


def parametrized(module: nn.Module) -> nn.Module:
    """A convolution with a parametrization of its weight."""
    layer = conv(8, 8)
    parametrize.register_parametrization(layer, "weight", module)
    return layer


@CODE.add(volume(), prunable="a stem inner b", kept="head", masked=False)
def parametrization_low_rank() -> nn.Module:
    return through(parametrized(LowRank()))


@CODE.add(volume(), prunable="a stem inner b", kept="head", masked=False)
def parametrization_standardised() -> nn.Module:
    def standardise(w: Tensor) -> Tensor:
        return (w - w.mean((1, 2, 3, 4), keepdim=True)) / (w.std((1, 2, 3, 4), keepdim=True) + 1e-5)

    return through(parametrized(Computed(standardise)))


@CODE.add(volume(), prunable="a stem inner b", kept="head", masked=False, together=("stem inner",))
def parametrization_symmetric() -> nn.Module:
    return through(parametrized(Computed(lambda w: (w + w.transpose(0, 1)) / 2)))


@CODE.add(volume(), prunable="a b", kept="stem head gen", masked=False)
def hypernetwork_with_written_sizes() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return F.conv3d(x, m.gen(m.z).view(8, 8, 1, 1, 1))

    return between(body, gen=nn.Linear(5, 64), z=nn.Parameter(tensor(5)))


@CODE.add(volume(), prunable="a stem b", kept="head", masked=False)
def kernels_mixed_by_a_route() -> nn.Module:
    """Conditional convolution: a softmax mixes the kernels of three experts."""

    def body(m: Net, x: Tensor) -> Tensor:
        share = m.route(x.mean((0, 2, 3, 4))).softmax(0).view(-1, 1, 1, 1, 1, 1)
        return F.conv3d(x, (share * m.experts).sum(0), padding=1)

    return between(body, route=nn.Linear(8, 3), experts=nn.Parameter(tensor(3, 8, 8, 3, 3, 3) / 9))


@CODE.add(volume(), prunable="a b", kept="stem head", masked=False)
def weight_in_another_order() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return F.conv3d(x, m.w[:, torch.arange(7, -1, -1)], padding=1)

    return between(body, w=nn.Parameter(tensor(8, 8, 3, 3, 3) / 9))


@CODE.add(volume(), prunable="a stem b", kept="head", consumers={"ws.0": 1, "named.last": 1})
def weights_in_lists_and_dicts() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return F.conv3d(F.relu(F.conv3d(x, m.ws[0])), m.named["last"])

    ws = nn.ParameterList([nn.Parameter(tensor(8, 8, 1, 1, 1))])
    return between(body, ws=ws, named=nn.ParameterDict({"last": nn.Parameter(tensor(8, 8, 1, 1, 1, seed=2))}))


@CODE.add(lambda: torch.tensor([[1, 2, 3], [4, 5, 6]]), prunable="wide thin", kept="out", consumers={"table.weight": 1})
def tied_embedding() -> nn.Module:
    def body(m: Net, index: Tensor) -> Tensor:
        x = m.table(index)
        return m.out(m.thin(F.relu(m.wide(x))) + x)

    layers = {"wide": nn.Linear(8, 12), "thin": nn.Linear(12, 8), "out": nn.Linear(8, 9, bias=False)}
    net = Net(body, table=nn.Embedding(9, 8), **layers)
    net.out.weight = net.table.weight
    return net


@CODE.add(volume(), prunable="a b", kept="head", masked=False)
def halved_until_small() -> nn.Module:
    """How often depends on the data."""

    def body(_: Net, x: Tensor) -> Tensor:
        while float(x.detach().norm()) > 1.0:
            x = x * 0.5
        return x

    return between(body)


@CODE.add(volume(), prunable="a b", kept="exit head")
def early_exit() -> nn.Module:
    """A head that did not make the output this time makes it the next time."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x))
        early = m.exit(x)
        return early if float(early.detach().abs().max()) < 1e-9 else m.head(F.relu(m.b(x)))

    return Net(body, a=conv(2, 6), exit=conv(6, 2), b=conv(6, 6), head=conv(6, 2))


@CODE.add(volume(), prunable="a b", kept="head", masked=False, unknown=None)
def routed_to_one_expert() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        best, out = m.route(x.mean((2, 3, 4))).argmax(1), torch.zeros_like(x)
        for index, expert in enumerate(m.experts):
            chosen = best == index
            if chosen.any():
                out[chosen] = expert(x[chosen])
        return out + m.route(x.mean((2, 3, 4))).sum() * x

    return between(body, route=nn.Linear(8, 2), experts=nn.ModuleList([conv(8, 8) for _ in range(2)]))


@CODE.add(volume(), prunable="a stem p b", kept="head", stochastic=True, together=("stem p",))
def drop_path() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        y = m.p(x)
        return x + (y * x.new_empty(x.shape[0], 1, 1, 1, 1).bernoulli_(0.8) / 0.8 if m.training else y)

    return between(body, p=conv(8, 8))


def double(_: nn.Module, __: Any, output: Tensor) -> Tensor:
    """A hook that gives twice as many channels."""
    return torch.cat([output, output.flip(1)], 1)


@CODE.add(volume(), prunable="a stem inner b", kept="head")
def hook_that_changes_the_output() -> nn.Module:
    net = between(lambda m, x: m.inner(x), out=16, inner=conv(8, 8))
    net.inner.register_forward_hook(double)
    return net


@CODE.add(volume(), prunable="a stem p b", kept="head")
def picked_by_name_and_index() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.chosen["second"](m.p(x)) + m.row[-1](m.row[1:](x))

    chosen = nn.ModuleDict({"first": nn.Tanh(), "second": nn.ReLU()})
    return between(body, p=conv(8, 8), chosen=chosen, row=nn.Sequential(nn.Tanh(), conv(8, 8), nn.Identity()))


@CODE.add(volume(), prunable="a stem inner b", kept="head")
def called_with_other_weights() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return torch.func.functional_call(m.inner, {"weight": m.inner.weight * 0.5, "bias": m.inner.bias}, (x,))

    return between(body, inner=conv(8, 8))


class Doubled(torch.autograd.Function):
    """A function with a gradient of its own that reverses channels."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x + x.flip(1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient + gradient.flip(1)


@CODE.add(volume(), prunable="a stem b", kept="head")
def function_with_its_own_gradient() -> nn.Module:
    return between(lambda _, x: Doubled.apply(x))


@CODE.add(volume(), prunable="a stem p.0 b", kept="head")
def checkpointed_sequences_in_autocast() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = checkpoint(m.q, x, use_reentrant=False)
        return checkpoint_sequential(m.p, 2, y.to(x.dtype), use_reentrant=False)

    return between(body, q=conv(8, 8), p=nn.Sequential(conv(8, 8), nn.ReLU(), conv(8, 8), nn.ReLU()))


class Remembers(nn.Module):
    """Adds what it saw in the call before, and keeps features in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Tensor | None = None
        self.features: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.before is None or self.before.shape != x.shape else x + 0.1 * self.before
        self.before, self.features = x.detach(), [y]
        return y


@CODE.add(volume(), prunable="a b", kept="head", masked=False)
def state_from_call_to_call() -> nn.Module:
    return through(Remembers())


class RunningMean(nn.Module):
    """Subtracts a mean that training moves, in a new tensor each time."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 2, 3, 4))
        return x - spatial(self.mean)


@CODE.add(volume(), prunable="a stem b", kept="head", cuttable=(("inner.mean", 0),))
def buffer_replaced_in_training() -> nn.Module:
    return through(RunningMean())


class Late(nn.Module):
    """Makes its layer when it first sees an input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.layer is None:
            self.layer = nn.Conv3d(x.shape[1], 8, 1).to(x.device, x.dtype)
        return self.layer(x)


@CODE.add(volume(), prunable="a stem inner.layer b", kept="head")
def built_on_an_earlier_call() -> nn.Module:
    net = through(Late())
    net(tensor(2, 2, 4, 4, 4))
    return net


@CODE.add(volume(), prunable="a stem inner.0 b", kept="head")
def lazy_layers_after_a_call() -> nn.Module:
    net = through(nn.Sequential(nn.LazyConv3d(8, 3, padding=1), nn.LazyBatchNorm3d(), nn.ReLU()))
    net(tensor(2, 2, 4, 4, 4))
    return net
