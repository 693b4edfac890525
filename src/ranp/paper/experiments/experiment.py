"""What a table or figure of the paper is here: the declaration of its lines and columns, and what is made of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranp.choosing.plan import Plan
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.results import Costs, Result
from ranp.paper.experiments.running import Place
from ranp.paper.experiments.scales import QUICK
from ranp.paper.published import Row
from ranp.reporting import looks
from ranp.reporting.table import Column, Group, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FULL",
    "OURS",
    "Cell",
    "Column",
    "Experiment",
    "Line",
    "Note",
    "Presentation",
    "Results",
    "Wanted",
]


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
        """The seeds of cells that are trained; where nothing is, the first one tells what networks cost."""
        return range(1 if self.quick or self.resources_only else self.seeds)

    @property
    def is_paper(self) -> bool:
        """Whether the networks are the paper's own."""
        return self.scale == "paper"

    def cell(self, task: str, method: str = FULL, seed: int = 0, **changes: Any) -> Cell:
        """A cell at this scale; ``settings`` of the caller come after those of the scale.

        On small volumes batches of one leave batch norm little to normalise over, and few sparsities feasible: the
        small scale scores batches of eight.
        """
        settings = (*(QUICK[task].items() if self.quick else ()), *changes.pop("settings", ()))
        scored = {"batches": 2} if self.is_paper else {"batches": 4, "batch": 8}
        return Cell(
            task,
            method,
            seed,
            self.scale,
            settings=settings,
            data=self.data.get(task),
            **{"trains": not self.resources_only, **scored, **changes},
        )

    def runs(self, make: Callable[[int], Cell]) -> tuple[Cell, ...]:
        """The cell that ``make`` makes of each seed."""
        return tuple(map(make, self.range))

    def costs_only(self) -> Wanted:
        """The same without training, for experiments that never train."""
        return replace(self, resources_only=True)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of finished cells.

    Attributes:
        place: Where the cells lie, for what is not in a result: scores, weights.
        found: The results.
    """

    place: Place
    found: Mapping[Cell, Result]

    def __getitem__(self, cell: Cell) -> Result:
        return self.found[cell]

    def folder(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.place.of(cell)

    def plan(self, cell: Cell) -> Plan | None:
        """What its network was cut by; None for a full one."""
        return None if cell.method == FULL else Plan.load(self.folder(cell) / "plan.json")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: its cells and what the paper prints beside it; then also the results of the cells.

    Attributes:
        cells: What is run, one for each seed.
        name: Its first entry, default the paper's name of the method.
        network: By our name.
        group: The title above it and its like, default the paper's name of the network; ``{layers}`` stands for how
            many the network has.
        printed: The paper's row, if it has one.
        whole: The paper's row of the full network, which its reductions are taken against.
        key: What sets it apart from the others, for programs; default network and method.
        compared: Other cells that those of the line are compared with.
        found: The results of the cells.
        measured: What the experiment measured of them beside.
    """

    cells: tuple[Cell, ...]
    name: str = ""
    network: str = ""
    group: str = ""
    printed: Row | None = None
    whole: Row | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    compared: tuple[Cell, ...] = ()
    found: tuple[Result, ...] = ()
    measured: Any = None

    def __post_init__(self) -> None:
        usual = {
            "name": looks.TITLES[self.method],
            "group": looks.NETWORKS.get(self.network, ""),
            "key": {"network": self.network, "method": self.method},
        }
        for name, value in usual.items():
            object.__setattr__(self, name, getattr(self, name) or value)

    @property
    def method(self) -> str:
        """The method of its cells."""
        return self.cells[0].method

    @property
    def pruned(self) -> bool:
        """Whether anything was removed."""
        return self.method != FULL

    @property
    def kept_one(self) -> bool:
        """Whether a layer of any run kept a channel that it would have lost."""
        return any(one.kept_one for one in self.found)

    @property
    def slim(self) -> Costs:
        """Costs of the networks that were trained, the mean over seeds."""
        return Costs.mean([one.slim for one in self.found])

    @property
    def full(self) -> Costs:
        """Costs of the full network."""
        return Costs.mean([one.full for one in self.found])

    def values(self, name: str) -> list[float]:
        """That figure of each result which has it."""
        return [value for one in self.found if (value := getattr(one, name)) is not None]

    def mean(self, name: str) -> float:
        """Its mean."""
        values = self.values(name)
        return sum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Presentation:
    """What an experiment shows.

    Attributes:
        table: The table.
        figures: Name of the file, without suffix, to the drawing.
    """

    table: Table
    figures: Mapping[str, Figure] = field(default_factory=dict)


