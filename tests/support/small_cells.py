"""Cells that run in a second, and an experiment of them."""

from __future__ import annotations

from typing import Any

from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import over_seeds
from ranp.paper.experiments.table import Column, Group, Table

SETTINGS = (
    "options.widths=4,8",
    "size=8",
    "epochs=2",
    "milestones=1",
    "batch=4",
    "train_count=8",
    "valid_count=4",
    "checkpoint_every=1",
)


def cell(method: str = "full", seed: int = 0, **changes: Any) -> Cell:
    usual = {"sparsity": 0.0 if method == "full" else 0.3, "settings": SETTINGS, "batches": 1, "batch": 4}
    return Cell("shapenet", method, seed, **{**usual, **changes})


def _cells(wanted: Wanted) -> tuple[Cell, ...]:
    return tuple(cell(method, seed) for seed in wanted.range for method in ("full", "ranp-f"))


def _present(results: Results, wanted: Wanted) -> Presentation:
    rows = tuple(
        (method, f"{over_seeds([results[cell(method, seed)] for seed in wanted.range], 'miou').mean:.6f}")
        for method in ("full", "ranp-f")
    )
    table = Table("small", "A small table", (Column("method", left=True), Column("mIoU")), (Group("", rows),))
    return Presentation((table,))


SMALL = Experiment("small", "A small table", "none", _cells, _present)
