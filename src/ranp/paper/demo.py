"""Pruning in a few minutes on a CPU: a full network against slim ones of the same budget, all trained alike.

Procedural part segmentation, a small 3D-UNet, the same FLOPs for every method, weights drawn anew as the paper does,
the same batches in the same order for all networks. Each network is a run of its own, so that a demonstration that was
stopped goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate

from ranp.costs.measuring import profile
from ranp.costs.step import StepSetup
from ranp.costs.timing import Care, Stepper, ratios
from ranp.errors import DataError
from ranp.paper import tasks, training
from ranp.paper.guessing import always, frequencies
from ranp.paper.recipe import Recipe
from ranp.paper.scoring import example_of
from ranp.paper.tasks.task import Task
from ranp.paper.training.runs import of_run
from ranp.progress import Labelled, silent
from ranp.reporting.format import MIB, share
from ranp.reporting.looks import method_name, title
from ranp.reporting.table import Column, Group, Table
from ranp.workers import side_by_side

__all__ = ["Demonstration", "Settings", "run"]

FULL = "full"
METHODS = ("balanced", "flat", "ranp-f", "random")


@dataclass(frozen=True, slots=True)
class Settings:
    """How the demonstration is run; the defaults take a few minutes on two cores.

    Attributes:
        budget: What every slim network may need of the full one.
        widths: Channels of the 3D-UNet by resolution.
        size: Edge length of the volumes.
        train_objects: Objects to train on.
        valid_objects: Objects to measure accuracy on.
        scored: Batches of the training objects that channels are scored on.
        epochs: Passes of each network over the training objects.
        batch: Objects in a step.
        learning_rate: Of all epochs but the last quarter, which has a tenth of it.
        rounds: Timed training steps of each network.
        seed: Of weights, objects and batches.
    """

    budget: str = "flops=5%"
    widths: tuple[int, ...] = (32, 64, 128)
    size: int = 16
    train_objects: int = 256
    valid_objects: int = 64
    scored: int = 4
    epochs: int = 16
    batch: int = 8
    learning_rate: float = 0.01
    rounds: int = 11
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what cannot be run, before anything begins."""
        for name in ("train_objects", "valid_objects", "scored", "epochs", "batch", "rounds"):
            if getattr(self, name) < 1:
                raise DataError(f"{name}={getattr(self, name)} is not enough. Pass at least 1.")
        if self.size < 2 ** (len(self.widths) - 1):
            raise DataError(f"size={self.size} cannot be halved {len(self.widths) - 1} times. Pass a larger one.")

    def recipe(self, task: Task) -> Recipe:
        """How each network is trained."""
        return replace(
            task.cpu,
            options={"widths": self.widths},
            size=self.size,
            epochs=self.epochs,
            batch=self.batch,
            optimiser="adam",
            learning_rate=self.learning_rate,
            weight_decay=0.0,
            schedule="step",
            decay=0.1,
            milestones=(self.epochs - max(1, self.epochs // 4),) if self.epochs > 1 else (),
            train_count=self.train_objects,
            valid_count=self.valid_objects,
            valid_batch=self.batch,
            valid_every=1,
            tensorboard=False,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What came out.

    Attributes:
        folder: Where it lies: a run folder for each network, and the table.
        table: The networks side by side; its records hold the same as numbers.
        runs: The trained networks by name.
        files: The table in every form.
    """

    folder: Path
    table: Table
    runs: dict[str, training.Run]
    files: tuple[Path, ...]


def run(
    out: str | os.PathLike[str], settings: Settings | None = None, progress: Labelled | None = None, *, jobs: int = 1
) -> Demonstration:
    """Prunes a small 3D-UNet by several methods to one budget, trains all alike, and measures them side by side.

    Args:
        out: Folder for the results. What an earlier start with the same settings has finished is not done again.
        settings: How; default: a few minutes on two cores.
        progress: Told ``(what is going on, done, total, remark)``.
        jobs: Processes that train networks side by side.

    Raises:
        InfeasibleError: The budget cannot be met; the message says what can.
        DataError: A setting is out of range, or training diverged.
        StorageError: The folder cannot be written to, or holds something else.
        UnsupportedError: The folder holds a demonstration with other settings.
    """
    settings, folder = Settings() if settings is None else settings, Path(out)
    task, progress = tasks.get("shapenet"), progress or silent
    names = (FULL, *METHODS)
    work = partial(_begun, settings=settings, folder=folder)
    for number, (name, refused) in enumerate(side_by_side(work, names, jobs=jobs, progress=progress), 1):
        if refused is not None:
            raise refused
        progress("network", number, len(names), name)
    runs = {name: _trained(name, settings, folder) for name in names}
    progress("timing", 0, 1, "")
    times = _step_times(runs, task, settings)
    progress("timing", 1, 1, "")
    table = _table([_record(name, one, times[name], task, settings) for name, one in runs.items()], task, settings)
    return Demonstration(folder, table, runs, tuple(table.write(folder)))


def _begun(name: str, progress: Labelled, *, settings: Settings, folder: Path) -> None:
    """Trains a network in whatever process this is; the run lies in its folder then."""
    _trained(name, settings, folder, of_run(name, progress))


def _trained(name: str, settings: Settings, folder: Path, progress: Labelled | None = None) -> training.Run:
    """Trains a network, or goes on with it, or reads it."""
    task, pruning = tasks.get("shapenet"), None
    if name != FULL:
        more = {"budget": settings.budget}
        pruning = training.Pruning(name, batches=settings.scored, batch=settings.batch, more=more)
    recipe = settings.recipe(task)
    return training.train(task, folder / name, recipe=recipe, pruning=pruning, resume=True, progress=progress)


def _step_times(runs: Mapping[str, training.Run], task: Task, settings: Settings) -> dict[str, float]:
    """The time of a training step of every network over that of the full one, in turn."""
    samples = task.train_data(settings.size, settings.train_objects, settings.seed)
    batch = default_collate([samples[index % len(samples)] for index in range(settings.batch)])
    setup = StepSetup(runs[FULL].model, batch[0], settings.recipe(task).step(), task.loss, batch[1])
    with ExitStack() as stack:
        full, *slim = (stack.enter_context(Stepper(setup, one.model)) for one in runs.values())
        rounds = Care(settings.rounds, settings.rounds, 0.0, 0.0)
        return dict(zip(runs, [1.0, *ratios(slim, full, rounds)], strict=True))


def _record(name: str, one: training.Run, time: float, task: Task, settings: Settings) -> dict[str, Any]:
    """A network in numbers; its costs are those of one object, counted on the very network that was trained."""
    costs = profile(one.model, example_of(task, settings.size, settings.seed))
    return {
        "network": name,
        "removed": one.plan.sparsity.of_channels,
        "params": costs.params,
        "flops": costs.flops,
        "memory": costs.memory_bytes,
        "step_time": time,
        "accuracy": one.figures["accuracy"],
        "miou": one.figures["miou"],
    }


def _table(networks: list[dict[str, Any]], task: Task, settings: Settings) -> Table:
    """Networks side by side, and what guessing is worth."""
    columns = (
        Column("network", left=True, text=lambda one: title(one["network"])),
        Column("channels removed", text=lambda one: share(one["removed"])),
        Column("parameters", text=lambda one: f"{one['params']:,}"),
        Column("MFLOPs", text=lambda one: f"{one['flops'] / 1e6:.1f}"),
        Column("memory MiB", text=lambda one: f"{one['memory'] * MIB:.2f}"),
        Column("step time of full", text=lambda one: f"{one['step_time']:.2f}"),
        Column("accuracy", text=lambda one: share(one["accuracy"])),
        Column("part mIoU", text=lambda one: share(one["miou"])),
    )
    guess = _guess(task, settings)
    rows = [tuple(column.text(one) for column in columns) for one in networks]
    rows.append(("Guessing", *[""] * 5, share(guess["accuracy"]), share(guess["miou"])))
    return Table(
        "demo",
        "Slim networks of one budget",
        columns,
        (Group("", tuple(rows)),),
        "Networks trained alike, measured side by side. Guessing: always the part of the object's category that is "
        "most frequent in training.",
        (_story(settings, *networks[:2]), *_notes(settings)),
        (*networks, {"network": "guessing", **guess}),
    )


def _guess(task: Task, settings: Settings) -> dict[str, float]:
    """The task's figures for always answering the part that is most frequent in training: what chance is worth here."""
    samples = task.train_data(settings.size, settings.train_objects, settings.seed)
    others = task.valid_data(settings.size, settings.valid_objects, settings.seed)
    return always(task, frequencies(task, samples, len(samples)), others)


def _story(settings: Settings, full: dict[str, Any], ours: dict[str, Any]) -> str:
    left = {name: ours[name] / full[name] for name in ("flops", "memory", "miou")}
    return (
        f"{settings.budget} by {method_name(ours['network'])} leaves {share(left['flops'])} of the FLOPs, "
        f"{share(left['memory'], 0)} of the memory, {share(ours['step_time'], 0)} of the time of a step, "
        f"{share(left['miou'], 0)} of the mIoU."
    )


def _notes(settings: Settings) -> tuple[str, ...]:
    return (
        f"Procedural shapes ({settings.size}^3 voxels, {settings.train_objects} to train on, {settings.valid_objects} "
        "others to validate on), not ShapeNet; a small 3D-UNet, not the paper's.",
        f"{settings.epochs} epochs in batches of {settings.batch}, the last quarter at a tenth of the learning rate: "
        "enough to compare, short of what they can reach.",
        "One seed: differences of accuracy of a few points mean nothing.",
        "FLOPs of one object as torch counts them, memory as what a step keeps of it for the backward pass; the slim "
        "weights are drawn anew, as in the paper.",
        f"Time of a training step: median over {settings.rounds} rounds, networks in turn (threads: "
        f"{torch.get_num_threads()}).",
    )
