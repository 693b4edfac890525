"""What a table or figure of the paper is here: a list of cells, and what is made of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.running import Place
from ranp.paper.experiments.scales import QUICK
from ranp.paper.experiments.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Experiment", "Presentation", "Results", "Wanted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How an experiment is run.

    Attributes:
        scale: ``"cpu"`` or ``"paper"``.
        seeds: Runs of each cell that is trained.
        quick: As little as shows that everything runs; one seed.
        resources_only: What the networks cost, without training them.
        data: Task name to the folder of its published data set; others are procedural.
    """

    scale: str = "cpu"
    seeds: int = 3
    quick: bool = False
    resources_only: bool = False
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def range(self) -> range:
        """The seeds."""
        return range(1 if self.quick else self.seeds)

    def cell(self, task: str, method: str = "full", seed: int = 0, **changes: Any) -> Cell:
        """A cell at this scale; ``settings`` of the caller come after those of the scale.

        On small volumes batches of one leave batch norm little to normalise over, and few sparsities feasible: the
        small scale scores batches of eight.
        """
        settings = (*(QUICK.get(task, ()) if self.quick else ()), *changes.pop("settings", ()))
        scored = {"batches": 4, "batch": 8} if self.scale == "cpu" else {"batches": 2}
        return Cell(
            task,
            method,
            seed,
            self.scale,
            settings=settings,
            data=self.data.get(task),
            **{"trains": not self.resources_only, **scored, **changes},
        )

    def costs_only(self) -> Wanted:
        """The same without training, for experiments that never train."""
        return replace(self, resources_only=True)


@dataclass(frozen=True, slots=True)
class Results:
    """What came out of cells; those that are not finished are not there.

    Attributes:
        place: Where the cells lie, for what is not in a result: scores, weights.
        found: The results.
    """

    place: Place
    found: Mapping[Cell, Result]

    def __getitem__(self, cell: Cell) -> Result:
        return self.found[cell]

    def __contains__(self, cell: object) -> bool:
        return cell in self.found

    def __iter__(self) -> Iterator[Result]:
        return iter(self.found.values())

    def folder(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.place.of(cell)


@dataclass(frozen=True, slots=True)
class Presentation:
    """What an experiment shows.

    Attributes:
        tables: In the order in which they are read.
        figures: Name of the file, without suffix, to the drawing.
    """

    tables: tuple[Table, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        name: On the command line.
        title: What it is called here.
        label: Its labels in the paper's source, or what part of the text it follows.
        cells: What has to be run.
        present: What is made of it. Called with the results of exactly these cells.
    """

    name: str
    title: str
    label: str
    cells: Callable[[Wanted], tuple[Cell, ...]]
    present: Callable[[Results, Wanted], Presentation]
