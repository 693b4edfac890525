"""What came out of a cell, on disk as ``result.json`` in its folder, and how several seeds become one figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ranp.costs.profiles import Profile
from ranp.errors import StorageError
from ranp.files import atomic
from ranp.paper.experiments.cell import Cell

__all__ = ["NAME", "Costs", "Result", "Spread", "make_folder", "over_last_epochs", "over_seeds", "read", "write"]

NAME = "result.json"
KIND, VERSION = "ranp-result", 2
LAST = 5
"""Epochs at the end of a run that the paper takes its mean and spread over."""
_MB = 4 / 1024**2


@dataclass(frozen=True, slots=True)
class Costs:
    """What a network takes, in the paper's convention.

    Attributes:
        params: Parameters.
        flops: Multiply-adds of one call.
        memory: Elements of its activations.
    """

    params: int
    flops: int
    memory: int

    @property
    def params_mb(self) -> float:
        """Megabytes of parameters."""
        return self.params * _MB

    @property
    def gflops(self) -> float:
        """Thousands of millions of multiply-adds."""
        return self.flops / 1e9

    @property
    def memory_mb(self) -> float:
        """Megabytes of activations."""
        return self.memory * _MB

    @classmethod
    def of(cls, found: Profile) -> Costs:
        """Of a profile."""
        return cls(found.params, found.flops, found.memory)

    @classmethod
    def mean(cls, found: Sequence[Any]) -> Costs:
        """The mean of several, to whole numbers; seeds score differently."""
        return cls(
            *(round(sum(getattr(one, name) for one in found) / len(found)) for name in ("params", "flops", "memory"))
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A finished cell.

    Attributes:
        cell: What was run.
        full: Costs of the full network.
        slim: Costs of the network that was trained.
        sparsity: The sparsity that was asked of the method.
        removed: Share of channels that is gone.
        largest: The largest feasible sparsity of the method; None where nothing is pruned.
        kept_one: Whether layers that would have lost all their channels kept one.
        widths: Channels of each layer that stay, and had been.
        epochs: The journal's epochs: ``epoch``, ``loss``, ``seconds``, ``valid``.
        used: Share of its budget that the network takes, by torch's count; None where it had none.
        versions: Of what it ran on.
    """

    cell: Cell
    full: Costs
    slim: Costs
    sparsity: float
    removed: float
    largest: float | None
    kept_one: bool
    widths: Mapping[str, tuple[int, int]]
    epochs: tuple[Mapping[str, Any], ...] = ()
    used: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """Of the last validation; empty where nothing was trained."""
        return dict(next((record["valid"] for record in reversed(self.epochs) if record.get("valid")), {}))

    def last(self, figure: str) -> list[float]:
        """The figure after each of the last epochs."""
        figures = [record["valid"][figure] for record in self.epochs if record.get("valid")]
        return figures[-LAST:]

    @property
    def seconds(self) -> float:
        """Of all training steps together; the journal counts them from the first."""
        return float(self.epochs[-1]["seconds"]) if self.epochs else 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean and a standard deviation (of a sample: divided by n - 1; 0 of a single value).

    >>> Spread.of([1.0, 3.0])
    Spread(mean=2.0, deviation=1.4142135623730951, count=2)
    """

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of these values."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def over_seeds(results: Iterable[Result], figure: str) -> Spread:
    """The figure of the last epoch, over the runs of several seeds."""
    return Spread.of([result.figures[figure] for result in results])


def over_last_epochs(results: Iterable[Result], figure: str) -> Spread:
    """As the paper does it: over the last five epochs of a run; the mean of both over the runs, if there are more."""
    each = [Spread.of(result.last(figure)) for result in results]
    mean = statistics.fmean
    return Spread(mean(one.mean for one in each), mean(one.deviation for one in each), min(one.count for one in each))


def make_folder(folder: Path) -> None:
    """Makes the folder of a cell.

    Raises:
        StorageError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {str(folder)!r}: {error.strerror}. Name another.") from error


def write(folder: Path, result: Result) -> None:
    """Writes the result of a cell, whole or not at all: from then on it is finished.

    Raises:
        StorageError: The folder cannot be made or written to.
    """
    make_folder(folder)
    value = {**asdict(result), "cell": result.cell.to_dict()}
    atomic.write_json(folder / NAME, value, kind=KIND, version=VERSION)


def read(folder: Path) -> Result | None:
    """The result of a cell; None if it is not finished.

    Raises:
        StorageError: The file is damaged, or was changed since it was written.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        value = atomic.read_json(path, kind=KIND, version=VERSION)
        return Result(
            **{
                **value,
                "cell": Cell.from_dict(value["cell"]),
                "full": _costs(value["full"]),
                "slim": _costs(value["slim"]),
                "widths": {name: (int(pair[0]), int(pair[1])) for name, pair in value["widths"].items()},
                "epochs": tuple(value["epochs"]),
            }
        )
    except StorageError as error:
        raise StorageError(f"{error} Remove it to run the cell again.") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise StorageError(
            f"{str(path)!r} is no result of a cell ({error}). Remove it to run the cell again."
        ) from error


def _costs(figures: Mapping[str, Any]) -> Costs:
    if any(type(figure) is not int or not 0 <= figure < 2**63 for figure in figures.values()):
        raise ValueError(f"costs are whole numbers, not {dict(figures)}")
    return Costs(**figures)
