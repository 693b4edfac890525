"""Which of many runs stand for the others: those that differ by their seed alone are one kind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ranp.page.gather import StoredRun

__all__ = ["kinds", "of_task", "representatives"]


def of_task(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """The runs by task, in the order in which the tasks come first."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(run.task or run.model, []).append(run)
    return groups


def kinds(runs: Sequence[StoredRun]) -> list[list[StoredRun]]:
    """The runs in groups that differ by their seed alone; those that stand for a method come first.

    That is the largest group of each method, of the network that most runs are of: the others are there to compare it
    with something else.
    """
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(_kind(run), []).append(run)
    usual = Counter(run.network_key for run in runs).most_common(1)[0][0] if runs else ""
    ranked = sorted(groups.values(), key=lambda group: (group[0].network_key != usual, -len(group)))
    first: dict[str, list[StoredRun]] = {}
    for group in ranked:
        first.setdefault(group[0].method, group)
    leading = [group for group in groups.values() if first[group[0].method] is group]
    return leading + [group for group in groups.values() if first[group[0].method] is not group]


def representatives(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """One run of each method, of the least seed of its kind."""
    methods = {run.method for run in runs}
    return [min(group, key=lambda run: run.seed) for group in kinds(runs)[: len(methods)]]


def _kind(run: StoredRun) -> str:
    """The same for runs that differ by their seed alone."""
    settings = [run.recipe.get(name) for name in ("recipe", "pruning", "cell", "data")]
    plain = [_without_seed(value) for value in settings]
    return json.dumps([run.method, round(run.sparsity, 6), run.network_key, plain], sort_keys=True)


def _without_seed(value: Any) -> Any:
    return {key: item for key, item in value.items() if key != "seed"} if isinstance(value, Mapping) else value
