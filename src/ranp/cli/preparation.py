"""Everything that can be refused is refused before anything slow begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranp.cli.sources import Choice, Data, find_data
from ranp.errors import UnsupportedError, unknown_name
from ranp.paper.naming import Network, code, find_example, find_network, needed_example, with_options

if TYPE_CHECKING:
    from ranp.choosing.methods import Method
    from ranp.scoring.criteria import Criterion


@dataclass(frozen=True, slots=True)
class Setup:
    """What ``prune`` and ``search`` work on, checked.

    Attributes:
        network: MODEL.
        method: ``--method``.
        criterion: ``--criterion``, or the method's own.
        data: What to score on.
        example: Inputs of one call, None for those of the first batch.
        strength: ``--strength``, or the task's.
    """

    network: Network
    method: Method
    criterion: Criterion
    data: Data
    example: Any
    strength: float | None


def prepare(
    model: str,
    *,
    method: str,
    criterion: str | None,
    tie: str,
    mode: str,
    strength: float | None,
    choice: Choice,
    inputs: Sequence[str],
    example: str | None,
) -> Setup:
    """Checks the options and finds what they name.

    Raises:
        UnsupportedError: An option is wrong, or something is missing.
    """
    from ranp.choosing.methods import resolve
    from ranp.choosing.ties import TIES
    from ranp.scoring.criteria import find_criterion

    network, how = find_network(model), resolve(method)
    rule = find_criterion(how.criterion if criterion is None else code_or_name(criterion, "--criterion"))
    TIES.get(tie)
    if mode not in ("train", "eval"):
        raise UnsupportedError(unknown_name("mode", mode, ("train", "eval")))
    data = find_data(network, choice)
    if data is not None:
        if data.check is not None and rule.needs == "gradients":
            data.check(training=mode == "train")
        network = with_options(network, data.options)
        found = find_example(network, inputs, example)
        found = data.example if found is None else found
        return Setup(network, how, rule, data, found, data.strength if strength is None else strength)
    if rule.needs == "gradients":
        raise UnsupportedError(
            f"criterion {rule.name!r} needs data to score {model!r} on. Pass --batches and --loss, or --task, "
            "or a criterion that needs none: --criterion magnitude."
        )
    found = needed_example(network, inputs, example)
    return Setup(network, how, rule, Data([(found, None)], _no_loss, None, {}), found, strength)


def code_or_name(text: str, option: str) -> Any:
    """The value that ``package.module:name`` names, or the name as it is."""
    return code(text, option) if ":" in text else text


def _no_loss(output: Any, target: Any) -> Any:
    raise AssertionError("a criterion that needs no gradient asked for a loss")
