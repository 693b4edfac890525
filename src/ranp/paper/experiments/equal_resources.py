"""All methods within the FLOPs, or the memory, that RANP-f leaves (paper, ``tb:similar_resource``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Literal

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import FULL, OURS, Cell, Column, Experiment, Line, Wanted
from ranp.paper.published import equal_resources
from ranp.paper.published import main as main_table
from ranp.reporting import looks

__all__ = ["EQUAL_RESOURCES", "Resource", "cell_of"]

Resource = Literal["flops", "memory"]

_NETWORKS = ("unet3d-shapenet", "unet3d-brats")
_METHODS = ("random", "layerwise", "snip", "weighted", OURS, "flat", "power", "balanced")
_PRINTED: dict[Resource | None, str] = {"flops": "gflops", "memory": "memory_mb"}
_FLOOR = 4
"""RANP-f without one is what sets the budget."""


def cell_of(wanted: Wanted, network: str, method: str, equal: Resource | None, seed: int) -> Cell:
    """A cell of the table; the full network and RANP-f are those of the main one."""
    if equal is None:
        return main.cell_of(wanted, network, method, seed)
    return replace(
        main.cell_of(wanted, network, OURS, seed), method=method, equal=equal, floor=_FLOOR if method == OURS else 1
    )


def _lines(wanted: Wanted) -> Iterator[Line]:
    for network in _NETWORKS:
        full = main_table(network)[0]
        printed = {(row.method, row.matched): row for row in equal_resources(network)} | {(FULL, None): full}
        for equal, method in ((None, FULL), (None, OURS), *product(_PRINTED, _METHODS)):
            yield Line(
                wanted.runs(partial(cell_of, wanted, network, method, equal)),
                name=f"{looks.TITLES[method]}, floor of {_FLOOR}" if equal and method == OURS else "",
                network=network,
                printed=printed.get((method, _PRINTED.get(equal))),
                whole=full,
                key={"network": network, "method": method, "equal": equal or ""},
            )


def _narrowest(line: Line) -> str:
    cut = [width for one in line.found for width, full in one.widths.values() if width < full]
    return f"{min(cut)}" if cut and line.pruned else ""


def _reach(wanted: Wanted, lines: Sequence[Line]) -> list[str]:
    used = [100 * share for line in lines for share in line.values("used")]
    return [f"{min(used):.2f} to {max(used):.2f}"] if used else []


EQUAL_RESOURCES = Experiment(
    **texts.words("equal-resources", reach=_reach, cuts=texts.cuts(lambda wanted: _NETWORKS)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.METHOD,
        Column("equal", left=True, text=lambda line: {"flops": "FLOPs"}.get(line.key["equal"], line.key["equal"])),
        texts.share("of RANP-f's %", "used"),
        Column("narrowest", text=_narrowest),
        texts.REMOVED,
        texts.PAPERS_SPARSITY,
        *texts.costs(wanted),
        *texts.merit(wanted),
    ),
    record=lambda line: {
        **line.key,
        "share_of_ours": line.mean("used") if line.values("used") else "",
        **texts.papers_numbers(line, "sparsity"),
        **texts.numbers(line),
    },
)
