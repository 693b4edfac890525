"""What networks cost at every sparsity that leaves all layers a channel, with and without reweighting.

In the paper ``fig:shapenet_resources`` and its like.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import Costs
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.studying import studied, titled
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import METHODS, NETWORKS, NP, cost
from ranp.paper.published import largest_sparsity
from ranp.reporting.study import Step, Sweep

__all__ = ["RESOURCES"]

_WITHOUT = "vanilla"
_POINTS = 25


def _cells(wanted: Wanted) -> Iterator[Cell]:
    """Of each network one that scores it; nothing is trained."""
    for network in main.networks(wanted):
        yield main.cell_of(wanted.costs_only(), network, OURS, 0)


def _present(results: Results, wanted: Wanted) -> Presentation:
    from ranp.reporting.drawing import resources

    groups, records, figures = [], [], {}
    for network in main.networks(wanted):
        cell = main.cell_of(wanted.costs_only(), network, OURS, 0)
        sweeps = studied(cell, results.place, (_WITHOUT,), points=7 if wanted.quick else _POINTS).sweeps
        groups.append(Group(NETWORKS[network], tuple(_row(network, sweep, wanted) for sweep in sweeps)))
        records += [_record(network, sweep, step) for sweep in sweeps for step in sweep.steps]
        figures[f"resources-{network}"] = titled(resources(sweeps), f"{NETWORKS[network]}: what is left by sparsity")
    flops = "GFLOPs" if wanted.scale == "paper" else "MFLOPs"
    columns = ("largest %", "paper's", "removed %", "Param MB", flops, "Memory MB")
    table = Table(
        "resources",
        "Resources against sparsity",
        (Column("method", left=True), *map(Column, columns)),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,), figures)


def _row(network: str, sweep: Sweep, wanted: Wanted) -> tuple[str, ...]:
    scale = 1.0 if wanted.scale == "paper" else 1000.0
    feasible = [step for step in sweep.steps if step.feasible]
    full, last = _costs(feasible[0]), _costs(feasible[-1])
    return (
        METHODS[sweep.method],
        f"{100 * sweep.largest:.2f}",
        f"{largest_sparsity(network, sweep.method):.2f}",
        f"{100 * feasible[-1].removed:.2f}",
        cost(last.params_mb, full.params_mb),
        cost(last.gflops * scale, full.gflops * scale),
        cost(last.memory_mb, full.memory_mb),
    )


def _costs(step: Step) -> Costs:
    return Costs(step.params, step.flops, step.memory)


def _record(network: str, sweep: Sweep, step: Step) -> dict[str, Any]:
    costs = _costs(step)
    figures = {name: getattr(costs, name) for name in ("params_mb", "gflops", "memory_mb")}
    return {
        "network": network,
        "method": sweep.method,
        "largest": sweep.largest,
        "paper_largest": largest_sparsity(network, sweep.method) / 100,
        "sparsity": step.sparsity,
        "feasible": step.feasible,
        **({"removed": step.removed, **figures} if step.feasible else {}),
    }


def _caption(wanted: Wanted) -> str:
    networks = "The paper's networks at its sizes" if wanted.scale == "paper" else "Small networks on procedural data"
    return (
        f"{networks}: the largest sparsity that leaves every layer a channel, with reweighting (RANP-f) and without "
        "(vanilla), and what the slim network takes there; in brackets what is removed of the full one, in percent. "
        "“removed” is a share of all channels, those that must stay among them. The drawings run from 0 to the "
        "largest; the CSV file has every point, parameters included, and those sparsities that are not feasible."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = ["Exact costs of slim networks in the paper's convention, for one sample; one seed; nothing is trained."]
    if wanted.scale == "paper":
        notes.append(
            "Scored on a few procedural samples, not on the paper's data sets; the largest sparsities depend on them."
        )
    else:
        notes.append("The paper's largest sparsities are those of its own, wider networks.")
        notes += [f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}." for name in main.networks(wanted)]
    return tuple(notes)


RESOURCES = Experiment(
    "resources",
    "Resources against sparsity",
    "fig:shapenet_resources, fig:brats_resources, fig:mobilenetv2_resources, fig:i3d_resources, fig:sceneflow_resource",
    lambda w: tuple(_cells(w)),
    _present,
)