Note = str | Callable[[Wanted, Sequence[Line]], Iterable[str]]
"""A note below a table, or what makes notes of its lines."""


def _nothing_drawn(wanted: Wanted, lines: Sequence[Line], results: Results) -> Mapping[str, Figure]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        name: On the command line.
        title: What it is called here.
        label: Its labels in the paper's source, or what part of the text it follows.
        heading: Above the table, default the title.
        lines: The lines of the table, each with what has to be run for it.
        columns: The columns, each of which makes its entry of a line with results.
        caption: What is shown and how it was made.
        notes: What to mind.
        record: The line for programs: one mapping, or several.
        measure: What is measured of the cells of a line beside their results, once for all lines of the same cells.
        figures: The drawings, by the name of the file without suffix.
    """

    name: str
    title: str
    label: str
    lines: Callable[[Wanted], Iterable[Line]]
    columns: Callable[[Wanted, Sequence[Line]], Iterable[Column]]
    record: Callable[[Line], dict[str, Any] | list[dict[str, Any]]]
    heading: str = ""
    caption: Callable[[Wanted], str] = lambda wanted: ""
    notes: tuple[Note, ...] = ()
    measure: Callable[[Wanted, Line, Results], Any] = lambda wanted, line, results: None
    figures: Callable[[Wanted, Sequence[Line], Results], Mapping[str, Figure]] = _nothing_drawn

    @property
    def draws(self) -> bool:
        """Whether there are drawings."""
        return self.figures is not _nothing_drawn

    def cells(self, wanted: Wanted) -> tuple[Cell, ...]:
        """What has to be run, all lines of a seed before the next seed: a part of the table is of use early."""
        lines = list(self.lines(wanted))
        by_seed = itertools.zip_longest(*(line.cells for line in lines))
        cells = (cell for cells in (*by_seed, *(line.compared for line in lines)) for cell in cells)
        return tuple(dict.fromkeys(cell for cell in cells if cell is not None))

    def present(self, results: Results, wanted: Wanted) -> Presentation:
        """The table and the drawings, from the results of exactly these cells."""
        measured: dict[tuple[Cell, ...], Any] = {}
        lines: list[Line] = []
        for line in self.lines(wanted):
            if line.cells not in measured:
                measured[line.cells] = self.measure(wanted, line, results)
            found = tuple(results[cell] for cell in line.cells)
            group = line.group.format(layers=len(found[0].widths))
            lines.append(replace(line, group=group, found=found, measured=measured[line.cells]))
        columns = tuple(self.columns(wanted, lines))
        groups = itertools.groupby(lines, key=lambda line: line.group)
        records = [self.record(line) for line in lines]
        table = Table(
            self.name,
            self.heading or self.title,
            columns,
            tuple(
                Group(title, tuple(tuple(column.text(line) for column in columns) for line in group))
                for title, group in groups
            ),
            caption=self.caption(wanted),
            notes=tuple(
                itertools.chain(*([note] if isinstance(note, str) else note(wanted, lines) for note in self.notes))
            ),
            records=tuple(itertools.chain(*(one if isinstance(one, list) else [one] for one in records))),
        )
        return Presentation(table, self.figures(wanted, lines, results))
