"""A finished run, measured again: on the data it was validated on, or on others."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from ranp import storage
from ranp.errors import StorageError
from ranp.folder import read_run
from ranp.paper import models
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Task
from ranp.paper.training.engine import Progress
from ranp.paper.training.loading import Feed
from ranp.paper.training.team import Team
from ranp.paper.training.validation import validate

__all__ = ["evaluate", "recipe_of"]


def recipe_of(folder: Path) -> tuple[dict[str, Any], Recipe]:
    """What a training run's ``recipe.json`` says, and its recipe.

    Raises:
        StorageError: It is no folder of a finished training run.
    """
    stored = read_run(folder)
    if not isinstance(stored.get("recipe"), dict) or not isinstance(stored.get("task"), str):
        raise StorageError(f"{str(folder)!r} was not trained: its recipe.json names no task. Pass one of ranp train.")
    return stored, Recipe.from_dict(stored["recipe"])


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
    stored, recipe = recipe_of(path)
    options: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in stored.get("options", {}).items()
    }
    model = storage.load(path / "model.safetensors", partial(models.build, stored["model"], **options))
    model = model.to(team.device)
    feed = Feed(task.valid_data(recipe.size, recipe.valid_count, recipe.seed), recipe.workers)

    def tell(done: int, total: int) -> None:
        if progress is not None and team.leads:
            progress("evaluating", done, total, "")

    return validate(model, task, recipe, feed, team, tell)
