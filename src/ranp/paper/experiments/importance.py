"""Importance layer by layer: raw, balanced and reweighted, by two initialisations.

In the paper ``fig:neuron_distribution_mpmg``, ``fig:ort_xn_neuron_value`` and ``fig:ort_xn``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import OURS, Cell, Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.retained import ratios
from ranp.paper.experiments.studying import Drawing, by_network, studied

__all__ = ["IMPORTANCE", "cell_of"]

_INITS = {"glorot": "Glorot", "orthogonal": "orthogonal"}
_COMPARED = ("unet3d-shapenet", "unet3d-brats")
"""Networks that the paper compares the initialisations on."""
_STAGES = {"raw": "raw (vanilla)", "balanced": "balanced (weighted)", "reweighted": "reweighted (RANP-f)"}


def cell_of(wanted: Wanted, network: str, method: str, init: str) -> Cell:
    """The cell that scores a network and prunes it, without training it."""
    changes = {} if init == "glorot" else {"settings": (*texts.NP[network][1], ("init", init))}
    return main.cell_of(wanted.costs_only(), network, method, 0, **changes)


def _networks(wanted: Wanted) -> tuple[str, ...]:
    """The paper's two 3D-UNets; small networks cost little to show as well."""
    return _COMPARED if wanted.is_paper else main.networks(wanted)


def _lines(wanted: Wanted) -> Iterator[Line]:
    for network in _networks(wanted):
        compared = network in _COMPARED
        for init in _INITS if compared else ("glorot",):
            for stage, name in _STAGES.items():
                yield Line(
                    (cell_of(wanted, network, OURS, init),),
                    name,
                    network,
                    f"{texts.NETWORKS[network]}, {_INITS[init]} initialisation",
                    key={"network": network, "init": init, "stage": stage},
                    compared=(cell_of(wanted, network, "vanilla", init),) if compared else (),
                )


def _column(head: str, text: Callable[[Sequence[float]], str]) -> Column:
    """Of the mean importances of the layers that have any."""

    def of(line: Line) -> str:
        scores = [layer.scores[line.key["stage"]] for layer in line.measured.layers]
        return text([statistics.fmean(values) for values in scores if any(values)])

    return Column(head, text=of)


def _zeros(line: Line) -> str:
    values = [value for layer in line.measured.layers for value in layer.scores[line.key["stage"]]]
    return f"{sum(value == 0 for value in values)} of {len(values)}"


def _record(line: Line) -> list[dict[str, Any]]:
    """One of each layer; that of the first importance has all of them."""
    if line.key["stage"] != "raw":
        return []
    figures: dict[str, Callable[[Sequence[float]], float]] = {"mean": statistics.fmean, "lowest": min, "highest": max}
    return [
        {
            "network": line.network,
            "init": line.key["init"],
            "layer": layer.name,
            "channels": layer.channels,
            "flops": layer.flops,
            "memory": layer.memory,
            **{f"{stage}_{name}": of(layer.scores[stage]) for name, of in figures.items() for stage in _STAGES},
        }
        for layer in line.measured.layers
    ]


def _drawn(wanted: Wanted, lines: Sequence[Line], results: Results) -> Iterator[Drawing]:
    from ranp.reporting.drawing import importance, initialisation

    by_init = {_INITS[line.key["init"]]: line for line in lines}
    studies = {name: line.measured for name, line in by_init.items()}
    yield "", ": importance by layer", importance(studies["Glorot"])
    if len(studies) > 1:
        kept = {}
        for method in ("vanilla", OURS):
            for name, line in by_init.items():
                result = line.found[0] if method == OURS else results[line.compared[0]]
                label = f"{texts.METHODS[method]}, {name}{'†' if result.kept_one else ''}"
                kept[label] = [ratios(result)[layer.name] for layer in studies["Glorot"].layers]
        yield "-initialisation", ": importance by layer and initialisation", initialisation(studies, kept)


IMPORTANCE = Experiment(
    **texts.words("importance", cuts=texts.cuts(_networks)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.name("importance"),
        _column("smallest mean of a layer", lambda means: f"{min(means):.3g}"),
        _column("largest", lambda means: f"{max(means):.3g}"),
        _column("largest / smallest", lambda means: f"{max(means) / min(means):.3g}"),
        Column("channels at 0", text=_zeros),
    ),
    record=_record,
    measure=lambda wanted, line, results: studied(line.cells[0], results.place),
    figures=by_network("importance", _drawn),
)
