"""Pruning in a few minutes on a CPU: a full network against slim ones of the same budget, all trained alike.

Procedural part segmentation, a small 3D-UNet, the same FLOPs for every method, weights drawn anew as the paper does,
the same batches in the same order for all networks. Each network is a run of its own, so that a demonstration that was
stopped goes on where it was.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch.utils.data import default_collate

from ranp.costs.measuring import profile
from ranp.errors import DataError
from ranp.files import atomic
from ranp.paper import tasks, training
from ranp.paper.comparison import Comparison, Contender
from ranp.paper.guessing import always, frequencies
from ranp.paper.recipe import Recipe
from ranp.paper.scoring import example_of
from ranp.paper.tasks.task import Task
from ranp.paper.timing import median_ratio, step_seconds
from ranp.paper.training.runs import of_run
from ranp.progress import Labelled, silent, under
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
        folder: Where it lies: a run folder for each network, and the comparison.
        comparison: The table.
        runs: The trained networks by name.
        files: What a reader looks at first.
    """

    folder: Path
    comparison: Comparison
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
    networks = {name: one.model for name, one in runs.items()}
    samples = task.train_data(settings.size, settings.train_objects, settings.seed)
    batch = default_collate([samples[index % len(samples)] for index in range(settings.batch)])
    seconds = step_seconds(networks, task, (batch[0], batch[1]), settings.rounds, under("timing", progress))
    contenders = tuple(_contender(name, one, seconds[name], task, settings) for name, one in runs.items())
    notes = (_story(settings, contenders), *_notes(settings))
    comparison = Comparison(contenders, _guess(task, settings), notes, _recipe(settings))
    written = (folder / "table.md", folder / "comparison.json")
    atomic.write_atomic(written[0], comparison.to_markdown().encode())
    atomic.write_json(written[1], comparison.to_dict(), kind="ranp-comparison", version=2)
    return Demonstration(folder, comparison, runs, written)


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


def _contender(name: str, one: training.Run, seconds: tuple[float, ...], task: Task, settings: Settings) -> Contender:
    # The cost of one object, counted on the very network that was trained.
    costs = profile(one.model, example_of(task, settings.size, settings.seed))
    return Contender(
        name=name,
        removed=one.plan.sparsity.of_channels,
        params=costs.params,
        flops=costs.flops,
        memory=costs.memory_bytes,
        seconds=seconds,
        losses=tuple(record["loss"] for record in one.records if record["kind"] == "step"),
        accuracy=one.figures["accuracy"],
        miou=one.figures["miou"],
    )


def _guess(task: Task, settings: Settings) -> dict[str, float]:
    """The task's figures for always answering the part that is most frequent in training: what chance is worth here."""
    samples = task.train_data(settings.size, settings.train_objects, settings.seed)
    others = task.valid_data(settings.size, settings.valid_objects, settings.seed)
    return always(task, frequencies(task, samples, len(samples)), others)


def _story(settings: Settings, contenders: Sequence[Contender]) -> str:
    full, ours = contenders[:2]
    shares = (
        f"{ours.flops / full.flops:.1%} of the FLOPs",
        f"{ours.memory / full.memory:.0%} of the memory",
        f"{median_ratio(ours.seconds, full.seconds):.0%} of the time of a step",
        f"{ours.miou / full.miou:.0%} of the mIoU",
    )
    return f"{settings.budget} by {ours.name} leaves {', '.join(shares)}."


def _notes(settings: Settings) -> tuple[str, ...]:
    return (
        f"Procedural shapes ({settings.size}^3 voxels, {settings.train_objects} to train on, {settings.valid_objects} "
        "others to validate on), not ShapeNet; a small 3D-UNet, not the paper's.",
        f"{settings.epochs} epochs in batches of {settings.batch}, the last quarter at a tenth of the learning rate: "
        "enough to compare, short of what they can reach.",
        "One seed: differences of accuracy of a few points mean nothing.",
        "FLOPs of one object as torch counts them, memory as what a step keeps of it for the backward pass; the slim "
        "weights are drawn anew, as in the paper.",
        f"Seconds of a training step: median of {settings.rounds} rounds, networks in turn (threads: "
        f"{torch.get_num_threads()}); 'of full' is the median ratio within a round.",
        "Guessing: always the part of the object's category that is most frequent in training.",
    )


def _recipe(settings: Settings) -> dict[str, object]:
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return {"task": "shapenet", "model": "unet3d-shapenet", **plain, "threads": torch.get_num_threads(), **versions}
