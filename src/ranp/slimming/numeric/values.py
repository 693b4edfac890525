"""Values to compare on: weights, statistics and inputs in which a misplaced channel shows.

Fresh networks hold equal numbers (a bias of zeros, a variance of ones), and two equal numbers may change places unseen.
So they are drawn; but a number that is squared, rooted or divided by must keep its sign and its range, or both networks
give nothing finite and there is nothing to compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ranp.running.calling import at_least_two, is_floating, map_tensors, named_tensors, tensors_in
from ranp.running.copies import copy_model
from ranp.tracing.cutting import cut_tensor

DRAWN, CAREFUL, OWN, REDRAWN = "drawn", "careful", "own", "redrawn"
"""How values are chosen: equal ones drawn freely; all signs and ranges left as they are; nothing changed at all;
weights drawn anew, with the spread they have."""


def networks(
    model: nn.Module,
    slim: nn.Module,
    keeps: Mapping[str, Mapping[int, Sequence[int]]],
    *,
    values: str,
    double: bool,
    generator: torch.Generator,
) -> tuple[nn.Module, nn.Module]:
    """Copies of the full and the slim network that hold the same values, in float64 or in float32.

    A parameter whose values and type do not change shares its storage with the original.
    """
    full = dict(named_tensors(model))
    drawn = {name: _value(name, tensor, values, double, generator) for name, tensor in full.items()}
    wide = {id(full[name]): _twin(full[name], value) for name, value in drawn.items()}
    thin: dict[int, torch.Tensor] = {}
    for name, tensor in named_tensors(slim):
        unchanged = drawn[name] is full[name] and tensor.device.type != "meta"
        thin[id(tensor)] = _twin(tensor, tensor if unchanged else cut_tensor(drawn[name], keeps.get(name, {})))
    return copy_model(model, meta=False, twins=wide), copy_model(slim, meta=False, twins=thin)


def _twin(original: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """What stands in a copy for a tensor; buffers are written to while a network runs, so they get their own."""
    if isinstance(original, nn.Parameter):
        return nn.Parameter(value.detach(), original.requires_grad)
    return value.detach().clone()


def _value(name: str, tensor: torch.Tensor, values: str, double: bool, generator: torch.Generator) -> torch.Tensor:
    """The value of one tensor of the full network in a comparison; the tensor itself where it may stay as it is."""
    if not is_floating(tensor):
        return torch.zeros(tensor.shape, dtype=tensor.dtype) if tensor.device.type == "meta" else tensor
    if tensor.device.type == "meta":
        return _made(name, tensor, values, double, generator)
    wide = _converted(tensor.detach(), double)
    if values == OWN or not tensor.numel():
        return tensor if wide.dtype == tensor.dtype else wide
    equal = bool((wide == wide.flatten()[0]).all())
    if values == REDRAWN and not equal and tensor.dim() > 1 and isinstance(tensor, nn.Parameter):
        return wide.mean() + wide.std() * _noise(wide, generator)
    if tensor.dim() > 1 and not equal:
        return tensor if wide.dtype == tensor.dtype else wide
    if values in (DRAWN, REDRAWN) and tensor.dim() > 1:
        return _scaled_noise(wide, generator)
    if values == REDRAWN and name.endswith("bias"):  # so that units which never fire do
        return wide.abs() + _uniform(wide, generator)
    if not bool(wide.any()):
        return 0.3 * (_noise(wide, generator) if values in (DRAWN, REDRAWN) else _uniform(wide, generator))
    return wide * (0.5 + _uniform(wide, generator))


def _made(name: str, tensor: torch.Tensor, values: str, double: bool, generator: torch.Generator) -> torch.Tensor:
    """Values for a tensor that holds no data: of the size that an initialisation would give them."""
    dtype = _converted(torch.empty(0, dtype=tensor.dtype), double).dtype
    like = torch.empty(tensor.shape, dtype=dtype)
    if tensor.dim() > 1:
        return _scaled_noise(like, generator)
    if values == CAREFUL or name.endswith(("running_var", "weight")):
        return 0.5 + _uniform(like, generator)
    return 0.3 * _noise(like, generator)


def _converted(tensor: torch.Tensor, double: bool) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128 if double else torch.complex64)
    return tensor.to(torch.float64 if double else torch.float32)


def _noise(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def _scaled_noise(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Weights of the size that keeps activations as large as they are."""
    return _noise(like, generator).div_(math.sqrt(max(1, like[0].numel())))


def _uniform(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    real = torch.float64 if like.dtype in (torch.float64, torch.complex128) else torch.float32
    return torch.rand(like.shape, generator=generator, dtype=real).to(like.device)


def inputs_for(example: Any, *, values: str, double: bool, generator: torch.Generator) -> Any:
    """Inputs of one call; what holds no data, or the same value everywhere, is drawn at random."""

    def draw(x: torch.Tensor) -> torch.Tensor:
        if not is_floating(x):
            return x
        if x.device.type == "meta":
            x = torch.zeros(x.shape, dtype=x.dtype)
        wide = _converted(x.detach(), double)
        if values == OWN or not x.numel() or not bool((wide == wide.flatten()[0]).all()):
            return wide
        return _noise(wide, generator) if values in (DRAWN, REDRAWN) else 0.5 + _uniform(wide, generator)

    return map_tensors(draw, example)


def with_rows(inputs: Any, rows: int, *, values: str) -> Any:
    """Inputs with at least so many samples, the given ones repeated, no two of them alike.

    A batch of equal samples leaves norms in train mode nothing but rounding noise to scale up.
    """
    sizes = {int(t.shape[0]) for t in tensors_in(inputs) if t.dim() > 1}
    if len(sizes) == 1:
        batch = sizes.pop()
        times = math.ceil(rows / max(1, batch))

        def repeat(x: torch.Tensor) -> torch.Tensor:  # vectors too: labels, lengths, time steps
            return x.repeat(times, *[1] * (x.dim() - 1)) if x.dim() and x.shape[0] == batch else x

        inputs = map_tensors(repeat, inputs)
    else:  # not every first dimension is a batch
        inputs = at_least_two(inputs, rows)
    generator = torch.Generator().manual_seed(1)

    def shake(x: torch.Tensor) -> torch.Tensor:
        if not is_floating(x) or x.dim() < 2:
            return x
        if values in (DRAWN, REDRAWN):
            return x + 0.5 * x.std() * _noise(x, generator)
        return x * (0.5 + _uniform(x, generator))

    return map_tensors(shake, inputs)


def shaken(inputs: Any) -> Any:
    """Inputs that are off by a rounding error."""
    generator = torch.Generator().manual_seed(2)

    def shake(x: torch.Tensor) -> torch.Tensor:
        return x * (1 + 4 * torch.finfo(x.dtype).eps * _noise(x, generator)) if is_floating(x) else x

    return map_tensors(shake, inputs)
