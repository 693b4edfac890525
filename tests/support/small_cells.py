"""Cells that run in a second, and an experiment of them."""

from __future__ import annotations

from typing import Any

from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Experiment, Line, Wanted
from ranp.paper.experiments.results import over_seeds
from ranp.reporting.table import Column

SETTINGS = (
    ("options.widths", (4, 8)),
    ("size", 8),
    ("epochs", 2),
    ("milestones", (1,)),
    ("batch", 4),
    ("train_count", 8),
    ("valid_count", 4),
    ("checkpoint_every", 1),
)


def cell(method: str = "full", seed: int = 0, **changes: Any) -> Cell:
    usual = {"sparsity": 0.0 if method == "full" else 0.3, "settings": SETTINGS, "batches": 1, "batch": 4}
    return Cell("shapenet", method, seed, **{**usual, **changes})


def _lines(wanted: Wanted) -> list[Line]:
    return [Line(tuple(cell(method, seed) for seed in wanted.range), method) for method in ("full", "ranp-f")]


def _miou(line: Line) -> str:
    return f"{over_seeds(line.found, 'miou').mean:.6f}"


SMALL = Experiment(
    name="small",
    title="A small table",
    label="none",
    lines=_lines,
    columns=lambda wanted, lines: (
        Column("method", left=True, text=lambda line: line.name),
        Column("mIoU", text=_miou),
    ),
    record=lambda line: {"method": line.name, "miou": _miou(line)},
)
