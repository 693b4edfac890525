"""What is compared: a network, what it is scored on, and how it is trained; all of it anybody's own code."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from ranp import arguments
from ranp.costs.step import TrainingStep
from ranp.errors import DataError, UnsupportedError, asked
from ranp.running.randomness import reseed
from ranp.scoring.passes import Loss


@dataclass(frozen=True, slots=True)
class Training:
    """What one training is told.

    Attributes:
        seed: Of samples, their order, and everything else that is drawn; the global generators are seeded already.
        lr: The learning rate.
        folder: Its own, for checkpoints; what lies in it is still there when a killed comparison goes on.
        told: ``told(done, total)`` reports how far it is, where somebody listens.
    """

    seed: int
    lr: float
    folder: Path
    told: Callable[[int, int], object] = lambda done, total: None


Train = Callable[[nn.Module, Training], Mapping[str, float]]
"""``train(network, training)`` trains the network in place and returns figures of merit on data that it never saw."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A network and its training.

    Attributes:
        model: Makes the full network; the global generators are seeded before it is called.
        batches: ``(inputs, target)`` pairs to score on, or a function of the seed that makes them.
        loss: ``loss(output, target)``.
        train: See ``Train``.
        example: Inputs of one call that costs are taken at; default those of the first batch.
        step: What a training step is, for budgets of memory and time.
        device: Where networks are made, scored and handed to ``train``.
    """

    model: Callable[[], nn.Module]
    batches: Iterable[Any] | Callable[[int], Iterable[Any]]
    loss: Loss
    train: Train
    example: Any = None
    step: TrainingStep | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("model", "loss", "train"):
            if not callable(getattr(self, name)):
                raise UnsupportedError(f"{asked(name)} is a {type(getattr(self, name)).__name__}. Pass a function.")

    def full(self, seed: int) -> nn.Module:
        """The full network with the weights of a seed.

        Raises:
            DataError: The function failed, or returned something else.
        """
        reseed(seed, ())
        with arguments.blamed("the function that makes the network"):
            network = self.model()
        if not isinstance(network, nn.Module):
            raise DataError(f"the function that makes the network returned a {type(network).__name__}.")
        return network.to(self.device)

    def scored_on(self, seed: int) -> Iterable[Any]:
        """The batches of a seed."""
        reseed(seed, ())
        with arguments.blamed("batches"):
            return self.batches(seed) if callable(self.batches) else self.batches

    def trained(self, network: nn.Module, training: Training) -> dict[str, float]:
        """Trains a network and returns its figures.

        Raises:
            DataError: The function failed, or what it returned are no figures.
        """
        reseed(training.seed, ())
        with arguments.blamed("train"):
            found = self.train(network, training)
        if not isinstance(found, Mapping) or not found:
            raise DataError(f"train returned {arguments.shown(found)}. Return figures by name, as in {{'loss': 0.3}}.")
        try:
            return {str(name): float(value) for name, value in found.items()}
        except (TypeError, ValueError) as error:
            raise DataError(f"train returned a figure that is no number ({error}). Return numbers by name.") from error

    def fingerprints(self) -> dict[str, str]:
        """The source of each function as a checksum: cells of other code are not taken for cells of this."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _source(value) for name, value in named.items() if callable(value)}


def _source(function: Any) -> str:
    own = getattr(function, "fingerprint", None)  # an adapter knows best what it stands for
    if isinstance(own, str):
        return own
    try:
        text = inspect.getsource(inspect.unwrap(getattr(function, "func", function)))
    except (OSError, TypeError):
        text = getattr(function, "__qualname__", type(function).__qualname__)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
