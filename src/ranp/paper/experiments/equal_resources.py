"""Random and layer-wise pruning at the FLOPs, or the memory, that RANP-f leaves (paper, ``tb:similar_resource``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
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
from ranp.paper.published import Matched, equal_resources
from ranp.paper.published import main as main_table

__all__ = ["EQUAL_RESOURCES", "cell_of"]

Resource = Literal["flops", "memory"]

_NETWORKS = ("unet3d-shapenet", "unet3d-brats")
_ROWS: tuple[tuple[str, Resource | None], ...] = (
    (FULL, None),
    ("random", "flops"),
    ("layerwise", "flops"),
    ("random", "memory"),
    ("layerwise", "memory"),
    (OURS, None),
)
_WORDS = {"flops": "FLOPs", "memory": "memory"}


def cell_of(wanted: Wanted, network: str, method: str, equal: Resource | None, seed: int) -> Cell:
    """A cell of the table; the full network and RANP-f are those of the main one."""
    if equal is None:
        return main.cell_of(wanted, network, method, seed)
    ours = main.cell_of(wanted, network, OURS, seed)
    return main.cell_of(wanted, network, method, seed, equal=equal, sparsity=ours.sparsity)


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for seed in seeds_of(wanted):
        for network in _NETWORKS:
            for method, equal in _ROWS:
                yield cell_of(wanted, network, method, equal, seed)


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records, came = [], [], []
    for network in _NETWORKS:
        full = main_table(network)[0]
        by_row = {row: [results[cell_of(wanted, network, *row, seed)] for seed in seeds_of(wanted)] for row in _ROWS}
        rows = []
        for (method, equal), found in by_row.items():
            printed = full if method == FULL else _printed(network, method, equal)
            shares = [] if equal is None else _shares(found, by_row[OURS, None], equal)
            came += shares
            rows.append(
                (
                    METHODS[method] + ("†" if any(one.kept_one for one in found) else ""),
                    _WORDS.get(equal or "", ""),
                    percent(shares) if shares else "",
                    "" if method == FULL else percent([one.sparsity for one in found]),
                    "" if method == FULL else f"{printed.sparsity:.2f}",
                    *cost_cells(found, wanted, (printed, full)),
                    *figure_cells(found, network, wanted, printed),
                )
            )
            records.append(
                {
                    "network": network,
                    "method": method,
                    "equal": equal or "",
                    "share_of_ours": sum(shares) / len(shares) if shares else "",
                    "paper_sparsity": printed.sparsity,
                    "paper_params_mb": printed.params_mb,
                    "paper_gflops": printed.gflops,
                    "paper_memory_mb": printed.memory_mb,
                    **numbers(found, network),
                }
            )
        groups.append(Group(NETWORKS[network], tuple(rows)))
    table = Table(
        "equal-resources",
        "Pruning at equal resources",
        (
            Column("method", left=True),
            Column("equal", left=True),
            Column("of RANP-f's %"),
            Column("sparsity %"),
            Column("paper's"),
            *cost_columns(wanted),
            *figure_columns(wanted),
        ),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted, came),
        records=tuple(records),
    )
    return Presentation((table,))


def _printed(network: str, method: str, equal: Resource | None) -> Matched:
    matched = {"flops": "gflops", "memory": "memory_mb", None: None}[equal]
    return next(row for row in equal_resources(network) if (row.method, row.matched) == (method, matched))


def _shares(found: Sequence[Result], ours: Sequence[Result], equal: Resource) -> list[float]:
    """Of each seed: what the network takes of what RANP-f takes."""
    pairs = zip(found, ours, strict=True)
    return [getattr(one.slim, equal) / getattr(our.slim, equal) for one, our in pairs]


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's networks at its sizes, scored on a few procedural samples instead of its data sets."
        if wanted.scale == "paper"
        else f"Small networks on procedural data, {len(seeds_of(wanted))} seed(s); the paper's columns are those of "
        "its own networks and data, to compare the order of the methods, not the figures."
    )
    return (
        "Random and layer-wise pruning remove as many channels as it takes until their network costs no more FLOPs, or "
        f"memory, than that of RANP-f at the paper's sparsity. {how} In brackets: what is removed of the full network, "
        "in percent. Costs in the paper's convention, for one call."
    )


def _notes(wanted: Wanted, came: Sequence[float]) -> tuple[str, ...]:
    notes: list[Any] = [
        f'How close they came, under "of RANP-f\'s": from {100 * min(came):.2f} to {100 * max(came):.2f} % of what '
        "RANP-f takes, never more. Channels are whole, so it is not met exactly.",
        "† The method has no feasible sparsity that costs so little: every coupled set of channels kept its best one, "
        "and as much as possible was removed elsewhere.",
    ]
    if wanted.scale == "cpu":
        notes += [f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}." for name in _NETWORKS]
    return (*notes, *spreads(wanted))


EQUAL_RESOURCES = Experiment(
    "equal-resources",
    "Random and layer-wise pruning at the resources of RANP-f",
    "tb:similar_resource",
    lambda wanted: tuple(_cells(wanted)),
    _present,
)
