"""What trained networks say of some samples of each task (paper, ``fig:shapenet_viz`` and its like)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.studying import last_epoch, titled
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import KEPT_ONE, METHODS, NETWORKS, cost, paper_figures
from ranp.paper.published import FIGURES
from ranp.paper.published import main as printed
from ranp.paper.training import evaluation
from ranp.reporting.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXAMPLES", "trained"]

_METHODS = ("full", "random", "ranp-f")
_COUNT = 2


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for network in main.networks(wanted):
        for method in _METHODS:
            yield main.cell_of(wanted, network, method, 0)


def trained(folder: Path) -> nn.Module:
    """The trained network of a run folder, in eval mode.

    Raises:
        StorageError: It is no folder of a finished training run.
        PlanMismatchError: The network does not fit.
    """
    return evaluation.trained(RunFolder(folder))[0].eval()


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records, figures = [], [], {}
    shown = not wanted.resources_only
    for network in main.networks(wanted):
        rows = []
        for method in _METHODS:
            result = results[main.cell_of(wanted, network, method, 0)]
            paper = next(row for row in printed(network) if row.method == method)
            scale = 1.0 if wanted.scale == "paper" else 1000.0
            row = [
                METHODS[method] + ("†" if result.kept_one else ""),
                cost(result.slim.gflops * scale, result.full.gflops * scale),
                cost(result.slim.memory_mb, result.full.memory_mb),
            ]
            rows.append((*row, *((last_epoch([result], network), paper_figures(paper)) if shown else ())))
            records.append(
                {
                    "network": network,
                    "method": method,
                    "kept_one": result.kept_one,
                    "gflops": result.slim.gflops,
                    "memory_mb": result.slim.memory_mb,
                    **{name: result.figures[name] for name in FIGURES[network] if shown},
                }
            )
        groups.append(Group(NETWORKS[network], tuple(rows)))
        if shown:
            figures[f"examples-{network}"] = _drawn(results, wanted, network)
    flops = "GFLOPs" if wanted.scale == "paper" else "MFLOPs"
    words = ("last epoch", "paper's") if shown else ()
    table = Table(
        "examples",
        "Example predictions",
        (Column("method", left=True), Column(flops), Column("Memory MB"), *(Column(name, left=True) for name in words)),
        tuple(groups),
        caption=_caption(wanted),
        notes=(KEPT_ONE,),
        records=tuple(records),
    )
    return Presentation((table,), figures)


def _drawn(results: Results, wanted: Wanted, network: str) -> Figure:
    from ranp.paper.tasks.pictures import pictures
    from ranp.reporting.drawing import examples

    cells = {METHODS[method]: main.cell_of(wanted, network, method, 0) for method in _METHODS}
    networks = {name: trained(results.folder(cell)) for name, cell in cells.items()}
    some = cells[METHODS["full"]]
    return titled(
        examples(pictures(some.open(), networks, size=some.recipe().size, count=_COUNT)),
        f"{NETWORKS[network]}: truth and predictions",
    )


def _caption(wanted: Wanted) -> str:
    if wanted.resources_only:
        return "Nothing is trained, so nothing is predicted: what the networks cost that examples would be of."
    data = "The paper's networks and recipes" if wanted.scale == "paper" else "Small networks on procedural data"
    return (
        f"{data}: the first {_COUNT} validation samples of each task, the truth beside what the full network, one "
        "pruned blindly and one pruned by RANP-f say, at the paper's sparsity, seed 0, after the last epoch. The table "
        "tells how good the shown networks are over all validation samples."
    )


EXAMPLES = Experiment(
    "examples",
    "Example predictions",
    "fig:shapenet_viz, fig:brats_viz, fig:ucf101_viz, fig:sceneflow_viz",
    lambda w: tuple(_cells(w)),
    _present,
)
