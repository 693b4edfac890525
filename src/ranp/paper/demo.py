"""The paper in a few minutes on a CPU: full against RANP-f against random, pruned before training and trained alike.

Procedural part segmentation, a small 3D-UNet, the same share of channels removed by both methods, weights drawn anew as
the paper does, the same batches in the same order for all three.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from ranp import files, storage
from ranp.errors import DataError, StorageError
from ranp.paper import models, tasks
from ranp.paper.brief_training import Lessons, Objects, evaluate, gather, step_seconds, train
from ranp.paper.comparison import Comparison, Contender
from ranp.paper.tasks.task import Task
from ranp.pruning import Pruned, prune
from ranp.resources import profile

__all__ = ["Demonstration", "Settings", "run"]

FULL, OURS, BLIND = "full", "ranp-f", "random"

Progress = Callable[[str, int, int], object]
"""``(what is going on, done, total)``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the demonstration is run; the defaults take a few minutes on two cores.

    Attributes:
        sparsity: Fraction of channels that both methods remove.
        widths: Channels of the 3D-UNet by resolution.
        size: Edge length of the volumes.
        train_objects: Objects to train on.
        valid_objects: Objects to measure accuracy on.
        scored_batches: Batches of the training objects that RANP-f is scored on.
        steps: Training steps of each network.
        batch: Objects in a step.
        learning_rate: Highest learning rate.
        rounds: Timed training steps of each network.
        seed: Of weights, objects and batches.
    """

    sparsity: float = 0.7
    widths: tuple[int, ...] = (48, 96, 192)
    size: int = 16
    train_objects: int = 256
    valid_objects: int = 64
    scored_batches: int = 4
    steps: int = 180
    batch: int = 8
    learning_rate: float = 0.01
    rounds: int = 11
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what cannot be run, before anything begins."""
        for name in ("train_objects", "valid_objects", "scored_batches", "steps", "batch", "rounds"):
            if getattr(self, name) < 1:
                raise DataError(f"{name}={getattr(self, name)} is not enough. Pass at least 1.")
        if self.size < 2 ** (len(self.widths) - 1):
            raise DataError(f"size={self.size} cannot be halved {len(self.widths) - 1} times. Pass a larger one.")


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What came out: the comparison, and what RANP-f made.

    Attributes:
        comparison: The table.
        pruned: Plan and report of the network that RANP-f pruned.
        model: That network, trained.
    """

    comparison: Comparison
    pruned: Pruned
    model: nn.Module

    def save(self, out: str | os.PathLike[str]) -> list[Path]:
        """Writes the plan, the reports, the table and the trained slim network into a folder and returns the files.

        Raises:
            StorageError: The folder cannot be made or written to.
        """
        folder = Path(out)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder {str(folder)!r}: {error.strerror}. Name another.") from error
        title = "RANP-f against random pruning: a demonstration"
        settings = dict(self.comparison.settings)
        files.write_json(folder / "recipe.json", settings, kind="ranp-recipe", version=1)
        self.pruned.plan.save(folder / "plan.json")
        self.pruned.report.save(folder / "report.json")
        files.write_json(folder / "comparison.json", self.comparison.to_dict(), kind="ranp-comparison", version=1)
        files.write_atomic(folder / "table.md", self.comparison.to_markdown().encode())
        page = self.comparison.to_html(title, str(self.pruned.report))
        files.write_atomic(folder / "report.html", page.encode())
        storage.save(folder / "model.safetensors", self.model, self.pruned.plan, recipe=settings)
        names = ("recipe.json plan.json report.json comparison.json table.md report.html model.safetensors").split()
        return [folder / name for name in names]


def run(settings: Settings | None = None, progress: Progress | None = None) -> Demonstration:
    """Prunes a small 3D-UNet with RANP-f and at random, trains all three alike, and measures them side by side.

    Args:
        settings: How; default: a few minutes on two cores.
        progress: Told ``(what is going on, done, total)``.

    Raises:
        InfeasibleError: The sparsity leaves a layer without channels; the message says what is feasible.
        DataError: A setting is out of range, or training diverged.
    """
    settings = Settings() if settings is None else settings
    task, told = tasks.get("shapenet"), progress or _silent

    def stage(label: str) -> Callable[[int, int | None], object]:
        return lambda done, total: told(label, done, total or done)

    training = gather(
        task.train_data(settings.size, settings.train_objects, settings.seed), settings.train_objects, stage("objects")
    )
    validation = gather(task.valid_data(settings.size, settings.valid_objects, settings.seed), settings.valid_objects)
    full = models.build(task.network, widths=settings.widths, seed=settings.seed)
    pruned = {name: _pruned(full, name, task, training, settings, stage) for name in (OURS, BLIND)}
    networks = {FULL: full, **{name: one.model for name, one in pruned.items()}}
    seconds = step_seconds(networks, task, training, settings.batch, settings.rounds, stage("timing"))
    lessons = Lessons(settings.steps, settings.batch, settings.learning_rate, settings.seed)
    contenders = []
    for name, network in networks.items():
        # The cost of one object, counted on the very network that is trained.
        costs = profile(network, training.inputs[:1], convention="paper")
        losses = train(network, task, training, lessons, stage(f"training {name}"))
        figures = evaluate(network, task, validation, settings.batch)
        contenders.append(
            Contender(
                name=name,
                removed=pruned[name].plan.sparsity.of_channels if name in pruned else 0.0,
                params=costs.params,
                flops=costs.flops,
                memory=costs.memory,
                seconds=seconds[name],
                losses=losses,
                accuracy=figures["accuracy"],
                miou=figures["miou"],
            )
        )
    comparison = Comparison(tuple(contenders), _guess(task, training, validation), _notes(settings), _recipe(settings))
    return Demonstration(comparison, pruned[OURS], networks[OURS])


def _pruned(
    full: nn.Module,
    name: str,
    task: Task,
    training: Objects,
    settings: Settings,
    stage: Callable[[str], Callable[[int, int | None], object]],
) -> Pruned:
    return prune(
        full,
        list(islice(training.batches(settings.batch), settings.scored_batches)),
        task.loss,
        sparsity=settings.sparsity,
        method=name,
        example=training.inputs[:1],  # costs are those of one object
        strength=task.strength,
        init="glorot",
        seed=settings.seed,
        progress=stage(f"scoring {name}"),
    )


def _guess(task: Task, training: Objects, validation: Objects) -> dict[str, float]:
    """The task's figures for always answering the part that is most frequent in training: what chance is worth here."""
    labels = training.labels[training.labels < task.classes]
    frequency = torch.bincount(labels, minlength=task.classes).to(torch.float32)

    def answers() -> Sequence[tuple[Tensor, Tensor]]:
        return [
            (frequency.reshape(1, -1, 1, 1, 1).expand(len(y), -1, *y.shape[1:]), y) for _, y in validation.batches(8)
        ]

    return task.evaluate(answers())


def _notes(settings: Settings) -> tuple[str, ...]:
    return (
        f"Procedural shapes ({settings.size}^3 voxels, {settings.train_objects} to train on, {settings.valid_objects} "
        "others to validate on), not ShapeNet; a small 3D-UNet, not the paper's.",
        f"{settings.steps} steps of {settings.batch} objects: enough to compare, far from what they can reach.",
        "One seed: differences of accuracy of a few points mean nothing.",
        "FLOPs (multiply-adds) and memory of one object in the paper's convention; the slim weights are drawn "
        "anew, as in the paper.",
        f"Seconds of a training step: median of {settings.rounds} rounds, networks in turn (threads: "
        f"{torch.get_num_threads()}); 'of full' is the median ratio within a round.",
        "Guessing: always the part of the object's category that is most frequent in training.",
    )


def _recipe(settings: Settings) -> dict[str, object]:
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return {"task": "shapenet", "model": "unet3d-shapenet", **plain, "threads": torch.get_num_threads(), **versions}


def _silent(label: str, done: int, total: int) -> None:
    """Tells nobody."""
