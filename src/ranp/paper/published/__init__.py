"""Every table of the paper as data, to lay beside ours: the printed figures, by our names of networks and methods.

Nothing here is computed: each figure is the paper's own, in its unit (``rows``), also where it cannot be right
(``ERRATA``).

Example:
    >>> last = main("unet3d-shapenet")[-1]
    >>> last.method, last.gflops, str(last.figures["miou"])
    ('ranp-f', 7.54, '83.07 ± 0.22')
    >>> largest_sparsity("psm-sceneflow", "vanilla"), vanilla_criterion("psm-sceneflow")
    (46.2, 'mnmg-sum')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ranp.errors import UnsupportedError, unknown_name
from ranp.paper.published.criteria_table import CRITERIA, VANILLA
from ranp.paper.published.deeper_tables import SINGLE_GPU, TRANSFER
from ranp.paper.published.errata import ERRATA, Erratum
from ranp.paper.published.main_table import MAIN
from ranp.paper.published.resource_tables import EQUAL_RESOURCES, INITIALISATION, PSM_PARTS, Part
from ranp.paper.published.rows import (
    FIGURES,
    Initialised,
    Matched,
    Measured,
    OnGpus,
    Reductions,
    Row,
    Transferred,
    in_the_papers_unit,
)
from ranp.paper.published.text import LARGEST_BY_RANP_F, QUOTES, Quote

__all__ = [
    "ERRATA",
    "FIGURES",
    "Erratum",
    "Initialised",
    "Matched",
    "Measured",
    "OnGpus",
    "Quote",
    "Reductions",
    "Row",
    "Transferred",
    "criteria",
    "equal_resources",
    "in_the_papers_unit",
    "initialisation",
    "largest_sparsity",
    "main",
    "psm_parts",
    "quotes",
    "single_gpu",
    "transfer",
    "vanilla_criterion",
]

T = TypeVar("T")


def main(network: str) -> tuple[Row, ...]:
    """The main table: the full network, then SNIP, random, layer-wise, vanilla, weighted, RANP-m and RANP-f.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(MAIN, network, "in the paper's main table")


def criteria(network: str) -> tuple[Row, ...]:
    """Vanilla pruning by each criterion at its largest sparsity; a row's method is ``"full"`` or a criterion.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(CRITERIA, network, "in the paper's table of criteria")


def vanilla_criterion(network: str) -> str:
    """The criterion that the network's vanilla, weighted and RANP rows of the main table rest on.

    Raises:
        UnsupportedError: The paper chooses none for that network.
    """
    return _of(VANILLA, network, "in the paper's table of criteria")


def initialisation(network: str) -> tuple[Initialised, ...]:
    """Resources after orthogonal and after Glorot initialisation, at one sparsity.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(INITIALISATION, network, "in the paper's table of initialisations")


def equal_resources(network: str) -> tuple[Matched, ...]:
    """Random and layer-wise pruning at the FLOPs and at the memory of RANP-f.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(EQUAL_RESOURCES, network, "in the paper's table at equal resources")


def psm_parts() -> Mapping[Part, tuple[Row, ...]]:
    """Resources of PSM's 2D and of its 3D layers, without activations."""
    return PSM_PARTS


def transfer() -> Mapping[str, tuple[Transferred, ...]]:
    """The 23-layer networks, by the one that was trained: full, pruned on its own data, pruned on the other's."""
    return TRANSFER


def single_gpu() -> tuple[OnGpus, ...]:
    """What a 15-layer and a 23-layer network reach on two GPUs, and the latter on one after RANP-f."""
    return SINGLE_GPU


def quotes(network: str) -> tuple[Quote, ...]:
    """What the text alone says of a network: at extreme sparsities, at 70 %, on a single GPU.

    Raises:
        UnsupportedError: The text says nothing of that network that no table does.
    """
    if not any(quote.network == network for quote in QUOTES):
        raise UnsupportedError(unknown_name("network in the paper's text", network, {q.network for q in QUOTES}))
    return tuple(quote for quote in QUOTES if quote.network == network)


def largest_sparsity(network: str, method: str) -> float:
    """The largest feasible sparsity that the paper tells, in percent: of neurons, for ``"snip"`` of single weights.

    Args:
        network: By our name.
        method: ``"vanilla"``, ``"ranp-f"``, ``"snip"``, or a criterion, which means vanilla pruning by it.

    Raises:
        UnsupportedError: The paper tells none of that network and method.
    """
    told = {name: {"ranp-f": sparsity} for name, sparsity in LARGEST_BY_RANP_F.items()}
    for name, criterion in VANILLA.items():
        at_their_largest = (*CRITERIA[name], *(row for row in MAIN[name] if row.method == "snip"))
        told[name] |= {row.method: row.sparsity for row in at_their_largest if row.sparsity}
        told[name]["vanilla"] = told[name][criterion]
    found = _of(told, network, "with a largest sparsity in the paper")
    return _of(found, method, f"with a largest sparsity of {network!r} in the paper", "method")


def _of(table: Mapping[str, T], name: str, where: str, what: str = "network") -> T:
    if name not in table:
        raise UnsupportedError(unknown_name(f"{what} {where}:", name, table))
    return table[name]
