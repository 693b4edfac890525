"""What share of its channels each layer keeps, method by method (paper, ``fig:shapenet_neuron_ratio_per_layer``)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.studying import titled
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import KEPT_ONE, METHODS, NETWORKS

__all__ = ["RETAINED", "ratios"]

_METHODS = ("random", "layerwise", "vanilla", "weighted", "ranp-f")
_SCARCE = 0.05


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for network in main.networks(wanted):
        for method in _METHODS:
            yield main.cell_of(wanted, network, method, 0)


def ratios(result: Result) -> dict[str, float]:
    """The share of channels that each layer keeps."""
    return {name: kept / channels for name, (kept, channels) in result.widths.items()}


def _present(results: Results, wanted: Wanted) -> Presentation:
    from ranp.reporting.drawing import retained

    groups, records, figures = [], [], {}
    for network in main.networks(wanted):
        found = {method: results[main.cell_of(wanted, network, method, 0)] for method in _METHODS}
        groups.append(Group(NETWORKS[network], tuple(_row(method, result) for method, result in found.items())))
        for method, result in found.items():
            records += [
                {"network": network, "method": method, "layer": name, "kept": kept, "channels": channels}
                for name, (kept, channels) in result.widths.items()
            ]
        shares = {method: ratios(result) for method, result in found.items()}
        layers = list(shares[_METHODS[0]])
        lines = {method: [of[name] for name in layers] for method, of in shares.items()}
        sparsity = 100 * found["ranp-f"].sparsity
        figures[f"retained-{network}"] = titled(
            retained(lines, layers), f"{NETWORKS[network]}: channels retained at {sparsity:.2f} % sparsity"
        )
    columns = ("removed %", "layers", "least kept %", "median %", "most kept %", f"layers below {_SCARCE:.0%}")
    table = Table(
        "retained",
        "Channels retained by layer",
        (Column("method", left=True), *map(Column, columns), Column("layer that keeps least", left=True)),
        tuple(groups),
        caption=_caption(wanted),
        notes=(
            KEPT_ONE,
            "Layers whose channels must all stay, such as the last one, retain all of them.",
        ),
        records=tuple(records),
    )
    return Presentation((table,), figures)


def _row(method: str, result: Result) -> tuple[str, ...]:
    shares = ratios(result)
    least = min(shares, key=lambda name: shares[name])
    return (
        METHODS[method] + ("†" if result.kept_one else ""),
        f"{100 * result.removed:.2f}",
        str(len(shares)),
        f"{100 * shares[least]:.1f}",
        f"{100 * statistics.median(shares.values()):.1f}",
        f"{100 * max(shares.values()):.1f}",
        str(sum(share < _SCARCE for share in shares.values())),
        "{} ({} of {})".format(least, *result.widths[least]),
    )


def _caption(wanted: Wanted) -> str:
    networks = "The paper's networks at its sizes" if wanted.scale == "paper" else "Small networks on procedural data"
    return (
        f"{networks} at the paper's sparsities, seed 0: the share of its channels that each layer retains. The "
        "drawings and the CSV file have every layer. The paper draws such ratios and prints no figures."
    )


RETAINED = Experiment(
    "retained",
    "Channels retained by layer",
    "fig:shapenet_neuron_ratio_per_layer, fig:neuron_distribution_mpmg",
    lambda w: tuple(_cells(w)),
    _present,
)
