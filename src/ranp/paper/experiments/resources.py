"""What networks cost at every sparsity that leaves all layers a channel, with and without reweighting.

In the paper ``fig:shapenet_resources`` and its like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ranp.costs.counting import FLOAT32
from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import OURS, Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.results import Costs
from ranp.paper.experiments.studying import by_network, studied, titled
from ranp.paper.published import largest_sparsity
from ranp.reporting.study import Step, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["RESOURCES"]

_METHODS = (OURS, "vanilla")


def _lines(wanted: Wanted) -> Iterator[Line]:
    """Of each network one cell that scores it; nothing is trained."""
    for network in main.networks(wanted):
        line = main.line_of(wanted.costs_only(), network, OURS)
        for method in _METHODS:
            yield replace(line, name=texts.METHODS[method], key={"network": network, "method": method})


def _sweeps(wanted: Wanted, line: Line, results: Results) -> dict[str, Sweep]:
    found = studied(line.cells[0], results.place, _METHODS[1:], points=7 if wanted.quick else 25).sweeps
    return {sweep.method: sweep for sweep in found}


def _sweep(line: Line) -> Sweep:
    sweep: Sweep = line.measured[line.key["method"]]
    return sweep


def _ends(line: Line) -> tuple[Costs, Costs]:
    """What the network costs at the largest feasible sparsity, and in full."""
    feasible = [step for step in _sweep(line).steps if step.feasible]
    return _costs(feasible[-1]), _costs(feasible[0])


def _costs(step: Step) -> Costs:
    return Costs(step.params, step.flops, step.memory // FLOAT32)


def _removed(line: Line) -> str:
    return f"{100 * [step for step in _sweep(line).steps if step.feasible][-1].removed:.2f}"


def _papers(line: Line) -> float:
    return largest_sparsity(line.network, line.key["method"])


def _record(line: Line) -> list[dict[str, Any]]:
    sweep = _sweep(line)
    return [
        {
            **line.key,
            "largest": sweep.largest,
            "paper_largest": _papers(line) / 100,
            "sparsity": step.sparsity,
            "feasible": step.feasible,
            **({"removed": step.removed, **texts.cost_numbers(_costs(step))} if step.feasible else {}),
        }
        for step in sweep.steps
    ]


def _figures(wanted: Wanted, lines: Sequence[Line], results: Results) -> dict[str, Figure]:
    from ranp.reporting.drawing import resources

    return {
        f"resources-{network}": titled(
            resources(tuple(map(_sweep, own))), f"{texts.NETWORKS[network]}: what is left by sparsity"
        )
        for network, own in by_network(lines)
    }


RESOURCES = Experiment(
    name="resources",
    title="Resources against sparsity",
    label="fig:shapenet_resources, fig:brats_resources, fig:mobilenetv2_resources, fig:i3d_resources, "
    "fig:sceneflow_resource",
    lines=_lines,
    columns=lambda wanted, lines: (
        Column("method", left=True, text=lambda line: line.name),
        Column("largest %", text=lambda line: f"{100 * _sweep(line).largest:.2f}"),
        Column("paper's", text=lambda line: f"{_papers(line):.2f}"),
        Column("removed %", text=_removed),
        *texts.costs(wanted, beside=False, of=_ends),
    ),
    record=_record,
    measure=_sweeps,
    caption=texts.caption(
        "{networks}: the largest sparsity that leaves every layer a channel, with reweighting (RANP-f) and without "
        "(vanilla), and what the slim network takes there; in brackets what is removed of the full one, in percent. "
        "“removed” is a share of all channels, those that must stay among them. The drawings run from 0 to the "
        "largest; the CSV file has every point, parameters included, and those sparsities that are not feasible.",
        texts.PAPERS,
        texts.SMALL,
    ),
    notes=(
        "Exact costs of slim networks in the paper's convention, for one sample; one seed; nothing is trained.",
        texts.at(
            "paper",
            "Scored on a few procedural samples, not on the paper's data sets; the largest sparsities depend on them.",
        ),
        texts.at("cpu", "The paper's largest sparsities are those of its own, wider networks."),
        texts.cuts(main.networks),
    ),
    figures=_figures,
)
