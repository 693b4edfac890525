"""How good a network is: the task's figures over validation data; of a run in training, or of a finished one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ranp.errors import DataError, RanpError, StorageError, unknown_name
from ranp.paper import tasks
from ranp.paper.naming import NOTHING, Trust, stored_network
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Task
from ranp.paper.training.loading import Feed, validation_batches
from ranp.paper.training.network import autocast, placed
from ranp.paper.training.team import Team
from ranp.progress import Labelled, Progress, under
from ranp.reporting.folder import RunFolder


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


def task_of(run: RunFolder, data: Path | None = None, *, allow_missing: bool = False) -> tuple[Task, Path | None]:
    """The task of a training run, on the data it was trained on or on others; and the folder of these data.

    Args:
        run: Its folder.
        data: Other data; default the run's.
        allow_missing: Take what is there of them; the run's own choice holds, too.

    Raises:
        StorageError: It is not the folder of a training run, or names a task that there is not.
        DataError: The folder of the data does not look right.
    """
    stored, recipe = recipe_of(run)
    if stored["task"] not in tasks.names():
        wrong = unknown_name("task", stored["task"], tasks.names())
        raise StorageError(f"{str(run.recipe_file)!r} names an {wrong} Restore it.")
    before, partial = data_of(stored)
    where = data or before
    return tasks.get(stored["task"], where, allow_missing=allow_missing or partial, fold=recipe.fold), where


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


def validate(
    model: nn.Module,
    task: Task,
    recipe: Recipe,
    feed: Feed,
    team: Team,
    progress: Progress | None = None,
) -> dict[str, float]:
    """The figures of the whole, the same on every rank; the network is left in the mode it was in.

    Sums are added up, not means, so the figures do not depend on how many ranks there are; each sample counts once.

    Raises:
        DataError: There is nothing to validate on.
    """
    team.share_buffers(model)
    was_training = model.training
    model.eval()
    sums: dict[str, float] = {}
    total, done = len(range(team.rank, len(feed.data), team.size)), 0
    with torch.no_grad(), autocast(recipe, team.device):
        for inputs, target in validation_batches(feed, recipe.valid_batch, team.rank, team.size):
            output = task.predict(model, placed(inputs, recipe, team.device), recipe.size)
            for name, value in task.metrics.tally(output.float(), target.to(output.device)).items():
                sums[name] = sums.get(name, 0.0) + value
            done += len(target)
            if progress is not None:
                progress(done, total)
    model.train(was_training)
    # A rank without a sample knows no names; figures of a kind that only some batches have are named by some ranks.
    names = sorted({name for text in team.gather("\n".join(sums)) for name in text.split("\n") if name})
    if not names:
        raise DataError("there is nothing to validate on. Raise valid_count, or check the data.")
    added = team.total([sums.get(name, 0.0) for name in names])
    return task.metrics.figures(dict(zip(names, added, strict=True)))


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
