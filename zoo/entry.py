"""One network of the zoo: how it is built, what it eats, and a loss that any output has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A network that nobody here wrote, or one written after a paper or a package that cannot be installed.

    Attributes:
        name: What the coverage table calls it.
        family: ``"monai"``, ``"medical"``, ``"video"``, ``"stereo"``, ``"image"`` or ``"audio"``.
        make: Makes it; its weights depend on the global generator.
        shapes: Shapes of the inputs of one call, batch first, as small as the network allows.
        ordinary: Shapes that people train with, for times; ``shapes`` if empty.
        inputs: Makes the inputs of one call from a list of tensors, where they are not simply splatted.
    """

    name: str
    family: str
    make: Callable[[], nn.Module]
    shapes: tuple[Shape, ...]
    ordinary: tuple[Shape, ...] = ()
    inputs: Callable[[list[Tensor]], Any] = tuple

    def build(self) -> nn.Module:
        """The network, with the same weights every time."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return self.make()

    def example(self, *, seed: int = 0, ordinary: bool = False, dtype: torch.dtype = torch.float32) -> Any:
        """The inputs of one call, always the same for a seed."""
        generator = torch.Generator().manual_seed(seed)
        shapes = self.ordinary if ordinary and self.ordinary else self.shapes
        return self.inputs([torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes])

    def batches(self, count: int = 1, *, ordinary: bool = False) -> list[tuple[Any, None]]:
        """Batches for ``ranp.prune``: the loss needs no target."""
        return [(self.example(seed=seed, ordinary=ordinary), None) for seed in range(count)]


def floating(output: Any) -> Iterator[Tensor]:
    """The floating-point tensors of any output: a tuple, a dict, a dataclass, a list with None."""
    leaves = tree_leaves(vars(output) if hasattr(output, "__dataclass_fields__") else output)
    return (leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point())


def loss(output: Any, target: Any = None) -> Tensor:
    """A loss for outputs of any form: every element has its own weight, so no gradient cancels by symmetry."""
    total = torch.zeros(())
    for tensor in floating(output):
        generator = torch.Generator().manual_seed(tensor.numel())
        weights = torch.rand(tensor.shape, generator=generator).to(tensor)
        total = total.to(tensor) + ((tensor - weights) ** 2 * weights).mean()
    return total
