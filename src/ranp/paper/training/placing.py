"""Where tensors go and in which precision a network runs: device, memory format, autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ranp.costs.step.running import casting
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Inputs

__all__ = ["autocast", "placed"]


def autocast(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    """The recipe's precision."""
    return casting(recipe.step(), device.type)


def placed(inputs: Inputs, recipe: Recipe, device: torch.device) -> Inputs:
    """Inputs on the device, volumes in the recipe's memory format."""

    def place(tensor: Tensor) -> Tensor:
        moved = tensor.to(device, non_blocking=True)
        last = recipe.channels_last and moved.dim() == 5
        return moved.contiguous(memory_format=torch.channels_last_3d) if last else moved

    result: Inputs = tree_map(place, inputs)
    return result
