"""The main table: what each method removes, and what the slim networks learn (paper, ``tb:full_table``).

All methods remove the same share of channels, the paper's; SNIP, which removes single weights, the paper's share of
those, or the largest feasible one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ranp.paper.experiments import texts
from ranp.paper.experiments.experiment import FULL, Cell, Column, Experiment, Line, Wanted
from ranp.paper.experiments.texts import METHODS, NP
from ranp.paper.published import Row, largest_sparsity, main

__all__ = ["MAIN", "cell_of", "line_of", "lines_of", "networks"]

_CRITERIA = ("mnmg-sum", "neuron-mask")
"""Beside MPMG-sum, for PSM: the paper's rows rest on MNMG-sum there, which behind batch norm is mostly rounding."""
_PSM, _WEIGHED = "psm-sceneflow", ("vanilla", "weighted", "ranp-m", "ranp-f")
_RAN_AT = {("unet3d-shapenet", "random"): 0.782, ("unet3d-shapenet", "layerwise"): 0.782}
"""What the paper prints as 78.24 % was made at this sparsity where no score decides, so that every digit can agree."""


def networks(wanted: Wanted) -> tuple[str, ...]:
    """The networks of the table; I3D needs 224 pixels, which two cores cannot train on."""
    return tuple(name for name in NP if wanted.is_paper or name != "i3d-ucf101")


def cell_of(wanted: Wanted, network: str, method: str, seed: int, **changes: Any) -> Cell:
    """A cell of a network of the table at the paper's sparsity for that method."""
    task, settings = NP[network]
    printed = _printed(network, method)
    sparsity = 0.0 if printed.sparsity is None or method == FULL else round(printed.sparsity / 100, 6)
    if wanted.is_paper:
        sparsity = _RAN_AT.get((network, method), sparsity)
    size = {"size": 96} if wanted.is_paper and network == "unet3d-brats" and method != FULL else {}
    return wanted.cell(task, method, seed, **{"sparsity": sparsity, "settings": settings, **size, **changes})


def line_of(wanted: Wanted, network: str, method: str, seeds: range | None = None, **changes: Any) -> Line:
    """The line of a method, the paper's row beside it."""
    cells = tuple(cell_of(wanted, network, method, seed, **changes) for seed in seeds or wanted.range)
    return Line(cells, network=network, printed=_printed(network, method), whole=_printed(network, FULL))


def _printed(network: str, method: str) -> Row:
    return next(row for row in main(network) if row.method == method)


def lines_of(wanted: Wanted, methods: Iterable[str], seeds: range | None = None) -> Iterator[Line]:
    """The lines of these methods, network by network."""
    for network in networks(wanted):
        for method in methods:
            yield line_of(wanted, network, method, seeds)


def _lines(wanted: Wanted) -> Iterator[Line]:
    yield from lines_of(wanted, METHODS)
    for criterion in _CRITERIA if wanted.resources_only and wanted.is_paper else ():
        for method in _WEIGHED:
            line = line_of(wanted, _PSM, method, criterion=criterion)
            yield replace(line, group=f"{line.group}, scored by {criterion}")


def _papers_largest(line: Line) -> str:
    return f"{largest_sparsity(line.network, line.method):.2f}" if line.method in ("vanilla", "ranp-f") else ""


MAIN = Experiment(
    **texts.words("main", cuts=texts.cuts(networks)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.METHOD,
        texts.SPARSITY,
        texts.REMOVED,
        texts.share("largest %", "largest"),
        Column("paper's", text=_papers_largest),
        *texts.costs(wanted),
        *texts.merit(wanted),
    ),
    record=lambda line: {
        **line.key,
        "criterion": line.cells[0].criterion or "",
        **texts.numbers(line),
        **texts.papers_numbers(line),
    },
)
