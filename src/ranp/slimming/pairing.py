"""Initial weights that networks of different widths share: what differs between them is then their widths alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ranp.errors import PlanMismatchError
from ranp.running.calling import named_tensors
from ranp.slimming.initialisation import TRANSPOSED, WEIGHTED


def share_weights(slim: nn.Module, full: nn.Module) -> None:
    """Gives a slim network the first channels of the full one, in place, rescaled to its own number of inputs.

    Two networks of different widths that were cut from one full network then begin as alike as they can, whichever
    channels their plans name. Weights and biases of convolutions and linear layers are multiplied by the root of the
    full over the own number of inputs of an output; everything else is taken as it is.

        >>> full, slim = nn.Linear(8, 4), nn.Linear(2, 3)
        >>> share_weights(slim, full)
        >>> torch.equal(slim.weight, 2 * full.weight[:3, :2])
        True

    Args:
        slim: A network cut from the full one: the same tensors by name, none larger.
        full: The full network.

    Raises:
        PlanMismatchError: It was not cut from that network.
    """
    whole = dict(named_tensors(full))
    firsts = {name: _first(name, tensor, whole) for name, tensor in named_tensors(slim)}
    scales: dict[str, float] = {}
    for name, module in slim.named_modules():
        if isinstance(module, WEIGHTED):
            prefix = f"{name}." if name else ""
            scale = math.sqrt(_inputs(full.get_submodule(name)) / _inputs(module))
            scales |= {f"{prefix}weight": scale, f"{prefix}bias": scale}
    with torch.no_grad():
        for name, tensor in named_tensors(slim):
            tensor.copy_(scales[name] * firsts[name] if name in scales else firsts[name])


def _inputs(module: nn.Module) -> int:
    """How many numbers one output is made of."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    if isinstance(module, TRANSPOSED):
        return weight.shape[0] // module.groups * math.prod(weight.shape[2:])
    return math.prod(weight.shape[1:])


def _first(name: str, tensor: Tensor, whole: dict[str, Tensor]) -> Tensor:
    """The beginning of the full network's tensor, as large as the slim one's."""
    full = whole.get(name)
    if full is None or full.dim() != tensor.dim() or any(a > b for a, b in zip(tensor.shape, full.shape, strict=True)):
        raise PlanMismatchError(f"{name!r} does not come from this full network. Pass the one that was made slim.")
    return full[tuple(map(slice, tensor.shape))]
