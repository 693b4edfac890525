"""What a task is: its data, its loss, its metrics and the settings the paper uses for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.utils.data import Dataset

__all__ = ["Sample", "SampleSource", "Task"]

Sample = tuple[Tensor, Tensor]
"""Input and target of one object."""


class SampleSource(Protocol):
    """Makes a map-style data set whose sample ``i`` depends on the seed, the split and ``i`` alone."""

    def __call__(self, size: int = ..., count: int = ..., seed: int = ...) -> Dataset[Sample]:
        """``count`` samples of edge length ``size``."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the paper.

    Attributes:
        name: Its name on the command line.
        network: Name of its network in ``ranp.paper.models``.
        classes: Labels a network must tell apart.
        strength: The paper's lambda for reweighting on this task.
        train_data: ``train_data(size, count, seed)``, the data to score and train on.
        valid_data: ``valid_data(size, count, seed)``, disjoint from the training data of any seed.
        loss: ``loss(output, target)``, a scalar.
        metrics: ``metrics(output, target)``, figures of one batch by name.
        evaluate: ``evaluate(pairs)``, the same figures over all ``(output, target)`` batches of a data set.
    """

    name: str
    network: str
    classes: int
    strength: float
    train_data: SampleSource
    valid_data: SampleSource
    loss: Callable[[Tensor, Tensor], Tensor]
    metrics: Callable[[Tensor, Tensor], dict[str, float]]
    evaluate: Callable[[Iterable[tuple[Tensor, Tensor]]], dict[str, float]]
