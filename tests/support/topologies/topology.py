"""One small network together with what a correct tracer must find in it, and the words to write many of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Topology:
    """A small network, an input of it, and which of its channels may go.

    Attributes:
        name: Name of the function that builds it.
        build: Makes the network; its weights depend on the global generator.
        inputs: Makes one call's inputs as ``ranp`` takes them: a tensor, a tuple to splat or a dict of keywords.
        prunable: Layers that must be able to lose channels.
        kept: Layers that every plan must leave whole.
        together: Groups of layers that must keep the same channels.
        cuttable: ``(tensor, dimension)`` pairs that must be cuttable: weights used by function call.
        unknown: True if it runs an operator nobody can have a rule for, None if having a rule is a matter of taste.
        masked: False where silencing the inputs of the consumers cannot stand for removal, because something other
            than a norm module mixes channels.
        stochastic: True if training mode draws random numbers outside of dropout modules.
        silenced: Layers whose removed outputs must be silenced at their producer: they meet no weight afterwards.
        consumers: ``{tensor: input dimension}`` of weights that are used by function call.
        statistics: ``{norm without parameters: layer whose kept channels it sees}``.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Any]
    prunable: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    cuttable: tuple[tuple[str, int], ...] = ()
    unknown: bool | None = False
    masked: bool = True
    stochastic: bool = False
    silenced: tuple[str, ...] = ()
    consumers: Mapping[str, int] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict)


class Net(nn.Module):
    """Named modules and parameters, and a plain function of them and of the inputs as the forward pass."""

    def __init__(self, body: Callable[..., Any], **members: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.body = body
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Run the function."""
        return self.body(self, *inputs, **keywords)


Builder = Callable[[], nn.Module]


class Collection(dict[str, Topology]):
    """Topologies by name; filled by decorating their builders."""

    def add(
        self,
        inputs: Callable[[], Any],
        *,
        prunable: str = "",
        kept: str = "",
        together: tuple[str, ...] = (),
        **rest: Any,
    ) -> Callable[[Builder], Builder]:
        """Decorator that adds a builder under its own name; lists of layers are written with spaces."""

        def register(build: Builder) -> Builder:
            assert build.__name__ not in self, build.__name__
            self[build.__name__] = Topology(
                name=build.__name__,
                build=build,
                inputs=inputs,
                prunable=tuple(prunable.split()),
                kept=tuple(kept.split()),
                together=tuple(tuple(group.split()) for group in together),
                **rest,
            )
            return build

        return register


def tensor(*shape: int, seed: int = 0) -> Tensor:
    """A random tensor that is always the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def line(channels: int = 2, size: int = 8, batch: int = 2) -> Callable[[], Tensor]:
    """A 1D input."""
    return lambda: tensor(batch, channels, size)


def image(channels: int = 2, size: int = 6, batch: int = 2) -> Callable[[], Tensor]:
    """A 2D input."""
    return lambda: tensor(batch, channels, size, size)


def volume(channels: int = 2, size: int = 4, batch: int = 2) -> Callable[[], Tensor]:
    """A 3D input."""
    return lambda: tensor(batch, channels, size, size, size)


def several(*makers: Callable[[], Any]) -> Callable[[], tuple[Any, ...]]:
    """Inputs of a network that takes several."""
    return lambda: tuple(make() for make in makers)


CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def conv(fan_in: int, out: int, kernel: int = 3, *, dims: int = 3, **options: Any) -> nn.Module:
    """A convolution that keeps the spatial size."""
    return CONVS[dims](fan_in, out, kernel, padding=kernel // 2, **options)


def up(fan_in: int, out: int, *, dims: int = 3, **options: Any) -> nn.Module:
    """A transposed convolution that doubles the spatial size."""
    return TRANSPOSED[dims](fan_in, out, 2, stride=2, **options)


def unit(fan_in: int, out: int, *, dims: int = 3, kernel: int = 3, **options: Any) -> nn.Sequential:
    """Convolution, batch norm, ReLU: layer ``0`` of the sequence is the convolution."""
    return nn.Sequential(conv(fan_in, out, kernel, dims=dims, **options), BATCH_NORMS[dims](out), nn.ReLU())
