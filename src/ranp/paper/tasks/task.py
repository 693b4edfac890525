"""What a task is: its data, its loss, its metrics, and the paper's settings for it. One contract for all four."""

from __future__ import annotations

import dataclasses
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from ranp.costs.step import TrainingStep
from ranp.errors import DataError, UnsupportedError, unknown_name
from ranp.paper.recipe import Recipe
from ranp.progress import Progress
from ranp.running.calling import call

logger = logging.getLogger(__name__)

Inputs = Tensor | tuple[Tensor, ...]
"""What goes into a network: one tensor, or several (a stereo pair)."""

Sample = tuple[Inputs, Tensor]
"""Inputs and target of one sample, without a batch dimension."""


class Samples(Dataset[Sample], ABC):
    """A data set whose samples depend on their number and their visit alone, so that a broken run can go on exactly.

    Attributes:
        varies: Whether a later visit gives another sample (crops, flips); where it does not, samples may be kept.
        count: How many samples there are.
    """

    varies: bool = False
    count: int

    def __len__(self) -> int:
        return self.count

    @abstractmethod
    def draw(self, index: int, visit: int = 0) -> Sample:
        """Sample ``index`` as it is on its ``visit``-th visit, which is the epoch.

        Randomness comes from a generator made from seed, split, index and visit, never from a global one.
        """

    def check(self, progress: Progress | None = None) -> None:
        """Looks at every label there is before anything is trained; procedural data has nothing to check.

        Raises:
            DataError: A file is missing, torn or mislabelled; the message names it, the value and what is allowed.
        """

    def __getitem__(self, index: int) -> Sample:
        """Sample ``index`` on its first visit."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self.draw(index)


SampleSource = Callable[..., Samples]
"""Makes a data set of ``size``, ``count`` and ``seed``: so many samples (None: all there are) of that edge length."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where samples come from.

    A published data set gives all it has where more are asked for (``available``); procedural data has no end.

    Attributes:
        train_data: ``train_data(size, count, seed)``, the data to score and train on.
        valid_data: ``valid_data(size, count, seed)``, disjoint from the training data of any seed.
        options: What the data demand of the network, such as ``{"in_channels": 2}``.
        summary: What is there, in one line: counts, and what is missing.
    """

    train_data: SampleSource
    valid_data: SampleSource
    options: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""


Opener = Callable[..., Source]
"""Reads a data set in its published form: ``opener(folder, allow_missing=..., fold=...)``.

