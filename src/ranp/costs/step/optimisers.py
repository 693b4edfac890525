"""Torch's own optimisers in their steady state: with the state that their first step leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

_MADE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters, **options: torch.optim.SGD(parameters, lr=1e-3, **options),
    "momentum": lambda parameters, **options: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **options),
    "nesterov": lambda parameters, **options: torch.optim.SGD(
        parameters, lr=1e-3, momentum=0.9, nesterov=True, **options
    ),
    "adam": lambda parameters, **options: torch.optim.Adam(parameters, lr=1e-3, **options),
    "amsgrad": lambda parameters, **options: torch.optim.Adam(parameters, lr=1e-3, amsgrad=True, **options),
    "adamw": lambda parameters, **options: torch.optim.AdamW(parameters, lr=1e-3, **options),
    "rmsprop": lambda parameters, **options: torch.optim.RMSprop(parameters, lr=1e-3, **options),
}
_STATE = {
    "sgd": (),
    "momentum": ("momentum_buffer",),
    "nesterov": ("momentum_buffer",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "amsgrad": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
    "rmsprop": ("square_avg",),
}
_COUNTED = ("adam", "amsgrad", "adamw", "rmsprop")
"""Those that count their steps, in one tensor per parameter."""


def name_of(optimiser: torch.optim.Optimizer) -> str | None:
    """What ``TrainingStep`` calls an optimiser; None if it has no word for it.

    >>> name_of(torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9, nesterov=True))
    'nesterov'
    """
    options = optimiser.param_groups[0]
    if isinstance(optimiser, torch.optim.SGD):
        return "nesterov" if options["nesterov"] else "momentum" if options["momentum"] else "sgd"
    if isinstance(optimiser, torch.optim.Adam | torch.optim.AdamW) and options["amsgrad"]:
        return "amsgrad"
    kinds = {torch.optim.AdamW: "adamw", torch.optim.Adam: "adam", torch.optim.RMSprop: "rmsprop"}
    return next((name for kind, name in kinds.items() if isinstance(optimiser, kind)), None)


def make(name: str, model: nn.Module, *, foreach: bool | None = None) -> torch.optim.Optimizer | None:
    """A fresh optimiser over the parameters that train; None for ``"none"`` or if there is none to train."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name == "none" or not parameters:
        return None
    options: dict[str, Any] = {} if foreach is None else {"foreach": foreach}
    return _MADE[name](parameters, **options)


def settle(optimiser: torch.optim.Optimizer, name: str) -> list[tuple[Tensor, Tensor]]:
    """Gives an optimiser over data-free parameters its state; returns each tensor of it with its parameter."""
    made: list[tuple[Tensor, Tensor]] = []
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            state: dict[str, Tensor] = {}
            if name in _COUNTED:
                with unset_fake_temporarily():  # the optimiser reads it
                    state["step"] = torch.zeros(())
            for key in _STATE[name]:
                state[key] = torch.empty_like(parameter, requires_grad=False)
            optimiser.state[parameter] = state
            made.extend((parameter, tensor) for tensor in state.values())
    return made
