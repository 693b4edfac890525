"""Subjects that need no code of their own: a task of the paper, and a Lightning module with its data."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ranp.comparing.subject import Subject, Training
from ranp.errors import UnsupportedError
from ranp.integrations.lightning_step import OwnStep
from ranp.integrations.placing import network_of
from ranp.integrations.placing import replace as put
from ranp.paper import tasks
from ranp.paper.recipe import Recipe
from ranp.paper.scoring import ScoringBatches, example_of
from ranp.paper.tasks.task import Task
from ranp.paper.training.engine import Engine
from ranp.paper.training.network import make_full
from ranp.paper.training.runs import records
from ranp.paper.training.team import joined

RATE_NAMES = ("lr", "learning_rate")
"""What a Lightning module may call its learning rate, as an attribute or in its hyperparameters."""


@dataclass(frozen=True, slots=True)
class TaskTraining:
    """A task of the paper as a subject.

    Attributes:
        name: Of the task.
        scale: ``"cpu"`` or ``"paper"``.
        settings: ``key=value`` changes to the recipe.
        data: Folder of the published data set; None for procedural samples.
        batches: How many batches are scored.
        batch: Samples in such a batch.
        device: Where it is trained.
    """

    name: str
    scale: str = "cpu"
    settings: tuple[str, ...] = ()
    data: str | None = None
    batches: int = 4
    batch: int = 8
    device: str = "cpu"

    @property
    def fingerprint(self) -> str:
        """Everything that decides on what is trained."""
        return json.dumps([self.name, self.scale, self.settings, self.data, self.batches, self.batch])

    def subject(self) -> Subject:
        """The network, what it is scored on and how it is trained.

        Raises:
            RanpError: The task, a setting or the folder is refused.
        """
        task, recipe = self.task(), self.recipe()
        step = recipe.step(1)
        return Subject(
            self._model, self._scored, task.loss, self._train, example_of(task, recipe.size), step, self.device
        )

    def task(self) -> Task:
        """The task with its data."""
        return tasks.get(self.name, self.data, allow_missing=self.data is not None, fold=self.recipe().fold)

    def recipe(self, **changes: Any) -> Recipe:
        """How its network is built and trained."""
        base = tasks.get(self.name).recipe_at(self.scale)
        return replace(base, tensorboard=False).but(self.settings).having(tuple(changes.items()))

    def _model(self) -> nn.Module:
        return make_full(self.task(), self.recipe(seed=random.getrandbits(31)))

    def _scored(self, seed: int) -> Iterable[Any]:
        return ScoringBatches(self.task(), self.recipe().size, self.batches, seed, batch=self.batch)

    def _train(self, network: nn.Module, training: Training) -> Mapping[str, float]:
        recipe = self.recipe(seed=training.seed, learning_rate=training.lr)
        with joined(self.device) as team:
            run = f"{self.fingerprint} {training.folder.name}"
            engine = Engine(self.task(), recipe, network, training.folder, run, team, _steps(training))
            found = engine.train(resume=True)
        every = found or records(training.folder)
        return dict(next(record["valid"] for record in reversed(every) if record.get("valid")))


def _steps(training: Training) -> Callable[[str, int, int, str], None]:
    def tell(label: str, done: int, total: int, remark: str) -> None:
        if label == "training":
            training.told(done, total)

    return tell


@dataclass(frozen=True, slots=True)
class LightningTraining:
    """A Lightning module and its data as a subject.

    Attributes:
        make: Returns a new module and its data: a data module, or loaders for training and validation.
        attribute: The network's name in the module; None for the module itself.
        trainer: Arguments of ``Trainer``, such as ``max_epochs``.
        batches: How many batches are scored.
    """

    make: Callable[[], tuple[Any, Any]]
    attribute: str | None = "model"
    trainer: Mapping[str, Any] = field(default_factory=dict)
    batches: int = 10

    def subject(self, **more: Any) -> Subject:
        """The network, what it is scored on and how it is trained; ``training_step`` gives the loss."""
        return Subject(self._model, self._scored, self._loss, self._train, **more)

    def _model(self) -> nn.Module:
        return network_of(self.make()[0], self.attribute)

    def _scored(self, _seed: int) -> Sequence[Any]:
        own, data = _own_step(self.make, self.attribute)
        return [own.unpack(batch) for batch in islice(_training_data(data), self.batches)]

    def _loss(self, output: Any, target: Any) -> Tensor:
        return _own_step(self.make, self.attribute)[0].loss(output, target)

    def _train(self, network: nn.Module, training: Training) -> Mapping[str, float]:
        from lightning.pytorch import Trainer
        from lightning.pytorch.callbacks import ModelCheckpoint

        module, data = self.make()
        put(module, self.attribute, network)
        _set_rate(module, training.lr)
        last = ModelCheckpoint(training.folder, save_last=True, save_top_k=0)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = Trainer(**{**quiet, "default_root_dir": training.folder, "callbacks": [last], **self.trainer})
        loaders, whole = (data, None) if isinstance(data, tuple | list) else ((None, None), data)
        checkpoint = training.folder / "last.ckpt"
        before = str(checkpoint) if checkpoint.is_file() else None
        trainer.fit(module, loaders[0], loaders[1], datamodule=whole, ckpt_path=before)
        trainer.validate(module, loaders[1], datamodule=whole, verbose=False)
        return {name: float(value) for name, value in trainer.callback_metrics.items()}


@lru_cache(maxsize=1)
def _own_step(make: Callable[[], tuple[Any, Any]], attribute: str | None) -> tuple[OwnStep, Any]:
    """The training step of one module, for scoring."""
    module, data = make()
    return OwnStep(module, attribute, [torch.device("cpu")]), data


def _training_data(data: Any) -> Iterable[Any]:
    if isinstance(data, tuple | list):
        return data[0]  # type: ignore[no-any-return]
    data.prepare_data()
    data.setup("fit")
    return data.train_dataloader()  # type: ignore[no-any-return]


def _set_rate(module: Any, rate: float) -> None:
    from lightning.pytorch.utilities.parsing import lightning_hasattr, lightning_setattr

    name = next((name for name in RATE_NAMES if lightning_hasattr(module, name)), None)
    if name is None:
        raise UnsupportedError(
            f"{type(module).__name__} has neither {' nor '.join(RATE_NAMES)}, so no learning rate can be set. Keep it "
            "as self.lr and read that in configure_optimizers."
        )
    lightning_setattr(module, name, rate)
