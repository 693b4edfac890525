"""FLOPs against memory for every method and network, ours beside the paper's (paper, ``fig:fig_all``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.studying import titled
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import KEPT_ONE, METHODS, NETWORKS, mean_costs
from ranp.paper.published import Row
from ranp.paper.published import main as printed

__all__ = ["SCATTER"]


def _of_main(wanted: Wanted, network: str, method: str) -> list[Cell]:
    seeds = range(1) if wanted.resources_only else wanted.range
    return [main.cell_of(wanted, network, method, seed) for seed in seeds]


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for network in main.networks(wanted):
        for method in METHODS:
            yield from _of_main(wanted, network, method)


def _present(results: Results, wanted: Wanted) -> Presentation:
    from ranp.reporting.drawing import ScatterPoint, scatter

    ours, theirs, groups, records = [], [], [], []
    for network in main.networks(wanted):
        title, rows = NETWORKS[network], []
        full = next(row for row in printed(network) if row.method == FULL)
        for method in METHODS:
            found = [results[cell] for cell in _of_main(wanted, network, method)]
            paper = next(row for row in printed(network) if row.method == method)
            record = _record(network, found, paper, full)
            records.append(record)
            rows.append(_row(record, wanted))
            ours.append(ScatterPoint(title, method, record["gflops"], record["memory_mb"]))
            theirs.append(ScatterPoint(title, method, record["paper_gflops"], record["paper_memory_mb"]))
        groups.append(Group(title, tuple(rows)))
    flops = "GFLOPs" if wanted.scale == "paper" else "MFLOPs"
    columns = (flops, "of full %", "paper's", "Memory MB", "of full %", "paper's")
    table = Table(
        "scatter",
        "FLOPs against memory of all methods",
        (Column("method", left=True), *map(Column, columns)),
        tuple(groups),
        caption=_caption(wanted),
        notes=(KEPT_ONE, "SNIP's sparsity is a share of single weights, at most the largest feasible one."),
        records=tuple(records),
    )
    figures = {
        "scatter": titled(scatter(ours), "What each method leaves of FLOPs and memory: ours"),
        "scatter-paper": titled(scatter(theirs), "What each method leaves of FLOPs and memory: the paper's table"),
    }
    return Presentation((table,), figures)


def _record(network: str, found: Sequence[Result], paper: Row, paper_full: Row) -> dict[str, Any]:
    slim, full = mean_costs(found, "slim"), mean_costs(found, "full")
    record: dict[str, Any] = {
        "network": network,
        "method": found[0].cell.method,
        "seeds": len(found),
        "kept_one": any(one.kept_one for one in found),
        "gflops": slim.gflops,
        "memory_mb": slim.memory_mb,
        "flops_share": slim.flops / full.flops,
        "memory_share": slim.memory / full.memory,
    }
    for name, share in (("gflops", "flops_share"), ("memory_mb", "memory_share")):
        value, whole = getattr(paper, name), getattr(paper_full, name)
        record |= {f"paper_{name}": value, f"paper_{share}": value / whole}
    return record


def _row(record: dict[str, Any], wanted: Wanted) -> tuple[str, ...]:
    scale = 1.0 if wanted.scale == "paper" else 1000.0
    return (
        METHODS[record["method"]] + ("†" if record["kept_one"] else ""),
        f"{record['gflops'] * scale:.2f}",
        f"{100 * record['flops_share']:.1f}",
        f"{100 * record['paper_flops_share']:.1f}",
        f"{record['memory_mb']:.2f}",
        f"{100 * record['memory_share']:.1f}",
        f"{100 * record['paper_memory_share']:.1f}",
    )


def _caption(wanted: Wanted) -> str:
    networks = (
        "The paper's networks at its sizes, scored on procedural samples instead of its data sets"
        if wanted.scale == "paper"
        else "Small networks on procedural data at the paper's sparsities, mean over the main table's seeds"
    )
    return (
        f"{networks}: what each method leaves, beside the same of the paper's table. Costs in the paper's convention, "
        "of one sample; in the drawings as shares of the full network's, on logarithmic axes, bottom-left is best."
    )


SCATTER = Experiment(
    "scatter", "FLOPs against memory of all methods", "fig:fig_all", lambda w: tuple(_cells(w)), _present
)
