"""Results of cells that were never run: numbers drawn at random, so that every figure of a table can be told apart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.experiment import Experiment, Results, Wanted
from ranp.paper.experiments.results import Costs, Result
from ranp.paper.experiments.running import Place
from ranp.paper.published import FIGURES
from ranp.reporting.table import Table

EPOCHS = 7


def crafted(experiment: Experiment, wanted: Wanted, folder: Path) -> Results:
    """A result of every cell of an experiment."""
    return Results(Place(folder), {cell: result_of(cell) for cell in experiment.cells(wanted)})


def result_of(cell: Cell) -> Result:
    network = cell.recipe().network
    same, draw = random.Random(network), random.Random(cell.id)
    full = Costs(*(same.randrange(10**7, 10**9) for _ in range(3)))
    share = 1.0 if cell.method == FULL else draw.uniform(0.05, 0.9)
    slim = Costs(*(int(value * share) for value in (full.params, full.flops, full.memory)))
    epochs = tuple(
        {
            "kind": "epoch",
            "epoch": number,
            "step": 5 * number,
            "loss": draw.random(),
            "seconds": 2.5 * number,
            "valid": {name: draw.random() for name in FIGURES[network]},
        }
        for number in range(1, EPOCHS + 1)
    )
    return Result(
        cell=cell,
        full=full,
        slim=slim,
        sparsity=cell.sparsity or 0.0,
        removed=0.9 * (cell.sparsity or 0.0),
        largest=None if cell.method == FULL else draw.random(),
        kept_one=cell.method != FULL and draw.random() < 0.5,
        widths={f"layer{number}": (draw.randrange(1, 9), 9) for number in range(5)},
        epochs=epochs if cell.trains else (),
    )


def rows_of(table: Table, title: str) -> list[dict[str, str]]:
    """The rows of a group by the names of their columns; of equal names the first counts, the others have a number."""
    names: list[str] = []
    for column in table.columns:
        again = names.count(column.name) + sum(name.startswith(f"{column.name} #") for name in names)
        names.append(f"{column.name} #{again + 1}" if again else column.name)
    (group,) = (group for group in table.groups if group.title == title)
    return [dict(zip(names, row, strict=True)) for row in group.rows]


def only(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All experiments are of that network alone."""
    monkeypatch.setattr(main, "networks", lambda wanted: (network,))
