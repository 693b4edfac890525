"""``ranp evaluate``: a trained network of a run folder, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranp.cli.console import progress_bars, show_json, show_table
from ranp.cli.options import AllowMissing, DataFolder, Device, FolderModel, Json, Trusted


def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder that ranp train wrote.")],
    data: DataFolder = None,
    allow_missing: AllowMissing = False,
    model: FolderModel = None,
    trust: Trusted = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Print the metrics of a trained network on its validation data, or on the data of --data."""
    from ranp.cli import extras
    from ranp.paper import training
    from ranp.paper.naming import Trust
    from ranp.paper.training.evaluation import task_of
    from ranp.reporting.folder import RunFolder

    run = RunFolder(folder)
    run.finished_recipe()
    task, where = task_of(run, data, allow_missing=allow_missing)
    extras.require(extras.of_task(task, where))
    said = Trust(model, everything=trust)
    with training.joined(device) as team, progress_bars(f"evaluating {folder}", quiet=not team.leads) as progress:
        figures = training.evaluate(folder, task, trust=said, team=team, progress=progress)
    if not team.leads:
        return
    if as_json:
        show_json({"folder": str(folder), "task": task.name, "data": None if where is None else str(where), **figures})
        return
    title = f"{task.name}, {task.source.summary or 'procedural samples'}"
    show_table(("figure", "value"), [(name, f"{value:.4f}") for name, value in figures.items()], title=title)
