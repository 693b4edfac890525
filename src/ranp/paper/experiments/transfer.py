"""Widths found on one task, trained on another: ShapeNet and BraTS (paper, ``tb:transfer``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ranp.paper.experiments import texts
from ranp.paper.experiments.experiment import FULL, OURS, Cell, Column, Experiment, Line, Wanted
from ranp.paper.published import transfer
from ranp.paper.recipe import Setting

__all__ = ["SPARSITY", "TRANSFER", "cell_of"]

SPARSITY = 0.8
_TASKS = {"shapenet": "brats", "brats": "shapenet"}
"""Each with the one that widths come from."""
_ROWS = {FULL: "Full", OURS: "RANP-f", "transferred": "T-RANP-f"}


def cell_of(wanted: Wanted, task: str, row: str, seed: int) -> Cell:
    """A cell of the table: ``"full"``, ``"ranp-f"``, or ``"transferred"``: by the plan of the other task's RANP-f."""
    settings = _settings(wanted, task)
    if row == FULL:
        return wanted.cell(task, FULL, seed, settings=settings)
    if row == "transferred":
        origin = cell_of(wanted, _TASKS[task], OURS, seed)
        return wanted.cell(task, OURS, seed, sparsity=SPARSITY, settings=settings, origin=origin)
    size = 96 if wanted.is_paper and task == "brats" else None  # as in the main table
    return wanted.cell(task, OURS, seed, sparsity=SPARSITY, settings=settings, size=size)


def _settings(wanted: Wanted, task: str) -> tuple[Setting, ...]:
    """Both networks must be as wide as each other; at the small scale as wide as that of BraTS in the main table."""
    if wanted.is_paper:
        return (("network", f"unet3d-{task}-23"),)
    return (("options.widths", (16, 32, 64)),) if task == "shapenet" and not wanted.quick else ()


def _lines(wanted: Wanted) -> Iterator[Line]:
    for task, other in _TASKS.items():
        network = f"unet3d-{task}-23"
        for (row, name), printed in zip(_ROWS.items(), transfer()[network], strict=True):
            yield Line(
                wanted.runs(partial(cell_of, wanted, task, row)),
                name,
                network,
                texts.NETWORKS[network if wanted.is_paper else f"unet3d-{task}"],
                printed,
                key={"task": task, "row": row, "pruned_on": {FULL: "", OURS: task, "transferred": other}[row]},
            )


TRANSFER = Experiment(
    **texts.words(
        "transfer",
        cuts=texts.cuts(
            lambda wanted: ("unet3d-shapenet", "unet3d-brats"),
            lambda wanted, network: _settings(wanted, network.removeprefix("unet3d-")),
        ),
    ),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.METHOD,
        Column("pruned on", left=True, text=lambda line: line.key["pruned_on"]),
        texts.SPARSITY,
        texts.REMOVED,
        *texts.costs(wanted, beside=False),
        *texts.merit(wanted),
    ),
    record=lambda line: {**line.key, **texts.numbers(line)},
)
