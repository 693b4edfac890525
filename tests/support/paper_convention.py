"""An independent count of the paper's convention: hooks on leaf modules, on the meta device, nothing of ``ranp``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
FREE = (nn.ReLU, nn.ReLU6, nn.MaxPool2d, nn.MaxPool3d, nn.Dropout)


@dataclass
class Count:
    """Elements of parameters, multiply-adds and elements of outputs."""

    params: int = 0
    flops: int = 0
    memory: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.params + other.params, self.flops + other.flops, self.memory + other.memory)

    def printed(self) -> tuple[str, str, str]:
        """Parameters in MB, GFLOPs, memory in MB, as the paper prints them."""
        mb = 4 / 2**20
        return f"{self.params * mb:.2f}", f"{self.flops / 1e9:.2f}", f"{self.memory * mb:.2f}"


def leaf_flops(module: nn.Module, given: Tensor, out: Tensor) -> int:
    """FLOPs of one call of a leaf module in the paper's convention."""
    if isinstance(module, CONVS):
        per_output = module.in_channels // module.groups * math.prod(module.kernel_size)
        return out.numel() * (per_output + (module.bias is not None))
    if isinstance(module, nn.Linear):
        return out.numel() * (2 * module.in_features - 1 + (module.bias is not None))
    if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm3d)):
        return 4 * out.numel()
    if isinstance(module, (nn.AvgPool2d, nn.AvgPool3d)):
        size, dims = module.kernel_size, given.dim() - 2
        return (math.prod(size if isinstance(size, tuple) else (size,) * dims) + 1) * out.numel()
    if isinstance(module, nn.Softmax):
        return out.shape[0] * (3 * out.shape[1] - 1)
    assert isinstance(module, FREE), f"no rule for {type(module).__name__}"
    return 0


def count(model: nn.Module, inputs: tuple[Tensor, ...]) -> dict[nn.Module, Count]:
    """What every leaf module of ``model`` costs in one eval-mode call; ``model`` and ``inputs`` are on meta."""
    counts: dict[nn.Module, Count] = {}

    def hook(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        counts.setdefault(module, Count(params=sum(p.numel() for p in module.parameters())))
        counts[module] += Count(0, leaf_flops(module, given[0], out), out.numel())

    handles = [m.register_forward_hook(hook) for m in model.modules() if not list(m.children())]
    model.eval()
    with torch.no_grad():
        model(*inputs)
    for handle in handles:
        handle.remove()
    return counts


def layers(model: nn.Module) -> dict[str, nn.Module]:
    """Convolutions, transposed convolutions and linear layers, in ``named_modules`` order."""
    return {name: m for name, m in model.named_modules() if isinstance(m, (*CONVS, nn.Linear))}


def widths(model: nn.Module) -> list[int]:
    """Output channels of every layer."""
    return [m.out_features if isinstance(m, nn.Linear) else m.out_channels for m in layers(model).values()]
