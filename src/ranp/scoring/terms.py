"""Which parameters have a share in the scores of which layers: weights, biases of norms, masks on channels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ranp.errors import PlanMismatchError, UnsupportedError
from ranp.scoring.criteria import by_group
from ranp.tracing.layout import Layout
from ranp.tracing.trace import Layer, Trace


@dataclass(frozen=True, slots=True)
class Term:
    """The share of one parameter in the scores of one layer."""

    layer: int
    """Index of the layer."""
    is_weight: bool
    """True for the layer's weight; False for a bias, a norm's parameter or a mask, with channels in dimension 0."""


Terms = dict[int, tuple[nn.Parameter, list[Term]]]
"""By identity of a parameter: the parameter, and what it is a term of."""
GroupDims = dict[int, dict[int, torch.Tensor]]
"""By identity of a parameter: the class of every index of each of its dimensions that can be cut."""


def find_terms(network: nn.Module, trace: Trace, on: str) -> tuple[Terms, dict[str, str]]:
    """The parameters that the scores come from; and the layers that have none, with the reason."""
    terms: Terms = {}
    layers = trace.layers
    unscored: dict[str, str] = {}
    parameters = dict(network.named_parameters(remove_duplicate=False))
    for index, layer in enumerate(layers):
        weight = _parameter(layer.weight, parameters, _inside(layer.name, "weight"))
        if weight is None and layer.weight in dict(network.named_buffers(remove_duplicate=False)):
            unscored[layer.name] = f"its weight {layer.weight!r} is a buffer, not a parameter"
            continue
        if weight is None:
            raise PlanMismatchError(
                f"layer {layer.name!r} of the trace has its weight in {layer.weight!r}, but the model has no such "
                "parameter. Trace the model that is scored."
            )
        by_group(weight.detach(), layer)  # refuses a weight of another shape before any batch is run
        pairs = _mask_of(network, layer, weight, parameters) if on == "channels" else [(weight, True)]
        for parameter, is_weight in pairs:
            terms.setdefault(id(parameter), (parameter, []))[1].append(Term(index, is_weight))
    if on == "groups":
        for name, _ in trace.dims:
            beside = _parameter(name, parameters)
            if beside is not None:
                terms.setdefault(id(beside), (beside, []))
    return terms, unscored


def find_groups(network: nn.Module, trace: Trace) -> GroupDims:
    """Which parts of which parameters go with which class of channels."""
    found: GroupDims = {}
    parameters, classes = dict(network.named_parameters(remove_duplicate=False)), Layout.of(trace).dim_classes()
    for (name, dim), members in zip(trace.dims, classes, strict=True):
        parameter = _parameter(name, parameters)
        if parameter is not None and parameter.ndim > dim and len(members) % parameter.shape[dim] == 0:
            found.setdefault(id(parameter), {})[dim] = torch.as_tensor(members, device=parameter.device)
    return found


def _parameter(name: str, parameters: Mapping[str, nn.Parameter], *others: str) -> nn.Parameter | None:
    """A parameter; where it was computed from others (weight norm), the effective one that replaced them."""
    plain = re.sub(r"parametrizations\.(\w+)\.original\d*$", r"\1", name)
    names = (name, plain, re.sub(r"_(v|g|orig)$", "", name), *others)
    return next((parameters[text] for text in names if text in parameters), None)


def _mask_of(
    network: nn.Module, layer: Layer, weight: nn.Parameter, parameters: Mapping[str, nn.Parameter]
) -> list[tuple[nn.Parameter, bool]]:
    """The parameters whose ``p * dL/dp`` add up to the gradient of a mask on each channel, behind its norm if any.

    A norm with gamma and beta has that gradient in them. One without is given gamma = 1 and beta = 0 on the copy,
    which changes no output and costs no activation; any other norm gets a real mask on its output.
    """
    if layer.norm is None:
        bias = parameters.get(_inside(layer.name, "bias"))
        fits = bias is not None and bias.shape == (layer.channels,)
        return [(weight, True), (bias, False)] if bias is not None and fits else [(weight, True)]
    norm = network.get_submodule(layer.norm)
    gamma = getattr(norm, "weight", None)
    if gamma is None and isinstance(norm, _BatchNorm | _InstanceNorm | nn.GroupNorm):
        norm.weight = nn.Parameter(torch.ones(layer.channels, dtype=weight.dtype, device=weight.device))
        norm.bias = nn.Parameter(torch.zeros_like(norm.weight))
        gamma = norm.weight
    if isinstance(gamma, nn.Parameter) and gamma.ndim and gamma.shape[0] == layer.channels:
        beta = getattr(norm, "bias", None)
        return [(gamma, False), (beta, False)] if isinstance(beta, nn.Parameter) else [(gamma, False)]
    return [(_masked(norm, layer, weight), False)]


def _masked(norm: nn.Module, layer: Layer, weight: nn.Parameter) -> nn.Parameter:
    """Puts a mask of ones on the output of a module of the copy, and returns the mask."""
    mask = nn.Parameter(torch.ones(layer.channels, dtype=weight.dtype, device=weight.device))
    norm.register_parameter("ranp_mask", mask)
    batched = {"linear": -1, "parameter": 1}.get(layer.kind, 1)

    def apply(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        unbatched = layer.kind in ("conv", "transposed") and output.ndim == weight.ndim - 1
        for dim in (0,) if unbatched else (batched, 1, -1):
            if output.ndim > dim and output.shape[dim] == layer.channels:
                shape = [1] * output.ndim
                shape[dim] = layer.channels
                return output * mask.to(output.dtype).view(shape)
        raise UnsupportedError(
            f"criterion 'neuron-mask' finds no dimension of size {layer.channels} in the output of {layer.norm!r}, "
            f"shape {tuple(output.shape)}, behind layer {layer.name!r}. Use another criterion, e.g. 'mpmg-sum'."
        )

    norm.register_forward_hook(apply)
    return mask


def _inside(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name
