"""Networks that a fresh process builds again: plain ones, and ones whose constructor needs data."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ranp.paper.models import UNet3d

EXAMPLE = (2, 1, 8, 8, 8)


def paper_unet() -> nn.Module:
    return UNet3d(1, 3, widths=(8, 16))


def monai_unet() -> nn.Module:
    from monai.networks.nets import UNet

    return UNet(3, 1, 2, channels=(8, 16), strides=(2,), num_res_units=1)


class Chain(nn.Module):
    """Three convolutions; what its subclasses add is what reloading must not lose."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm3d(8)
        self.second = nn.Conv3d(8, 8, 3, padding=1)
        self.head = nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.norm(self.first(x)).relu()).relu())


class SharedWeights(Chain):
    """One weight under two names, and one module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Conv3d(8, 8, 3, padding=1)
        self.third.weight = self.second.weight
        self.again = self.second

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.norm(self.first(x)).relu()).relu()
        return self.head(self.again(self.third(x).relu()).relu())


class AsksForAValue(Chain):
    """``.item()`` in the constructor, as stochastic depth does."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0.5, 1.0, 2)]
        self.more = torch.linspace(1.0, 2.0, 2).tolist()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.rates[0] * self.more[1]


class FilledByNumpy(Chain):
    """Weights that numpy computes, some from other weights."""

    def __init__(self) -> None:
        super().__init__()
        generator = np.random.default_rng(0)
        with torch.no_grad():
            self.first.weight.copy_(torch.from_numpy(generator.normal(size=(8, 1, 3, 3, 3)).astype(np.float32)))
            self.second.bias.copy_(torch.from_numpy(self.first.weight.numpy().sum((1, 2, 3, 4))))


class BranchesOnData(Chain):
    """What is built depends on the values of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Conv3d(8, 8, 1) if self.first.weight.abs().sum() > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.extra(self.norm(self.first(x)).relu()).relu())


class NonPersistent(Chain):
    """A buffer that is not in the state dict, and one that changes while training."""

    scale: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(1, 8, 1, 1, 1), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.norm(self.first(x)) * self.scale).relu()) + self.seen


class InAnAttribute(Chain):
    """A tensor for each channel that is neither a parameter nor a buffer, and another one in every build."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.rand(1, 8, 1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.norm(self.first(x)) * self.scale).relu())


class WeightNorm(Chain):
    """A weight computed from two others."""

    def __init__(self) -> None:
        super().__init__()
        self.second = parametrizations.weight_norm(self.second)


class HiddenTensors(Chain):
    """Tensors where only a real build gives them values: in a list, a closure, a partial, an object, a default."""

    class Holder:
        def __init__(self) -> None:
            self.value = torch.tensor(1.25)

    def __init__(self, place: str) -> None:
        super().__init__()
        value = torch.full((), 1.5)
        if place == "list":
            self.held = [value]
            self.factor: Callable[[], Tensor] = self.from_list
        elif place == "closure":
            self.factor = lambda: value
        elif place == "partial":
            self.factor = functools.partial(torch.mul, value, value)
        elif place == "default":
            self.factor = lambda own=value: own
        else:
            self.holder = self.Holder()
            self.factor = self.from_holder

    def from_list(self) -> Tensor:
        return self.held[0]

    def from_holder(self) -> Tensor:
        return self.holder.value

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor()


class Unregistered(Chain):
    """A module that the network does not know as its own, the same every time it is built."""

    def __init__(self) -> None:
        super().__init__()
        blur = nn.Conv3d(8, 8, 1, bias=False)
        with torch.no_grad():
            blur.weight.copy_(torch.eye(8)[:, :, None, None, None])
        self.fixed = [blur.requires_grad_(False)]

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.first(x)).relu()
        return self.head(F.relu(hidden + self.second(self.fixed[0](hidden))))


BUILDS: dict[str, Callable[[], nn.Module]] = {
    "paper_unet": paper_unet,
    "monai_unet": monai_unet,
    "shared_weights": SharedWeights,
    "asks_for_a_value": AsksForAValue,
    "filled_by_numpy": FilledByNumpy,
    "branches_on_data": BranchesOnData,
    "non_persistent": NonPersistent,
    "in_an_attribute": InAnAttribute,
    "weight_norm": WeightNorm,
    "unregistered": Unregistered,
    **{f"hidden_in_{p}": functools.partial(HiddenTensors, p) for p in "list closure partial default object".split()},
}
