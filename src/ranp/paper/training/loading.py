"""Which samples a step sees, on which rank, and in which part: a function of seed, epoch and step alone.

So a run goes on in the middle of an epoch without reading what it has seen, and any number of ranks and parts sees the
same samples in every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset

from ranp.errors import DataError
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Inputs, Sample, Samples, Task

Batch = tuple[Inputs, Tensor]
Visit = tuple[int, int]
"""Epoch, and number of the sample."""

_KEPT_BYTES = 1 << 30
"""Samples that never change are kept in memory up to this much."""


@dataclass(frozen=True, slots=True)
class Order:
    """How an epoch's samples become the batches of its steps.

    Attributes:
        samples: How many there are.
        batch: Samples of a step, over all ranks and parts.
        size: Number of ranks.
        parts: Parts in which a rank computes its share of a batch, one after the other.
        seed: Same seed, same order.
    """

    samples: int
    batch: int
    size: int
    parts: int
    seed: int

    def __post_init__(self) -> None:
        """Refuses what does not come out even: means of parts would no longer be the mean of the batch's samples."""
        if self.batch > self.samples:
            raise DataError(
                f"batch={self.batch} is more than the {self.samples} training samples. Lower batch, or raise "
                "train_count where the data allow it."
            )
        if self.batch % (self.size * self.parts):
            raise DataError(
                f"batch={self.batch} cannot be shared by {self.size} ranks in {self.parts} parts each (accumulate). "
                f"Pass a multiple of {self.size * self.parts}."
            )

    @classmethod
    def of(cls, recipe: Recipe, samples: int, ranks: int) -> Order:
        """As a recipe says it."""
        return cls(samples, recipe.batch, ranks, recipe.accumulate, recipe.seed)

    @property
    def steps(self) -> int:
        """Steps of an epoch; samples that do not fill a batch wait for another epoch's order."""
        return self.samples // self.batch

    def _of(self, epoch: int) -> list[int]:
        order: list[int] = np.random.default_rng((self.seed, 1, epoch)).permutation(self.samples).tolist()
        return order

    def batch_of(self, epoch: int, step: int) -> list[int]:
        """The samples of one step, of all ranks."""
        return self._of(epoch)[step * self.batch : (step + 1) * self.batch]

    def parts_from(self, epoch: int, step: int, rank: int) -> Iterator[list[Visit]]:
        """What a rank sees of an epoch from a step on, part by part."""
        order = self._of(epoch)
        share = self.batch // self.size
        size = share // self.parts
        for number in range(step, self.steps):
            start = number * self.batch + rank * share
            for part in range(self.parts):
                first = start + part * size
                yield [(epoch, index) for index in order[first : first + size]]


def check_batch(task: Task, recipe: Recipe, ranks: int) -> None:
    """Refuses what training would refuse of a batch, so that it can be done before anything slow.

    Raises:
        DataError: The samples do not fill it, or it does not come out even.
    """
    Order.of(recipe, len(task.train_data(recipe.size, recipe.train_count, recipe.seed)), ranks)


class Feed(Dataset[Sample]):
    """A data set ready to be read by epoch and number; samples that never change are kept, longer than an epoch.

    Args:
        data: The samples.
        workers: Processes that load them.
        pin: Put batches into memory that a GPU copies from faster.
    """

    def __init__(self, data: Samples, workers: int, *, pin: bool = False) -> None:
        self.data, self.workers, self.pin = data, workers, pin
        self._kept: dict[int, Sample] = {}
        self._room = 0 if data.varies else _KEPT_BYTES

    def __getitem__(self, visit: Visit) -> Sample:
        epoch, index = visit
        if index in self._kept:
            return self._kept[index]
        sample = self.data.draw(index, epoch)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tree_leaves(sample))
        if size <= self._room:
            self._kept[index] = sample
            self._room -= size
        return sample

    def batches(self, plan: Iterator[list[Visit]]) -> Iterator[Batch]:
        """The batches of a list of visits."""
        loader: DataLoader[Any] = DataLoader(
            self,
            batch_sampler=plan,
            num_workers=self.workers,
            pin_memory=self.pin,
            # A generator of its own: a loader draws from the global one, and a run that goes on would draw twice.
            generator=torch.Generator(),
        )
        for inputs, target in loader:
            yield tuple(inputs) if isinstance(inputs, list) else inputs, target


def training_parts(feed: Feed, order: Order, epoch: int, step: int, rank: int) -> Iterator[list[Batch]]:
    """The parts of each step of an epoch from a step on, as one rank sees them."""
    parts = feed.batches(order.parts_from(epoch, step, rank))
    for _ in range(step, order.steps):
        yield [next(parts) for _ in range(order.parts)]


def validation_batches(feed: Feed, batch: int, rank: int, size: int) -> Iterator[Batch]:
    """A rank's share of the validation data, each sample on one rank alone."""
    mine = range(rank, len(feed.data), size)
    plan = ([(0, index) for index in mine[start : start + batch]] for start in range(0, len(mine), batch))
    return feed.batches(plan)
