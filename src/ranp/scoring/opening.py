"""Branches that begin at zero: a gate, a norm or a layer whose weights are all zero lets no gradient through.

ReZero, norms with a first weight of zero and zero convolutions make a branch add nothing at the start of training. Its
layers then have scores of zero by construction, which says nothing of their worth. They are scored as if the gate were
small instead: a tenth of what is usual. The network itself, and the slim one, keep their zeros.
"""

from __future__ import annotations

import torch
from torch import nn

OPENED = 0.1
"""How far a gate is opened: a norm's weight is one otherwise, a layer's is drawn as torch draws it."""


def open_gates(network: nn.Module, seed: int) -> list[str]:
    """Replaces parameters of a working copy that are all zero, biases aside, by small ones; their names."""
    generator = torch.Generator("cpu").manual_seed(seed)
    found: dict[int, nn.Parameter] = {}
    names = []
    for name, module in network.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is None or key.endswith("bias") or not parameter.is_floating_point() or parameter.any():
                continue
            names.append(f"{name}.{key}".lstrip("."))
            if id(parameter) not in found:
                found[id(parameter)] = nn.Parameter(_small(parameter, generator))
            module._parameters[key] = found[id(parameter)]
    return names


def _small(parameter: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A constant for gates and norms; for what has inputs, uniform numbers as large as their count allows."""
    if sum(size > 1 for size in parameter.shape) < 2:
        return torch.full_like(parameter, OPENED)
    drawn = torch.rand(parameter.shape, generator=generator, device="cpu", dtype=torch.float64) * 2 - 1
    inputs = parameter.numel() // parameter.shape[0]
    return torch.empty_like(parameter).copy_(drawn.mul_(OPENED / inputs**0.5))
