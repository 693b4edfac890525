"""What weights are drawn from decides what is pruned: Glorot and orthogonal (paper, ``tb:orthogonal``).

Nothing is trained. All four of a network remove the same share of channels: the least of their largest ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import METHODS, NETWORKS, NP, cost_cells, cost_columns, numbers, percent
from ranp.paper.published import Initialised, initialisation

__all__ = ["INITIALISATION", "ROWS", "cell_of"]

ROWS: tuple[tuple[str, str | None], ...] = (
    (FULL, None),
    ("vanilla", "orthogonal"),
    ("vanilla", "glorot"),
    (OURS, "orthogonal"),
    (OURS, "glorot"),
)
"""Methods and initialisations, in the order of the paper."""


def cell_of(wanted: Wanted, network: str, method: str, init: str | None) -> Cell:
    """A cell of the table; Glorot's is that of the recipe, so its scores are those of the other tables."""
    if init is None:
        return main.cell_of(wanted.costs_only(), network, FULL, 0)
    alone = {row: _alone(wanted, network, *row) for row in ROWS if row[1] is not None}
    return _alone(wanted, network, method, init, tuple(alone.values()))


def _alone(wanted: Wanted, network: str, method: str, init: str | None, among: tuple[Cell, ...] = ()) -> Cell:
    settings = (*NP[network][1], *(("init=orthogonal",) if init == "orthogonal" else ()))
    return main.cell_of(wanted.costs_only(), network, method, 0, settings=settings, sparsity=None, among=among)


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for network in main.networks(wanted):
        for row in ROWS:
            yield cell_of(wanted, network, *row)


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records = [], []
    for network in main.networks(wanted):
        printed = _printed(network)
        rows = []
        for method, init in ROWS:
            result, theirs = results[cell_of(wanted, network, method, init)], printed[method, init]
            pruned = init is not None
            rows.append(
                (
                    METHODS[method],
                    (init or "").capitalize(),
                    percent([result.sparsity]) if pruned else "",
                    f"{theirs.sparsity:.2f}" if pruned else "",
                    percent([result.largest]) if result.largest is not None else "",
                    *cost_cells([result], wanted, (theirs, printed[FULL, None])),
                )
            )
            records.append(
                {
                    "network": network,
                    "method": method,
                    "init": init or "",
                    "paper_sparsity": theirs.sparsity,
                    "paper_params_mb": theirs.params_mb,
                    "paper_gflops": theirs.gflops,
                    "paper_memory_mb": theirs.memory_mb,
                    **numbers([result], network),
                }
            )
        groups.append(Group(NETWORKS[network], tuple(rows)))
    names = ("sparsity %", "paper's", "own largest %")
    table = Table(
        "initialisation",
        "Resources by initialisation",
        (Column("method", left=True), Column("initialisation", left=True), *map(Column, names), *cost_columns(wanted)),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,))


def _printed(network: str) -> dict[tuple[str, str | None], Initialised]:
    return {(row.method, row.init): row for row in initialisation(network)}


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's networks at its sizes, scored on a few procedural samples instead of its data sets."
        if wanted.scale == "paper"
        else "Small networks on procedural data; the paper's columns are those of its own networks and data."
    )
    return (
        "Vanilla pruning and RANP-f of networks whose weights were drawn by Glorot's rule and orthogonally, all four "
        f"at the least of their largest feasible sparsities. Nothing is trained. {how} In brackets: what is removed, "
        "in percent. Costs in the paper's convention, for one call."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = ["Own largest: the largest feasible sparsity of that method and initialisation alone."]
    if wanted.scale == "paper":
        notes.append("The paper's SceneFlow rows rest on MNMG-sum, ours on MPMG-sum.")
    else:
        notes += [f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}." for name in main.networks(wanted)]
        notes.append("I3D is left out, as in the main table.")
    return tuple(notes)


INITIALISATION = Experiment(
    "initialisation",
    "Glorot and orthogonal initialisation",
    "tb:orthogonal",
    lambda wanted: tuple(_cells(wanted)),
    _present,
)
