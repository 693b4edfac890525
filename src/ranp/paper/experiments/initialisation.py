"""What weights are drawn from decides what is pruned: Glorot and orthogonal (paper, ``tb:orthogonal``).

Nothing is trained. All four of a network remove the same share of channels: the least of their largest ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import FULL, OURS, Cell, Column, Experiment, Line, Wanted
from ranp.paper.published import initialisation

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
    among = tuple(_alone(wanted, network, *row) for row in ROWS if row[1] is not None)
    return _alone(wanted, network, method, init, among)


def _alone(wanted: Wanted, network: str, method: str, init: str | None, among: tuple[Cell, ...] = ()) -> Cell:
    settings = (*texts.NP[network][1], *((("init", "orthogonal"),) if init == "orthogonal" else ()))
    return main.cell_of(wanted.costs_only(), network, method, 0, settings=settings, sparsity=None, among=among)


def _lines(wanted: Wanted) -> Iterator[Line]:
    for network in main.networks(wanted):
        printed = {(row.method, row.init): row for row in initialisation(network)}
        for method, init in ROWS:
            yield Line(
                (cell_of(wanted, network, method, init),),
                network=network,
                printed=printed[method, init],
                whole=printed[FULL, None],
                key={"network": network, "method": method, "init": init or ""},
            )


INITIALISATION = Experiment(
    **texts.words("initialisation", cuts=texts.cuts(main.networks)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.name("method"),
        Column("initialisation", left=True, text=lambda line: line.key["init"].capitalize()),
        texts.SPARSITY,
        texts.PAPERS_SPARSITY,
        texts.share("own largest %", "largest"),
        *texts.costs(wanted),
    ),
    record=lambda line: {**line.key, **texts.papers_numbers(line, "sparsity"), **texts.numbers(line)},
)
