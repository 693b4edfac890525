"""``ranp train``: a network of a task, full or slim, trained into a run folder; on one machine or many."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ranp.cli.console import progress_bars, say, show_json, show_table
from ranp.cli.options import PRUNING, RUN, AllowMissing, DataFolder, Device, Json, Scale, flag, options_of, takes

if TYPE_CHECKING:
    from torch import nn

    from ranp.paper.training import Pruning, Run
    from ranp.paper.training.runs import Setting
    from ranp.reporting.pruned import Pruned

_PRUNE, _TRAIN = "What to prune", "How to train"
_OWN = ("init", "seed", "max_batches")
"""Options of pruning that a recipe decides, or that have another name here."""


@takes(pruning={name: option for name, option in PRUNING.items() if name not in _OWN})
def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help="shapenet, brats, ucf101 or sceneflow.")],
    pruning: dict[str, Any],
    out: Annotated[Path, flag("The run folder.", RUN, metavar="DIR")],
    plan: Annotated[
        Path | None, flag("plan.json of ranp prune, of this or another size or task.", _PRUNE, metavar="FILE")
    ] = None,
    prune_size: Annotated[
        int | None, flag("Edge of the samples to score on; default the recipe's.", _PRUNE, min=8)
    ] = None,
    prune_batches: Annotated[int, flag("How many batches to score on.", _PRUNE, min=1)] = 10,
    prune_batch: Annotated[int, flag("Samples in such a batch; the paper's is 1.", _PRUNE, min=1)] = 1,
    data: DataFolder = None,
    allow_missing: AllowMissing = False,
    scale: Scale = None,
    settings: Annotated[
        list[str] | None,
        flag(
            "Change the recipe, such as epochs=10 or options.widths=16,32; may be repeated.",
            _TRAIN,
            "--set",
            metavar="KEY=VALUE",
        ),
    ] = None,
    resume: Annotated[bool, flag("Continue from the last checkpoint in DIR, if any.", RUN, "--resume")] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Train a network on a task with the paper's recipe, or a small one (--scale cpu).

    Start it with torchrun to train on many processes or machines. A stopped run continues with --resume
    and ends with the same bits as an uninterrupted one.
    """
    from ranp.choosing.plan import Plan
    from ranp.cli import extras
    from ranp.errors import PlanMismatchError, UnsupportedError
    from ranp.files import atomic
    from ranp.paper import tasks, training

    asks = pruning["sparsity"] is not None or bool(pruning["budget"])
    if plan is not None and asks:
        raise UnsupportedError("--plan and --sparsity or --budget all say what to remove. Pass one of them.")
    if pruning["method"] is not None and not asks:
        raise UnsupportedError(f"--method {pruning['method']} goes with --sparsity or --budget. Pass both, or neither.")
    extras.require(extras.of_task(tasks.get(task), data))
    atomic.check_writable(out)
    cut = None if plan is None else Plan.load(plan)
    how = None
    if asks:
        given = options_of(pruning)
        more = {field.name: getattr(given, field.name) for field in fields(given) if field.name not in _OWN}
        own = {name: more.pop(name) for name in ("method", "sparsity", "strength", "exact")}
        how = training.Pruning(size=prune_size, batches=prune_batches, batch=prune_batch, more=more, **own)
    found, recipe, about = _found(task, data, allow_missing, scale, settings or [], out, resume)
    with (
        training.joined(device) as team,
        progress_bars(f"training {task}", quiet=not team.leads, lines=("epoch", "pruning")) as progress,
    ):
        if team.leads and found.source.summary:
            progress("data", 1, 1, found.source.summary)
        try:
            what: dict[str, Any] = {
                "recipe": recipe,
                "settings": settings or (),
                "plan": cut,
                "pruning": how and _Telling(how),
            }
            run = training.train(found, out, resume=resume, team=team, about=about, progress=progress, **what)
        except PlanMismatchError as error:
            raise PlanMismatchError(f"--plan {str(plan)!r} does not fit: {error}" if plan else str(error)) from error
    if team.leads:
        _show(run, found, as_json)


class _Telling:
    """Prunes as it was asked for, and says at once where less is removed than that."""

    def __init__(self, pruning: Pruning) -> None:
        self.pruning = pruning

    def prune(self, full: nn.Module, setting: Setting) -> Pruned:
        """The slim network."""
        pruned = self.pruning.prune(full, setting)
        why = pruned.report.settings.get("shortfall")
        if why and setting.progress is not None and setting.team.leads:
            setting.progress("pruning", 1, 1, why)
        return pruned

    def to_dict(self) -> dict[str, Any]:
        """What was asked for."""
        return self.pruning.to_dict()


def _found(
    name: str, data: Path | None, allow_missing: bool, scale: str | None, settings: list[str], out: Path, resume: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """The task with its data and the recipe to begin with; a run that goes on has both in its folder.

    Raises:
        UnsupportedError: The folder is of another task.
    """
    from ranp.errors import UnsupportedError
    from ranp.paper import tasks
    from ranp.paper.training.evaluation import data_of, recipe_of
    from ranp.paper.training.runs import restarted
    from ranp.reporting.folder import RunFolder

    task = tasks.get(name)
    recipe = task.recipe_at(scale)
    run = RunFolder(out)
    if (resume or restarted()) and run.begun:
        stored, begun = recipe_of(run)
        if stored["task"] != name:
            raise UnsupportedError(f"{str(out)!r} is a run of task {stored['task']!r}, not {name!r}. Name that one.")
        before, partial = data_of(stored)
        data, allow_missing = data or before, allow_missing or partial
        if scale is None:
            recipe = begun
    wanted = recipe.but(settings)
    if data is not None:
        task = tasks.get(name, data, allow_missing=allow_missing, fold=wanted.fold)
    folder = None if data is None else str(data)
    about = {"task": name, "folder": folder, "allow_missing": allow_missing, "scale": scale or "paper"}
    return task, recipe, {"data": {**about, "summary": task.source.summary}}


def _show(run: Run, task: Any, as_json: bool) -> None:
    epochs = [record for record in run.records if record["kind"] == "epoch"]
    if as_json:
        show_json({"folder": str(run.folder), "figures": run.figures, "epochs": epochs, "widths": run.plan.widths})
        return
    rows = [
        (
            str(record["epoch"]),
            f"{record['loss']:.4f}",
            *(f"{record['valid'][name]:.4f}" if record.get("valid") else "" for name in run.figures),
            f"{record['seconds']:.0f}",
        )
        for record in epochs[-5:]
    ]
    share = run.plan.sparsity.of_channels
    title = f"{task.name}: {len(run.plan.widths)} layers, {share:.1%} of the channels removed, the last epochs"
    show_table(("epoch", "loss", *run.figures, "seconds"), rows, title=title)
    say(f"wrote {run.folder}")
