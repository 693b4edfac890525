"""Random and layer-wise pruning at the FLOPs, or the memory, that RANP-f leaves (paper, ``tb:similar_resource``)."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import FULL, OURS, Cell, Column, Experiment, Line, Results, Wanted
from ranp.paper.published import equal_resources
from ranp.paper.published import main as main_table

__all__ = ["EQUAL_RESOURCES", "Resource", "cell_of"]

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
_WORDS = {None: "", "flops": "FLOPs", "memory": "memory"}
_MATCHED = {None: None, "gflops": "flops", "memory_mb": "memory"}


def cell_of(wanted: Wanted, network: str, method: str, equal: Resource | None, seed: int) -> Cell:
    """A cell of the table; the full network and RANP-f are those of the main one."""
    if equal is None:
        return main.cell_of(wanted, network, method, seed)
    ours = main.cell_of(wanted, network, OURS, seed)
    return main.cell_of(wanted, network, method, seed, equal=equal, sparsity=ours.sparsity)


def _lines(wanted: Wanted) -> Iterator[Line]:
    for network in _NETWORKS:
        full = main_table(network)[0]
        printed = {(row.method, _MATCHED[row.matched]): row for row in equal_resources(network)}
        for method, equal in _ROWS:
            yield Line(
                wanted.runs(partial(cell_of, wanted, network, method, equal)),
                network=network,
                printed=full if method == FULL else printed[method, equal],
                whole=full,
                key={"network": network, "method": method, "equal": equal or ""},
                compared=wanted.runs(partial(cell_of, wanted, network, OURS, None)) if equal else (),
            )


def _shares(wanted: Wanted, line: Line, results: Results) -> list[float]:
    """Of each seed: what the network takes of what RANP-f takes."""
    cost = operator.attrgetter(f"slim.{line.cells[0].equal}")
    return [cost(results[cell]) / cost(results[ours]) for cell, ours in zip(line.cells, line.compared, strict=False)]


def _reach(wanted: Wanted, lines: Sequence[Line]) -> list[str]:
    came = [100 * share for line in lines for share in line.measured]
    return [f"{min(came):.2f} to {max(came):.2f}"]


EQUAL_RESOURCES = Experiment(
    **texts.words("equal-resources", reach=_reach, cuts=texts.cuts(lambda wanted: _NETWORKS)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.METHOD,
        Column("equal", left=True, text=lambda line: _WORDS[line.cells[0].equal]),
        Column("of RANP-f's %", text=lambda line: texts.percent(line.measured)),
        texts.SPARSITY,
        texts.PAPERS_SPARSITY,
        *texts.costs(wanted),
        *texts.merit(wanted),
    ),
    record=lambda line: {
        **line.key,
        "share_of_ours": sum(line.measured) / len(line.measured) if line.measured else "",
        **texts.papers_numbers(line, "sparsity"),
        **texts.numbers(line),
    },
    measure=_shares,
)
