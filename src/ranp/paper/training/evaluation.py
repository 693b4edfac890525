"""A finished run, measured again: on the data it was validated on, or on others."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from ranp import files, storage
from ranp.errors import RanpError, StorageError
from ranp.folder import RECIPE, RECIPE_VERSION, read_run
from ranp.paper import models
from ranp.paper.recipe import Recipe, as_arguments
from ranp.paper.tasks.task import Task
from ranp.paper.training.engine import Progress
from ranp.paper.training.loading import Feed
from ranp.paper.training.team import Team
from ranp.paper.training.validation import validate

__all__ = ["evaluate", "recipe_of"]


def recipe_of(folder: Path) -> tuple[dict[str, Any], Recipe]:
    """What a training run's ``recipe.json`` says, finished or not, and its recipe.

    Raises:
        StorageError: It is no folder of a training run, or the file is torn or was edited wrongly.
    """
    path = folder / "recipe.json"
    stored = files.read_json(path, kind=RECIPE, version=RECIPE_VERSION)
    if not isinstance(stored.get("recipe"), dict) or not isinstance(stored.get("task"), str):
        raise StorageError(f"{str(folder)!r} was not trained: its recipe.json names no task. Pass one of ranp train.")
    try:
        return stored, Recipe.from_dict(stored["recipe"])
    except (RanpError, TypeError, ValueError) as error:
        raise StorageError(f"{str(path)!r} was edited wrongly: {error} Restore it, or start again.") from error


def evaluate(
    folder: str | os.PathLike[str], task: Task, *, team: Team | None = None, progress: Progress | None = None
) -> dict[str, float]:
    """The figures of a trained network over a task's validation data.

    Args:
        folder: A run folder of ``train``.
        task: Where the data come from.
        team: The processes that share the work.
        progress: See ``Engine``.

    Raises:
        StorageError: It is no folder of a finished training run.
        PlanMismatchError: The network does not fit.
    """
    path, team = Path(folder), team or Team()
    read_run(path)
    stored, recipe = recipe_of(path)
    options = as_arguments(stored.get("options", {}))
    model = storage.load(path / "model.safetensors", partial(models.build, stored["model"], **options))
    model = model.to(team.device)
    feed = Feed(task.valid_data(recipe.size, recipe.valid_count, recipe.seed), recipe.workers)

    def tell(done: int, total: int) -> None:
        if progress is not None and team.leads:
            progress("evaluating", done, total, "")

    return validate(model, task, recipe, feed, team, tell)
