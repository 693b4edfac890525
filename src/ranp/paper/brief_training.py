"""Training for minutes rather than days: the same batches in the same order for every network, and a fair clock."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ranp.errors import DataError, UnsupportedError
from ranp.paper.tasks.task import Samples, Task

__all__ = ["Lessons", "Objects", "evaluate", "gather", "step_seconds", "train"]

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Objects:
    """A data set in memory: inputs (N, C, S, S, S) and labels (N, S, S, S)."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All objects in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield self.inputs[start : start + size], self.labels[start : start + size]


def gather(data: Samples, count: int, progress: Progress | None = None) -> Objects:
    """Makes ``count`` objects of a data set, once, so that no network waits for them.

    Raises:
        UnsupportedError: A sample has more than one input.
    """
    inputs, labels = [], []
    for index in range(count):
        volume, target = data[index]
        if not isinstance(volume, Tensor):
            raise UnsupportedError(f"sample {index} has {len(volume)} inputs. Pass data with one input per sample.")
        inputs.append(volume)
        labels.append(target)
        if progress is not None:
            progress(index + 1, count)
    return Objects(torch.stack(inputs), torch.stack(labels))


@dataclass(frozen=True, slots=True)
class Lessons:
    """How a network is trained: Adam, a learning rate that rises and falls once, batches drawn by seed.

    Attributes:
        steps: Number of steps.
        batch: Objects in a batch.
        learning_rate: Its highest value.
        seed: Same seed, same batches in the same order, whatever the network.
    """

    steps: int = 150
    batch: int = 8
    learning_rate: float = 0.01
    seed: int = 0

    def batches(self, data: Objects) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of all steps: every object once before any comes again."""
        generator = torch.Generator().manual_seed(self.seed)
        size = min(self.batch, len(data))
        order = torch.empty(0, dtype=torch.long)
        for _ in range(self.steps):
            if len(order) < size:
                order = torch.randperm(len(data), generator=generator)
            chosen, order = order[:size], order[size:]
            yield data.inputs[chosen], data.labels[chosen]


def train(
    model: nn.Module, task: Task, data: Objects, lessons: Lessons, progress: Progress | None = None
) -> tuple[float, ...]:
    """Trains a network in place and returns its loss at every step.

    Raises:
        DataError: The loss is no longer finite.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=lessons.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, lessons.learning_rate, total_steps=lessons.steps + 1, pct_start=0.2
    )
    losses: list[float] = []
    model.train()
    for inputs, labels in lessons.batches(data):
        losses.append(_step(model, task, inputs, labels, optimiser))
        schedule.step()
        if not math.isfinite(losses[-1]):
            raise DataError(
                f"training diverged: the loss is {losses[-1]} at step {len(losses)}. Lower the learning rate."
            )
        if progress is not None:
            progress(len(losses), lessons.steps)
    return tuple(losses)


def evaluate(model: nn.Module, task: Task, data: Objects, batch: int = 8) -> dict[str, float]:
    """The task's figures over a data set; the network is left in eval mode."""
    model.eval()
    with torch.no_grad():
        return task.evaluate((model(inputs), labels) for inputs, labels in data.batches(batch))


def step_seconds(
    models: Mapping[str, nn.Module],
    task: Task,
    data: Objects,
    batch: int,
    rounds: int,
    progress: Progress | None = None,
) -> dict[str, tuple[float, ...]]:
    """Seconds of a training step of each network, measured in turn so that a busy machine is unfair to none.

    Copies are timed; the networks themselves learn nothing. One untimed round warms up.
    """
    inputs, labels = next(data.batches(batch))
    copies = {name: copy.deepcopy(model).train() for name, model in models.items()}
    optimisers = {name: torch.optim.Adam(model.parameters(), lr=0.0) for name, model in copies.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    names = list(models)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            start = time.perf_counter()
            _step(copies[name], task, inputs, labels, optimisers[name])
            if number:
                seconds[name].append(time.perf_counter() - start)
        if progress is not None and number:
            progress(number, rounds)
    return {name: tuple(values) for name, values in seconds.items()}


def median_ratio(times: Sequence[float], reference: Sequence[float]) -> float:
    """The median over rounds of one time over the other of the same round."""
    return statistics.median(a / b for a, b in zip(times, reference, strict=True))


def _step(model: nn.Module, task: Task, inputs: Tensor, labels: Tensor, optimiser: torch.optim.Optimizer) -> float:
    optimiser.zero_grad(set_to_none=True)
    loss = task.loss(model(inputs), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return float(loss.detach())