``allow_missing`` takes what is there of what the official lists name, ``fold`` says which part validates, see
``Recipe.fold``. A folder that does not look right is a ``DataError``: what was expected, and what was found.
"""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of a task, made from sums, so that batches and ranks can be added up exactly.

    Attributes:
        tally: ``tally(output, target)``, the sums of one batch by name, always the same names.
        figures: ``figures(sums)``, figures by name, of sums that were added up.
        main: The figure that says how good a network is.
        higher_is_better: Of ``main``.
    """

    tally: Callable[[Tensor, Tensor], dict[str, float]]
    figures: Callable[[Mapping[str, float]], dict[str, float]]
    main: str
    higher_is_better: bool = True

    def __call__(self, output: Tensor, target: Tensor) -> dict[str, float]:
        """Figures of one batch."""
        return self.figures(self.tally(output, target))

    def over(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
        """Figures over batches of outputs and targets; an iterator needs only one batch's memory at a time.

        Raises:
            DataError: There are none, or one of them is not right.
        """
        total: dict[str, float] = {}
        for output, target in pairs:
            for name, value in self.tally(output, target).items():
                total[name] = total.get(name, 0.0) + value
        if not total:
            raise DataError("there is nothing to evaluate; pass at least one batch.")
        return self.figures(total)


def available(wanted: int | None, there: int, what: str) -> int:
    """How many of what is there are taken: a recipe may ask for more than a partial data set has.

    Raises:
        DataError: None is asked for.
    """
    if wanted is not None and wanted < 1:
        raise DataError(f"count={wanted}: ask for at least one of the {there} {what}, or leave it out for all.")
    if wanted is not None and wanted > there:
        logger.warning("%d %s were asked for; all %d that there are are taken", wanted, what, there)
    return there if wanted is None else min(wanted, there)


def step_of(
    task: Task,
    scale: str | None = None,
    *,
    batch: int | None = None,
    optimiser: str | None = None,
    precision: str | None = None,
    checkpointing: bool = False,
    ranks: int = 1,
) -> TrainingStep:
    """A training step of a task's recipe, for budgets and predictions of memory and time.

    Args:
        task: Whose.
        scale: See ``Task.recipe_at``.
        batch: Instead of the samples that the recipe computes at a time.
        optimiser: Instead of the recipe's.
        precision: Instead of the recipe's.
        checkpointing: See ``ranp.TrainingStep``; no recipe checkpoints activations.
        ranks: Processes that share a batch.

    Raises:
        UnsupportedError: There is no such scale, optimiser or precision.
    """
    own = task.recipe_at(scale).step(ranks)
    return TrainingStep(
        batch or own.batch, optimiser or own.optimiser, precision or own.precision, checkpointing or own.checkpointing
    )


def _plainly(model: nn.Module, inputs: Inputs, size: int) -> Tensor:
    """What the network answers to a batch as it is."""
    output: Tensor = call(model, inputs)
    return output


def _samples(target: Tensor) -> float:
    return float(len(target))


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the paper.

    Attributes:
        name: Its name on the command line.
        classes: Labels a network must tell apart; 0 if it predicts a number.
        strength: The paper's lambda for reweighting on this task.
        sparsity: The paper's sparsity of RANP-f on this task's network.
        recipe: The paper's recipe.
        cpu: A small recipe that two cores can follow in minutes, small network included.
        source: Where samples come from; procedural unless ``reading`` made the task.
        loss: ``loss(output, target)``, a scalar: a mean over a batch.
        metrics: Figures of a batch, or of many.
        weight: ``weight(target)``: over how much the loss of a batch is a mean (labelled voxels, samples, ...). Means
            of parts, weighted so, are the mean of the whole: over ranks, over accumulated parts.
        predict: ``predict(model, inputs, size)``: what a network in eval mode answers to a batch of the validation
            data, which may be larger than what it was trained on.
        open: Reads the published data set.
        needs: Packages that it cannot do without, by the name they are imported by, each with its extra.
        readers: Those that read the published data set.
    """

    name: str
    classes: int
    strength: float
    sparsity: float
    recipe: Recipe
    cpu: Recipe
    source: Source
    loss: Callable[[Any, Tensor], Tensor]
    metrics: Metrics
    open: Opener
    weight: Callable[[Tensor], float] = _samples
    predict: Callable[[nn.Module, Inputs, int], Tensor] = _plainly
    needs: Mapping[str, str] = field(default_factory=dict)
    readers: Mapping[str, str] = field(default_factory=dict)

    @property
    def network(self) -> str:
        """Name of its network in ``ranp.paper.models``."""
        return self.recipe.network

    def recipe_at(self, scale: str | None) -> Recipe:
        """The recipe of a scale: ``"paper"``, which None means, too, or ``"cpu"``.

        Raises:
            UnsupportedError: There is no such scale.
        """
        if scale not in (None, "paper", "cpu"):
            raise UnsupportedError(unknown_name("scale", scale, ("cpu", "paper")))
        return self.cpu if scale == "cpu" else self.recipe

    def train_data(self, size: int | None = None, count: int | None = None, seed: int = 0) -> Samples:
        """The data to score and train on; ``size`` is the recipe's by default, ``count`` all there are."""
        return self.source.train_data(size=self.recipe.size if size is None else size, count=count, seed=seed)

    def valid_data(self, size: int | None = None, count: int | None = None, seed: int = 0) -> Samples:
        """The data to validate on."""
        return self.source.valid_data(size=self.recipe.size if size is None else size, count=count, seed=seed)

    def evaluate(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
        """Figures over batches of outputs and targets."""
        return self.metrics.over(pairs)

    def reading(self, folder: Path | str, *, allow_missing: bool = False, fold: int = 0) -> Task:
        """The task on a published data set instead of procedural data.

        Raises:
            DataError: The folder does not look right.
        """
        path = Path(folder)
        if not path.is_dir():
            raise DataError(f"--data {str(path)!r} is not a folder. Pass the folder of the {self.name} data set.")
        return dataclasses.replace(self, source=self.open(path, allow_missing=allow_missing, fold=fold))
