"""Widths found on one task, trained on another: ShapeNet and BraTS (paper, ``tb:transfer``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import (
    KEPT_ONE,
    NETWORKS,
    cost_cells,
    cost_columns,
    figure_cells,
    figure_columns,
    numbers,
    percent,
    seeds_of,
    spreads,
)
from ranp.paper.published import Transferred, transfer

__all__ = ["SPARSITY", "TRANSFER", "cell_of"]

SPARSITY = 0.8
_TASKS = {"shapenet": "brats", "brats": "shapenet"}
"""Each with the one that widths come from."""
_DEEP: Mapping[str, tuple[str, ...]] = {
    "shapenet": ("network=unet3d-shapenet-23",),
    "brats": ("network=unet3d-brats-23",),
}
_NAMES = {"shapenet": "ShapeNet, 3D-UNet", "brats": "BraTS, 3D-UNet"}
_ROWS = {FULL: "Full", OURS: "RANP-f", "transferred": "T-RANP-f"}


def cell_of(wanted: Wanted, task: str, row: str, seed: int) -> Cell:
    """A cell of the table: ``"full"``, ``"ranp-f"``, or ``"transferred"``: by the plan of the other task's RANP-f."""
    settings = _settings(wanted, task)
    if row == FULL:
        return wanted.cell(task, FULL, seed, settings=settings)
    scored = {"size": 96} if wanted.scale == "paper" and task == "brats" else {}  # as in the main table
    origin = cell_of(wanted, _TASKS[task], OURS, seed) if row == "transferred" else None
    return wanted.cell(
        task, OURS, seed, sparsity=SPARSITY, settings=settings, origin=origin, **({} if origin else scored)
    )


def _settings(wanted: Wanted, task: str) -> tuple[str, ...]:
    """Both networks must be as wide as each other; at the small scale as wide as that of BraTS in the main table."""
    if wanted.scale == "paper":
        return _DEEP[task]
    return ("options.widths=16,32,64",) if task == "shapenet" and not wanted.quick else ()


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for seed in seeds_of(wanted):
        for task in _TASKS:
            for row in _ROWS:
                yield cell_of(wanted, task, row, seed)


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records = [], []
    for task, other in _TASKS.items():
        deep = f"unet3d-{task}-23"
        rows = []
        for row, name in _ROWS.items():
            found = [results[cell_of(wanted, task, row, seed)] for seed in seeds_of(wanted)]
            scored_on = {FULL: "", OURS: task, "transferred": other}[row]
            rows.append(
                (
                    name + ("†" if any(one.kept_one for one in found) else ""),
                    scored_on,
                    "" if row == FULL else percent([one.sparsity for one in found]),
                    "" if row == FULL else percent([one.removed for one in found]),
                    *cost_cells(found, wanted),
                    *figure_cells(found, deep, wanted, _printed(deep, row)),
                )
            )
            records.append({"task": task, "row": row, "pruned_on": scored_on, **numbers(found, deep)})
        groups.append(Group(NETWORKS[deep] if wanted.scale == "paper" else _NAMES[task], tuple(rows)))
    table = Table(
        "transfer",
        "Widths of one task, trained on another",
        (
            Column("method", left=True),
            Column("pruned on", left=True),
            Column("sparsity %"),
            Column("removed %"),
            *cost_columns(wanted, beside=False),
            *figure_columns(wanted),
        ),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,))


def _printed(network: str, row: str) -> Transferred:
    by_row: dict[Any, Transferred] = dict(zip(_ROWS, transfer()[network], strict=True))
    return by_row[row]


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's 23-layer networks at its sizes, scored on a few procedural samples instead of its data sets."
        if wanted.scale == "paper"
        else f"Small networks on procedural data, {len(seeds_of(wanted))} seed(s), both as wide as each other; the "
        "paper's figures are those of its own networks and data."
    )
    return (
        f"RANP-f at {100 * SPARSITY:.0f} % of the channels: with channels chosen on the task that is trained, and "
        f"(T-RANP-f) on the other one. {how} In brackets: what is removed, in percent. Costs in the paper's "
        "convention, for one call; the paper prints none."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = [
        "A plan is made with the strength of reweighting, the samples and the costs of the task it is made on; what "
        'differs between the two networks, inputs and classes, it leaves alone. Under "removed" stands the share of '
        "the channels of the network that it was made on.",
        KEPT_ONE,
    ]
    if wanted.scale == "cpu":
        for task in _TASKS:
            own = "".join(f", but {setting}" for setting in _settings(wanted, task))
            notes.append(f"Cut: {told(wanted.scale, task, quick=wanted.quick)}{own}.")
    return (*notes, *spreads(wanted))


TRANSFER = Experiment(
    "transfer",
    "Transfer of widths between ShapeNet and BraTS",
    "tb:transfer",
    lambda wanted: tuple(_cells(wanted)),
    _present,
)
