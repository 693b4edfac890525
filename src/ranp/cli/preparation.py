"""From the words of a command line to a network and data to score it on.

Everything that can be refused is refused here, before anything slow begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ranp.errors import UnsupportedError
from ranp.paper.naming import Network, code, find_example, find_network, needed_example, running, with_options

if TYPE_CHECKING:
    from torch import nn

    from ranp.options import Options
    from ranp.scoring.scores import Scores
    from ranp.tracing.trace import Trace

TASK_BATCHES = 10
"""How many batches of a task are scored by default; the paper takes the whole training set once."""


@dataclass(frozen=True, slots=True)
class Data:
    """What to score on.

    Attributes:
        batches: Pairs of inputs and target.
        loss: The loss.
        strength: The task's lambda.
        used: What a recipe says it was.
        options: Arguments of the network that scale and data demand.
        example: Inputs of one call where they demand some; its costs are then taken at the recipe's size.
        check: ``check(training=...)`` refuses samples of a size that the network cannot take.
    """

    batches: Iterable[Any]
    loss: Callable[[Any, Any], Any]
    strength: float | None = None
    used: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    example: Any = None
    check: Callable[..., None] | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What ``prune``, ``search`` and ``fit`` work on, checked.

    Attributes:
        network: MODEL.
        options: What to prune and how; the strength is the task's where none was given.
        data: What to score on.
        example: Inputs of one call, None for those of the first batch.
    """

    network: Network
    options: Options
    data: Data
    example: Any

    @property
    def count(self) -> int | None:
        """How many batches are scored, where they say how many they are."""
        try:
            found = len(self.data.batches) if isinstance(self.data.batches, Sized) else None
        except TypeError:  # a loader of an iterable data set
            found = None
        most = self.options.max_batches
        return found if found is None or most is None else min(found, most)


def prepare(model: str, options: Options, source: Mapping[str, Any], *, rank: int = 0, ranks: int = 1) -> Setup:
    """Finds what the flags name.

    Args:
        model: MODEL.
        options: What to prune and how.
        source: What the verb got for ``options.SOURCE``.
        rank: Of this process among those that score together.
        ranks: How many there are.

    Raises:
        UnsupportedError: Something is missing, or does not go together.
    """
    network, rule = find_network(model), options.rule
    inputs, example = source["inputs"] or (), source["example"]
    data = find_data(network, source, options.max_batches, options.seed, rank, ranks)
    if data is not None:
        if data.check is not None and rule.needs == "gradients":
            data.check(training=options.mode == "train")
        network = with_options(network, data.options)
        found = find_example(network, inputs, example)
        found = data.example if found is None else found
        strength = data.strength if options.strength is None else options.strength
        return Setup(network, replace(options, strength=strength), data, found)
    if rule.needs == "gradients":
        raise UnsupportedError(
            f"criterion {rule.name!r} needs data to score {model!r} on. Pass --batches and --loss, or --task, "
            "or a criterion that needs none: --criterion magnitude."
        )
    found = needed_example(network, inputs, example)
    return Setup(network, options, Data([(found, None)], _no_loss), found)


def _no_loss(output: Any, target: Any) -> Any:
    raise AssertionError("a criterion that needs no gradient asked for a loss")


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


def scored(setup: Setup, network: nn.Module, example: Any, progress: Any) -> tuple[Scores, Trace]:
    """The weighted scores of a network, and its trace at the example, by default at the first batch."""
    from ranp import score, trace
    from ranp.scoring.passes import first_batch

    options, pairs = setup.options, setup.data.batches
    if example is None:
        first, pairs = first_batch(pairs, needed=True)
        example = first[0]
    found = trace(network, example)
    how: dict[str, Any] = {"mode": options.mode, "max_batches": options.max_batches, "seed": options.seed}
    raw = score(network, pairs, setup.data.loss, trace=found, criterion=options.rule, progress=progress, **how)
    costs = options.how.costs(found, options.resource, convention=options.convention)
    return options.how.weigh(raw, costs, options.strength), found


def find_data(
    network: Network,
    source: Mapping[str, Any],
    max_batches: int | None = None,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Data | None:
    """What to score on: ``--batches`` and ``--loss``, ``--task``, or the task of a network of the paper; else None.

    Args:
        network: Which is scored.
        source: The flags of ``options.SOURCE``, those that are given.
        max_batches: ``--max-batches``.
        seed: ``--seed``.
        rank: Of this process among those that score together.
        ranks: How many there are.

    Raises:
        UnsupportedError: Options that do not go together, or an unknown task or scale.
        DataError: The folder does not look right.
    """
    from ranp.paper import models, tasks

    batches, loss, name, folder = (source.get(flag) for flag in ("batches", "loss", "task", "data"))
    if batches or loss:
        if not batches or not loss or name or folder:
            raise UnsupportedError(
                "--batches and --loss go together, and not with --task or --data. Pass both, or --task alone."
            )
        pairs, chosen = code(batches, "--batches"), code(loss, "--loss")
        return Data(
            running(f"--batches {batches!r}", pairs) if callable(pairs) else pairs,
            running(f"--loss {loss!r}", chosen) if isinstance(chosen, type) else chosen,
            used={"batches": batches, "loss": loss},
        )
    if name is None and network.name in models.names():
        name = next((task for task in tasks.names() if f"-{task}" in network.name), None)
    if name is not None:
        return _task_data(network, name, source, max_batches or TASK_BATCHES, seed, rank, ranks)
    if folder is not None or source.get("scale") is not None:
        raise UnsupportedError("--data and --scale belong to a task. Pass --task too.")
    return None


def _task_data(
    network: Network, name: str, source: Mapping[str, Any], count: int, seed: int, rank: int, ranks: int
) -> Data:
    from ranp.paper import models, tasks
    from ranp.paper.scoring import ScoringBatches, example_of
    from ranp.paper.training.network import check_size, own_size

    folder, scale, size = (source.get(flag) for flag in ("data", "scale", "size"))
    found = tasks.get(name, folder, allow_missing=source.get("allow_missing", False))
    recipe = found.recipe_at(scale)
    of_paper, own = network.name in models.names(), recipe.network == network.name
    options = {**(recipe.options if own else {}), **(found.source.options if of_paper else {})}
    edge = replace(recipe, size=size or recipe.size).size  # refuses what no memory could hold
    if size is None and scale != "cpu" and of_paper and not own:
        edge = own_size(network.name)  # the recipe is another network's
    batches = ScoringBatches(found, edge, count, seed, rank, ranks)
    used = {
        "task": name,
        "folder": None if folder is None else str(folder),
        "scale": scale or "paper",
        "size": edge,
        "samples": min(count, len(batches.samples)),
        "summary": found.source.summary,
    }
    example = example_of(found, recipe.size, seed) if options else None
    check = None
    if of_paper:
        sized = replace(recipe, network=network.name, options=options)
        check = partial(check_size, found, sized, example_of(found, edge, seed), 1, f"--size {edge}")
    return Data(batches, found.loss, found.strength, used, options, example, check)
