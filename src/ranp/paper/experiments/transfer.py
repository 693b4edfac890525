"""Widths found on one task, trained on another: ShapeNet and BraTS (paper, ``tb:transfer``)."""

from __future__ import annotations

from collections.abc import Iterator

from ranp.paper.experiments import texts
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Line, Wanted
from ranp.paper.experiments.scales import changes, told
from ranp.paper.experiments.table import Column
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
                tuple(cell_of(wanted, task, row, seed) for seed in wanted.range),
                name,
                network,
                texts.NETWORKS[network if wanted.is_paper else f"unet3d-{task}"],
                printed,
                key={"task": task, "row": row, "pruned_on": {FULL: "", OURS: task, "transferred": other}[row]},
            )


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's 23-layer networks at its sizes, scored on a few procedural samples instead of its data sets."
        if wanted.is_paper
        else f"Small networks on procedural data, {len(wanted.range)} seed(s), both as wide as each other; the paper's "
        "figures are those of its own networks and data."
    )
    return (
        f"RANP-f at {100 * SPARSITY:.0f} % of the channels: with channels chosen on the task that is trained, and "
        f"(T-RANP-f) on the other one. {how} In brackets: what is removed, in percent. Costs in the paper's "
        "convention, for one call; the paper prints none."
    )


def _notes(wanted: Wanted, lines: object) -> Iterator[str]:
    yield (
        "A plan is made with the strength of reweighting, the samples and the costs of the task it is made on; what "
        'differs between the two networks, inputs and classes, it leaves alone. Under "removed" stands the share of '
        "the channels of the network that it was made on."
    )
    yield texts.KEPT_ONE
    for task in () if wanted.is_paper else _TASKS:
        own = changes(_settings(wanted, task))
        yield f"Cut: {told(wanted.scale, task, quick=wanted.quick)}{own and f', but {own}'}."
    yield from texts.spreads(wanted)


TRANSFER = Experiment(
    name="transfer",
    title="Transfer of widths between ShapeNet and BraTS",
    heading="Widths of one task, trained on another",
    label="tb:transfer",
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
    caption=_caption,
    notes=_notes,
)
