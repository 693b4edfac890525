"""Results that nobody computed: every cell with figures of its own, so that one in the wrong place is seen."""

from __future__ import annotations

from pathlib import Path

from ranp.paper import published
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Experiment, Results, Wanted
from ranp.paper.experiments.results import Costs, Result
from ranp.paper.experiments.running import Place
from ranp.reporting.table import Table

FULL = Costs(10 * 1024**2, 4 * 10**9, 8 * 1024**2)


def numbered(experiment: Experiment, wanted: Wanted, folder: Path | None = None) -> Results:
    """The cells of an experiment, numbered in their order; the number is in every figure."""
    found: dict[Cell, Result] = {}
    for number, cell in enumerate(dict.fromkeys(experiment.cells(wanted))):
        share = 1.0 if cell.method == "full" else 0.9 - number / 1000
        slim = Costs(*(round(share * value) for value in (FULL.params, FULL.flops, FULL.memory)))
        names = published.FIGURES[cell.recipe().network]
        epochs = tuple({"epoch": epoch, "valid": dict.fromkeys(names, (number + epoch) / 500)} for epoch in range(1, 8))
        sparsity = number / 200 if cell.sparsity is None else cell.sparsity
        found[cell] = Result(
            cell,
            FULL,
            slim,
            sparsity,
            number / 300,
            None if cell.method == "full" else number / 250,
            False,
            {f"layer{layer}": (1, 2) for layer in range(number + 3)},
            epochs if cell.trains else (),
        )
    return Results(Place(folder or Path()), found)


def by_column(table: Table) -> list[dict[str, list[str]]]:
    """Every row by the names of columns; several columns may have one name."""
    told: list[dict[str, list[str]]] = []
    for group in table.groups:
        for row in group.rows:
            by_name: dict[str, list[str]] = {"group": [group.title]}
            for column, text in zip(table.columns, row, strict=True):
                by_name.setdefault(column.name, []).append(text)
            told.append(by_name)
    return told
