"""Everything that can be refused is refused before anything slow begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ranp.cli.sources import Choice, Data, find_data
from ranp.errors import UnsupportedError
from ranp.paper.naming import Network, find_example, find_network, needed_example, with_options

if TYPE_CHECKING:
    from torch import nn

    from ranp.options import Options
    from ranp.scoring.scores import Scores
    from ranp.tracing.trace import Trace


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
    choice = Choice(
        source["task"],
        source["data"],
        source["allow_missing"],
        source["scale"],
        source["batches"],
        source["loss"],
        source.get("size"),
        options.max_batches,
        options.seed,
        rank,
        ranks,
    )
    data = find_data(network, choice)
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
    return Setup(network, options, Data([(found, None)], _no_loss, None, {}), found)


def scored(setup: Setup, network: nn.Module, example: Any, progress: Any) -> tuple[Scores, Trace]:
    """The weighted scores of a network, and its trace at the example, by default at the first batch."""
    from ranp import score, trace
    from ranp.scoring.passes import first_batch

    options, pairs = setup.options, setup.data.batches
    if example is None:
        first, pairs = first_batch(pairs, needed=True)
        example = first[0]
    found = trace(network, example)
    raw = score(
        network,
        pairs,
        setup.data.loss,
        trace=found,
        criterion=options.rule,
        mode=options.mode,
        max_batches=options.max_batches,
        seed=options.seed,
        progress=progress,
    )
    costs = options.how.costs(found, options.resource, convention=options.convention)
    return options.how.weigh(raw, costs, options.strength), found


def _no_loss(output: Any, target: Any) -> Any:
    raise AssertionError("a criterion that needs no gradient asked for a loss")
