"""Vanilla pruning by each criterion at its own largest feasible sparsity (paper, ``tb:neuron_importance_full``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import FULL, Cell, Experiment, Line, Wanted
from ranp.paper.published import criteria

__all__ = ["CRITERIA", "cell_of"]

_NAMES = {
    FULL: "Full",
    "mpmg-mean": "MPMG-mean",
    "mpmg-max": "MPMG-max",
    "mpmg-sum": "MPMG-sum",
    "mnmg-mean": "MNMG-mean",
    "mnmg-max": "MNMG-max",
    "mnmg-sum": "MNMG-sum",
    "neuron-mask": "Neuron mask",
}
"""The rows of the paper, in its order, and a mask, which batch norm does not cancel: of PSM at the paper's scale."""


def cell_of(wanted: Wanted, network: str, criterion: str, seed: int) -> Cell:
    """A cell of the table; the full network is that of the main one."""
    if criterion == FULL:
        return main.cell_of(wanted, network, FULL, seed)
    return main.cell_of(wanted, network, "vanilla", seed, criterion=criterion, sparsity=None)


def _lines(wanted: Wanted) -> Iterator[Line]:
    for network in main.networks(wanted):
        printed = {row.method: row for row in criteria(network)}
        for criterion, name in _NAMES.items():
            if criterion in printed or (wanted.is_paper and network == "psm-sceneflow"):
                cells = wanted.runs(partial(cell_of, wanted, network, criterion))
                key = {"network": network, "criterion": criterion}
                yield Line(cells, name, network, printed=printed.get(criterion), whole=printed[FULL], key=key)


CRITERIA = Experiment(
    **texts.words("criteria", cuts=texts.cuts(main.networks)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.name("criterion"),
        texts.share("largest sparsity %", "sparsity"),
        texts.PAPERS_SPARSITY,
        texts.REMOVED,
        *texts.costs(wanted),
        *texts.merit(wanted),
    ),
    record=lambda line: {**line.key, **texts.papers_numbers(line, "sparsity"), **texts.numbers(line)},
)
