"""Vanilla pruning by each criterion at its own largest feasible sparsity (paper, ``tb:neuron_importance_full``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import (
    NETWORKS,
    NP,
    cost_cells,
    cost_columns,
    figure_cells,
    figure_columns,
    numbers,
    percent,
    seeds_of,
    spreads,
)
from ranp.paper.published import Row, criteria

__all__ = ["CRITERIA", "cell_of"]

_NAMES = {
    FULL: "Full",
    "mpmg-mean": "MPMG-mean",
    "mpmg-max": "MPMG-max",
    "mpmg-sum": "MPMG-sum",
    "mnmg-mean": "MNMG-mean",
    "mnmg-max": "MNMG-max",
    "mnmg-sum": "MNMG-sum",
}
"""The rows of the paper, in its order."""
_MASK = "neuron-mask"


def cell_of(wanted: Wanted, network: str, criterion: str, seed: int) -> Cell:
    """A cell of the table; the full network is that of the main one."""
    if criterion == FULL:
        return main.cell_of(wanted, network, FULL, seed)
    return main.cell_of(wanted, network, "vanilla", seed, criterion=criterion, sparsity=None)


def _rows(wanted: Wanted, network: str) -> dict[str, str]:
    """Criteria by name; at the paper's scale PSM is also scored by a mask, which batch norm does not cancel."""
    masked = wanted.scale == "paper" and network == "psm-sceneflow"
    return {**_NAMES, _MASK: "Neuron mask"} if masked else _NAMES


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for seed in seeds_of(wanted):
        for network in main.networks(wanted):
            for criterion in _rows(wanted, network):
                yield cell_of(wanted, network, criterion, seed)


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records = [], []
    for network in main.networks(wanted):
        rows = []
        for criterion, name in _rows(wanted, network).items():
            found = [results[cell_of(wanted, network, criterion, seed)] for seed in seeds_of(wanted)]
            printed = _printed(network)
            row = printed.get(criterion)
            sparsity = "" if criterion == FULL else percent([one.sparsity for one in found])
            removed = "" if criterion == FULL else percent([one.removed for one in found])
            theirs = "" if criterion == FULL or row is None or row.sparsity is None else f"{row.sparsity:.2f}"
            rows.append(
                (
                    name,
                    sparsity,
                    theirs,
                    removed,
                    *cost_cells(found, wanted, (row, printed[FULL])),
                    *figure_cells(found, network, wanted, row),
                )
            )
            records.append(_record(network, criterion, row) | numbers(found, network))
        groups.append(Group(NETWORKS[network], tuple(rows)))
    table = Table(
        "criteria",
        "Vanilla pruning by each criterion",
        (
            Column("criterion", left=True),
            Column("largest sparsity %"),
            Column("paper's"),
            Column("removed %"),
            *cost_columns(wanted),
            *figure_columns(wanted),
        ),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,))


def _printed(network: str) -> dict[str, Row]:
    return {row.method: row for row in criteria(network)}


def _record(network: str, criterion: str, row: Row | None) -> dict[str, Any]:
    return {
        "network": network,
        "criterion": criterion,
        "paper_sparsity": row.sparsity if row is not None else "",
        "paper_params_mb": row.params_mb if row is not None else "",
        "paper_gflops": row.gflops if row is not None else "",
        "paper_memory_mb": row.memory_mb if row is not None else "",
    }


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's networks at its sizes, scored on a few procedural samples instead of its data sets."
        if wanted.scale == "paper"
        else f"Small networks on procedural data, {len(seeds_of(wanted))} seed(s); the paper's columns are those of "
        "its own networks and data, to compare the order of the criteria, not the figures."
    )
    return (
        f"Each criterion at the largest sparsity at which every layer keeps a channel; rows do not remove the same "
        f"share. {how} In brackets: what is removed, in percent. Costs in the paper's convention, for one call."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = [
        "MNMG from the gradients of weights collapses behind batch norm: where the norm uses the statistics of the "
        "batch, a channel before it may be scaled without changing the loss, so the signed products of its weights "
        "and their gradients sum to zero, in every batch. MNMG-sum and MNMG-mean rank such channels by what is left "
        "of that: rounding, and the norm's epsilon.",
        "Sum, mean and max are taken over the weights of a channel.",
    ]
    if wanted.scale == "paper":
        notes.append(
            "Neuron mask: the gradient of a mask behind the norm, which no scaling cancels. The paper has no such row; "
            "its SceneFlow rows of the main table rest on MNMG-sum."
        )
    else:
        notes += [f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}." for name in main.networks(wanted)]
        notes.append("I3D is left out: its last pooling needs 224 pixels.")
    return (*notes, *spreads(wanted))


CRITERIA = Experiment(
    "criteria",
    "Vanilla pruning by each criterion at its largest sparsity",
    "tb:neuron_importance_full",
    lambda wanted: tuple(_cells(wanted)),
    _present,
)
