"""From the words of a command line to data to score on: batches and losses, by code, or those of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranp.errors import UnsupportedError
from ranp.paper.naming import Network, code

if TYPE_CHECKING:
    from torch import nn

TASK_BATCHES = 10
"""How many batches of a task are scored unless told otherwise; the paper takes the whole training set once."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line says of the data.

    Attributes:
        task: ``--task``; a network of the paper has its own.
        folder: ``--data``.
        allow_missing: ``--allow-missing``.
        scale: ``--scale``.
        batches: ``--batches``.
        loss: ``--loss``.
        size: ``--size``.
        max_batches: ``--max-batches``.
        seed: ``--seed``.
        rank: Of this process among those that score together.
        ranks: How many there are.
    """

    task: str | None = None
    folder: Path | None = None
    allow_missing: bool = False
    scale: str | None = None
    batches: str | None = None
    loss: str | None = None
    size: int | None = None
    max_batches: int | None = None
    seed: int = 0
    rank: int = 0
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Data:
    """What to score on.

    Attributes:
        batches: Pairs of inputs and target.
        loss: The loss.
        strength: The task's lambda.
        used: Tells a recipe what it was.
        options: Arguments of the network that scale and data demand.
        example: Inputs of one call where they demand some; its costs are then taken at the recipe's size.
        check: ``check(training=...)`` refuses samples of a size that the network cannot take.
    """

    batches: Iterable[Any]
    loss: Callable[[Any, Any], Any]
    strength: float | None
    used: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    example: Any = None
    check: Callable[..., None] | None = None


def make(network: Network, device: str) -> nn.Module:
    """Builds a network for real and puts it on a device.

    Raises:
        UnsupportedError: The function makes something else, or there is no such device.
    """
    import torch
    from torch import nn

    model = network.build()
    if not isinstance(model, nn.Module):
        raise UnsupportedError(f"MODEL {network.name!r} makes a {type(model).__name__}. Return an nn.Module.")
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedError(f"--device {device!r} cannot be used ({reason}). Try --device cpu.") from error


def find_data(network: Network, choice: Choice) -> Data | None:
    """What to score on: ``--batches`` and ``--loss``, ``--task``, or the task of a network of the paper; else None.

    Raises:
        UnsupportedError: Options that do not go together, or an unknown task or scale.
        DataError: The folder does not look right.
    """
    if choice.batches or choice.loss:
        if not choice.batches or not choice.loss or choice.task or choice.folder:
            raise UnsupportedError(
                "--batches and --loss go together, and not with --task or --data. Pass both, or --task alone."
            )
        function, chosen = code(choice.batches, "--batches"), code(choice.loss, "--loss")
        return Data(
            function() if callable(function) else function,
            chosen() if isinstance(chosen, type) else chosen,
            None,
            {"batches": choice.batches, "loss": choice.loss},
        )
    name = choice.task or _task_of(network.name)
    if name is None:
        if choice.folder is not None or choice.scale is not None:
            raise UnsupportedError("--data and --scale are a task's. Pass --task too.")
        return None
    return _task_data(network, name, choice)


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a network as JSON says them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def _task_of(network: str) -> str | None:
    """The task that a network of the paper is for: the end of its name, but for its depth."""
    from ranp.paper import models, tasks

    known = {task for task in tasks.names() if f"-{task}" in network}
    return known.pop() if known and network in models.names() else None


def _task_data(network: Network, name: str, choice: Choice) -> Data:
    from ranp.paper import models, tasks
    from ranp.paper.scoring import ScoringBatches, example_of
    from ranp.paper.training.network import check_size, own_size

    found = tasks.get(name, choice.folder, allow_missing=choice.allow_missing)
    recipe = found.recipe_at(choice.scale)
    options = dict(recipe.options) if recipe.network == network.name else {}
    if network.name in models.names():
        options |= found.source.options
    edge = replace(recipe, size=choice.size or recipe.size).size  # refuses what no memory could hold
    if choice.size is None and choice.scale != "cpu" and recipe.network != network.name in models.names():
        edge = own_size(network.name)  # the recipe is another network's
    count = choice.max_batches or TASK_BATCHES
    batches = ScoringBatches(found, edge, count, choice.seed, choice.rank, choice.ranks)
    used = {
        "task": name,
        "folder": None if choice.folder is None else str(choice.folder),
        "scale": choice.scale or "paper",
        "size": edge,
        "samples": min(count, len(batches.samples)),
        "summary": found.source.summary,
    }
    example = example_of(found, recipe.size, choice.seed) if options else None
    check = None
    if network.name in models.names():
        sized = replace(recipe, network=network.name, options=options)
        check = partial(check_size, found, sized, example_of(found, edge, choice.seed), 1, f"--size {edge}")
    return Data(batches, found.loss, found.strength, used, options, example, check)
