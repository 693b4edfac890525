"""The main table: what each method removes, and what the slim networks learn (paper, ``tb:full_table``).

All methods remove the same share of channels, the paper's; SNIP, which removes single weights, the paper's share of
those, or the largest feasible one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import (
    METHODS,
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
from ranp.paper.published import Row, largest_sparsity, main

__all__ = ["MAIN", "cell_of", "networks"]

_CRITERIA = ("mnmg-sum", "neuron-mask")
"""Beside MPMG-sum, for PSM: the paper's rows rest on MNMG-sum there, which behind batch norm is mostly rounding."""
_PSM, _WEIGHED = "psm-sceneflow", ("vanilla", "weighted", "ranp-m", "ranp-f")
_RAN_AT = {("unet3d-shapenet", "random"): 0.782, ("unet3d-shapenet", "layerwise"): 0.782}
"""What the paper prints as 78.24 % was made at this sparsity where no score decides, so that every digit can agree."""


def networks(wanted: Wanted) -> tuple[str, ...]:
    """The networks of the table; I3D needs 224 pixels, which two cores cannot train on."""
    return tuple(name for name in NP if wanted.scale == "paper" or name != "i3d-ucf101")


def cell_of(wanted: Wanted, network: str, method: str, seed: int, **changes: Any) -> Cell:
    """A cell of a network of the table at the paper's sparsity for that method."""
    task, settings = NP[network]
    printed = _printed(network, method)
    sparsity = 0.0 if printed.sparsity is None or method == FULL else round(printed.sparsity / 100, 6)
    if wanted.scale == "paper":
        sparsity = _RAN_AT.get((network, method), sparsity)
    size = {"size": 96} if wanted.scale == "paper" and network == "unet3d-brats" and method != FULL else {}
    return wanted.cell(task, method, seed, **{"sparsity": sparsity, "settings": settings, **size, **changes})


def _printed(network: str, method: str) -> Row:
    return next(row for row in main(network) if row.method == method)


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for seed in seeds_of(wanted):
        for network in networks(wanted):
            for method in METHODS:
                yield cell_of(wanted, network, method, seed)
    if wanted.resources_only and wanted.scale == "paper":
        for criterion in _CRITERIA:
            for method in _WEIGHED:
                yield cell_of(wanted, _PSM, method, 0, criterion=criterion)


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records = [], []
    for network in networks(wanted):
        rows = []
        for method in METHODS:
            found = [results[cell_of(wanted, network, method, seed)] for seed in seeds_of(wanted)]
            rows.append(_row(network, method, found, wanted))
            records.append(_record(network, method, found))
        groups.append(Group(NETWORKS[network], tuple(rows)))
    for criterion in _CRITERIA if wanted.resources_only and wanted.scale == "paper" else ():
        rows = []
        for method in _WEIGHED:
            found = [results[cell_of(wanted, _PSM, method, 0, criterion=criterion)]]
            rows.append(_row(_PSM, method, found, wanted))
            records.append(_record(_PSM, method, found, criterion))
        groups.append(Group(f"{NETWORKS[_PSM]}, scored by {criterion}", tuple(rows)))
    table = Table(
        "main",
        "Pruning capability of all methods",
        (
            Column("method", left=True),
            *map(Column, ("sparsity %", "removed %", "largest %", "paper's")),
            *cost_columns(wanted),
            *figure_columns(wanted),
        ),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,))


def _row(network: str, method: str, found: Sequence[Result], wanted: Wanted) -> tuple[str, ...]:
    printed = _printed(network, method)
    mark = "†" if any(one.kept_one for one in found) else ""
    largest = [one.largest for one in found if one.largest is not None]
    feasible = largest_sparsity(network, method) if method in ("vanilla", "ranp-f") else None
    return (
        METHODS[method] + mark,
        "" if method == FULL else percent([one.sparsity for one in found]),
        "" if method == FULL else percent([one.removed for one in found]),
        percent(largest) if largest else "",
        "" if feasible is None else f"{feasible:.2f}",
        *cost_cells(found, wanted, (printed, _printed(network, FULL))),
        *figure_cells(found, network, wanted, printed),
    )


def _record(network: str, method: str, found: Sequence[Result], criterion: str = "") -> dict[str, Any]:
    printed = _printed(network, method)
    return {
        "network": network,
        "method": method,
        "criterion": criterion,
        **numbers(found, network),
        "paper_params_mb": printed.params_mb,
        "paper_gflops": printed.gflops,
        "paper_memory_mb": printed.memory_mb,
    }


def _caption(wanted: Wanted) -> str:
    if wanted.scale == "paper":
        return (
            "The paper's networks at its sizes and sparsities, scored on a few procedural samples instead of its data "
            "sets. In brackets: what is removed, in percent. Costs in the paper's convention."
        )
    return (
        f"Small networks on procedural data, {len(wanted.range)} seed(s), at the paper's sparsities. In brackets: what "
        "is removed of the full network, in percent; the paper's reductions and accuracies are those of its own "
        "networks and data, to compare the order of the methods, not the figures. Costs in the paper's convention, "
        "for one sample."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = [
        "† At this sparsity the method would leave a layer without channels (the largest feasible one stands under "
        '"largest"): every coupled set of channels kept its best one instead, and as much as possible was removed '
        "elsewhere.",
        "SNIP's sparsity is a share of single weights, at most the largest feasible one.",
    ]
    if wanted.scale == "cpu":
        notes += [f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}." for name in networks(wanted)]
        notes.append("I3D is left out: its last pooling needs 224 pixels.")
    else:
        notes.append(
            "Without the data sets, rows that need scores (SNIP, vanilla, weighted, RANP) differ from the paper's; "
            "random and layer-wise rows do not need them."
        )
    return (*notes, *spreads(wanted))


MAIN = Experiment("main", "Pruning capability of all methods", "tb:full_table", lambda w: tuple(_cells(w)), _present)
