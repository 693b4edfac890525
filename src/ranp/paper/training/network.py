"""The network of a run: built, cut by a plan, weights drawn as the recipe says; its optimiser, precision and device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ranp.choosing.plan import Plan, Sparsity
from ranp.costs.step.running import casting
from ranp.errors import RanpError, UnsupportedError
from ranp.paper import models
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Inputs, Task
from ranp.running.calling import call
from ranp.slimming.initialisation import WEIGHTED
from ranp.slimming.verification import slim


def options_of(task: Task, recipe: Recipe) -> dict[str, Any]:
    """Arguments of the network: the recipe's, and what the data demand, which wins over what a task's recipe assumes.

    Raises:
        UnsupportedError: The network has no such argument, or the recipe contradicts the data.
    """
    models.check_arguments(recipe.network, recipe.options, "options.")
    for name, value in task.source.options.items():
        assumed = (value, task.recipe.options.get(name, value), task.cpu.options.get(name, value))
        if recipe.options.get(name, value) not in assumed:
            raise UnsupportedError(
                f"options.{name}={recipe.options[name]}: the data need {value}. Leave it out, or use other data."
            )
    return {**recipe.options, **task.source.options}


def make_full(task: Task, recipe: Recipe) -> nn.Module:
    """The full network with weights of the recipe's seed."""
    try:
        return models.build(recipe.network, init=recipe.init, seed=recipe.seed, **options_of(task, recipe))
    except (TypeError, ValueError) as error:
        given, usual = (
            ", ".join(f"options.{name}={value}" for name, value in of.options.items()) or "its own options"
            for of in (recipe, task.cpu)
        )
        raise UnsupportedError(
            f"{recipe.network} cannot be built with {given} ({error}). Set others, such as {usual}."
        ) from error


def check_size(task: Task, recipe: Recipe, example: Any, samples: int, setting: str, *, training: bool = True) -> None:
    """Runs the full network on tensors without data, so that a size that it cannot take is refused before training.

    Args:
        task: Whose network.
        recipe: Its options and size.
        example: Inputs of one sample, on the meta device.
        samples: That many at a time: batch norm cannot train on a single value.
        setting: How the size was set, for the message.
        training: In training mode; the other has no batch statistics.

    Raises:
        UnsupportedError: It cannot.
    """
    with torch.device("meta"):
        model = models.build(recipe.network, **options_of(task, recipe)).train(training)
    batch = tree_map(lambda tensor: tensor.expand(samples, *tensor.shape[1:]), example)
    try:
        call(model, batch)
    except (RuntimeError, ValueError, IndexError, RanpError) as error:
        shapes = " and ".join("x".join(map(str, tensor.shape)) for tensor in tree_leaves(batch))
        reason = str(error).strip().splitlines()[0].rstrip(".")
        known = f"{task.cpu.size} or {task.recipe.size}" if recipe.network == task.network else own_size(recipe.network)
        raise UnsupportedError(
            f"{setting}: {recipe.network} cannot take {shapes} ({reason}). Set another size, such as {known}."
        ) from error


def own_size(network: str) -> int:
    """The edge of the samples that the paper's tables were measured with."""
    return int(tree_leaves(models.example(network, "meta"))[0].shape[-2])


def make_slim(full: nn.Module, plan: Plan, recipe: Recipe, example: Any = None) -> nn.Module:
    """The network that a plan leaves of a full one, with weights drawn anew, as the paper does."""
    return slim(full, plan, example=example, init=recipe.init, seed=recipe.seed)


def whole(model: nn.Module) -> Plan:
    """The plan that removes nothing."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, WEIGHTED)}
    channels = {name: _width(layer) for name, layer in layers.items()}
    total = sum(channels.values())
    kept = {name: tuple(range(count)) for name, count in channels.items()}
    return Plan(kept, channels, {}, Sparsity(0.0, 0, total, total), {"method": "full"})


def _width(layer: nn.Module) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)  # type: ignore[arg-type]


def make_optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser; its learning rate is set before every epoch."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(
            parameters,
            recipe.learning_rate,
            recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.nesterov,
        )
    return torch.optim.Adam(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay, amsgrad=recipe.amsgrad)


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
