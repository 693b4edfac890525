"""What networks cost at every sparsity that leaves all layers a channel, with and without reweighting.

In the paper ``fig:shapenet_resources`` and its like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ranp.costs.counting import FLOAT32
from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import OURS, Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.results import Costs
from ranp.paper.experiments.studying import Drawing, by_network, studied
from ranp.paper.published import largest_sparsity
from ranp.reporting.study import Step, Sweep

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


def _feasible(line: Line) -> list[Step]:
    """From the full network to the largest feasible sparsity."""
    return [step for step in _sweep(line).steps if step.feasible]


def _costs(step: Step) -> Costs:
    return Costs(step.params, step.flops, step.memory // FLOAT32)


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


def _drawn(wanted: Wanted, lines: Sequence[Line], results: Results) -> Iterator[Drawing]:
    from ranp.reporting.drawing import resources

    yield "", ": what is left by sparsity", resources(tuple(map(_sweep, lines)))


RESOURCES = Experiment(
    **texts.words("resources", cuts=texts.cuts(main.networks)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.name("method"),
        Column("largest %", text=lambda line: f"{100 * _sweep(line).largest:.2f}"),
        Column("paper's", text=lambda line: f"{_papers(line):.2f}"),
        Column("removed %", text=lambda line: f"{100 * _feasible(line)[-1].removed:.2f}"),
        *texts.costs(wanted, beside=False, of=lambda line: (_costs(_feasible(line)[-1]), _costs(_feasible(line)[0]))),
    ),
    record=_record,
    measure=_sweeps,
    figures=by_network("resources", _drawn),
)
