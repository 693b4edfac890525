"""Scores by brute force: explicit masks of ones, multiplied in and differentiated. Slow, and plainly right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ranp.tracing.trace import Layer, Trace

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
Batches = Sequence[tuple[Any, Any]]


def trace_of(model: nn.Module, norms: dict[str, str] | None = None) -> Trace:
    """A trace made by hand: every conv and linear layer, and the norm behind it where the caller names one."""
    layers = []
    for name, module in model.named_modules():
        weight = f"{name}.weight" if name else "weight"
        norm = (norms or {}).get(name)
        if isinstance(module, TRANSPOSED):
            fields = ("transposed", weight, 1, 0, module.groups, module.out_channels)
        elif isinstance(module, CONVS):
            fields = ("conv", weight, 0, 1, module.groups, module.out_channels)
        elif isinstance(module, nn.Linear):
            fields = ("linear", weight, 0, 1, 1, module.out_features)
        else:
            continue
        layers.append(Layer(name, *fields, classes=np.arange(1, fields[-1] + 1), norm=norm))
    return Trace(tuple(layers), {})


def rows(values: Tensor, module: nn.Module) -> Tensor:
    """Values shaped like a module's weight as (output channels, weights of the channel), channel by channel."""
    if not isinstance(module, TRANSPOSED):
        return torch.stack([row.flatten() for row in values])
    per_input, per_output = module.in_channels // module.groups, module.out_channels // module.groups
    return torch.stack(
        [
            values[group * per_input : (group + 1) * per_input, j].flatten()
            for group in range(module.groups)
            for j in range(per_output)
        ]
    )


def weight_masks(model: nn.Module, trace: Trace, batches: Batches, loss: Callable[..., Tensor]) -> list[list[Tensor]]:
    """dL/dc for a mask c on every weight: one list per batch, one tensor per layer."""
    model = copy.deepcopy(model)
    weights = [model.get_parameter(layer.weight).detach() for layer in trace.layers]
    found = []
    for inputs, target in batches:
        masks = [torch.ones_like(weight, requires_grad=True) for weight in weights]
        masked = {layer.weight: w * c for layer, w, c in zip(trace.layers, weights, masks, strict=True)}
        args = inputs if isinstance(inputs, tuple) else (inputs,)
        value = loss(functional_call(model, masked, args), target)
        found.append(list(torch.autograd.grad(value, masks)))
    return found


def channel_masks(model: nn.Module, trace: Trace, batches: Batches, loss: Callable[..., Tensor]) -> dict[str, Tensor]:
    """|mean over batches of dL/dc| for a mask c on the output of each layer, or of the norm behind it."""
    model = copy.deepcopy(model)
    masks = {}
    for layer in trace.layers:
        mask = masks[layer.name] = torch.ones(layer.channels, dtype=torch.float64, requires_grad=True)

        def apply(module: nn.Module, _: Any, output: Tensor, mask: Tensor = mask, kind: str = layer.kind) -> Tensor:
            shape = [-1] if kind == "linear" else [1, -1, *[1] * (output.ndim - 2)]
            return output * mask.view(shape)

        model.get_submodule(layer.norm or layer.name).register_forward_hook(apply)
    total = [torch.zeros_like(mask) for mask in masks.values()]
    for inputs, target in batches:
        value = loss(model(inputs), target)
        total = [a + b for a, b in zip(total, torch.autograd.grad(value, list(masks.values())), strict=True)]
    return {name: (sum_ / len(batches)).abs() for name, sum_ in zip(masks, total, strict=True)}


def expected(
    model: nn.Module, trace: Trace, batches: Batches, loss: Callable[..., Tensor], criterion: str
) -> dict[str, Tensor]:
    """The scores of ``mpmg-*``, ``mnmg-*`` and ``snip`` from explicit masks."""
    kind, _, reduction = criterion.partition("-")
    found = weight_masks(model, trace, batches, loss)
    scores = {}
    for index, layer in enumerate(trace.layers):
        per_batch = torch.stack([masks[index].abs() if kind == "mpmg" else masks[index] for masks in found])
        mean = rows(per_batch.mean(0).abs() if kind == "snip" else per_batch.mean(0), model.get_submodule(layer.name))
        reduced = {"sum": mean.sum(1), "": mean.sum(1), "mean": mean.mean(1), "max": mean.max(1).values}[reduction]
        scores[layer.name] = reduced.abs()
    return scores
