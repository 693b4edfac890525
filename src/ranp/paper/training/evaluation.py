"""A finished run, measured again: on the data it was validated on, or on others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ranp.errors import RanpError, StorageError
from ranp.paper.naming import NOTHING, Trust, stored_network
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Task
from ranp.paper.training.loading import Feed
from ranp.paper.training.team import Team
from ranp.paper.training.validation import validate
from ranp.progress import Labelled, under
from ranp.reporting.folder import RunFolder

__all__ = ["data_of", "evaluate", "recipe_of", "trained"]


def recipe_of(run: RunFolder) -> tuple[dict[str, Any], Recipe]:
    """What a training run's ``recipe.json`` says, finished or not, and its recipe.

    Raises:
        StorageError: It is not the folder of a training run, or the file is torn or was edited wrongly.
    """
    stored = run.recipe()
    if not isinstance(stored.get("recipe"), dict) or not isinstance(stored.get("task"), str):
        raise StorageError(f"{str(run.path)!r} was not trained: its recipe.json names no task. Pass one of ranp train.")
    try:
        return stored, Recipe.from_dict(stored["recipe"])
    except (RanpError, TypeError, ValueError) as error:
        raise StorageError(
            f"{str(run.recipe_file)!r} was edited wrongly: {error} Restore it, or start again."
        ) from error


def data_of(stored: Mapping[str, Any]) -> tuple[Path | None, bool]:
    """The folder of published data that a run was trained on, None for procedural samples; and ``--allow-missing``.

    Raises:
        StorageError: The recipe says something else.
    """
    data = stored.get("data") or {}
    folder = data.get("folder") if isinstance(data, Mapping) else data
    if folder is not None and (not isinstance(folder, str) or "\0" in folder):
        raise StorageError(f"recipe.json names {folder!r} as the folder of the data. Restore it, or pass --data.")
    return Path(folder) if folder else None, isinstance(data, Mapping) and bool(data.get("allow_missing"))


def trained(run: RunFolder, trust: Trust = NOTHING) -> tuple[nn.Module, Recipe]:
    """The network of a finished training run, and its recipe.

    Raises:
        StorageError: It is not the folder of a finished training run.
        PlanMismatchError: The network does not fit.
        UnsupportedError: The folder names code, and nobody trusts it.
    """
    run.finished_recipe()
    stored, recipe = recipe_of(run)
    return run.model(stored_network(stored, run.recipe_file, trust).build), recipe


def evaluate(
    folder: str | os.PathLike[str],
    task: Task,
    *,
    trust: Trust = NOTHING,
    team: Team | None = None,
    progress: Labelled | None = None,
) -> dict[str, float]:
    """The figures of a trained network over a task's validation data.

    Args:
        folder: A run folder of ``train``.
        task: Where the data come from.
        trust: What may run beside registered networks: no code at all unless it says so.
        team: The processes that share the work.
        progress: See ``Engine``.

    Raises:
        StorageError: It is no folder of a finished training run.
        PlanMismatchError: The network does not fit.
        UnsupportedError: The folder names code.
    """
    team = team or Team()
    model, recipe = trained(RunFolder(Path(folder)), trust)
    feed = Feed(task.valid_data(recipe.size, recipe.valid_count, recipe.seed), recipe.workers)
    report = under("evaluating", progress if team.leads else None)
    return validate(model.to(team.device), task, recipe, feed, team, report)
