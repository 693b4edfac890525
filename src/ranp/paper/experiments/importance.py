"""Importance layer by layer: raw, balanced and reweighted, by two initialisations.

In the paper ``fig:neuron_distribution_mpmg``, ``fig:ort_xn_neuron_value`` and ``fig:ort_xn``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.retained import ratios
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.studying import studied, titled
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import KEPT_ONE, METHODS, NETWORKS, NP
from ranp.reporting.study import Study

__all__ = ["IMPORTANCE", "cell_of"]

_INITS = {"glorot": "Glorot", "orthogonal": "orthogonal"}
_COMPARED = ("unet3d-shapenet", "unet3d-brats")
"""Networks that the paper compares the initialisations on."""
_STAGES = {"raw": "raw (vanilla)", "balanced": "balanced (weighted)", "reweighted": "reweighted (RANP-f)"}


def cell_of(wanted: Wanted, network: str, method: str, init: str) -> Cell:
    """The cell that scores a network and prunes it, without training it."""
    changes = {} if init == "glorot" else {"settings": (*NP[network][1], f"init={init}")}
    return main.cell_of(wanted.costs_only(), network, method, 0, **changes)


def _networks(wanted: Wanted) -> tuple[str, ...]:
    """The paper's two 3D-UNets; small networks cost little to show as well."""
    return _COMPARED if wanted.scale == "paper" else main.networks(wanted)


def _inits(network: str) -> tuple[str, ...]:
    return tuple(_INITS) if network in _COMPARED else ("glorot",)


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for network in _networks(wanted):
        for init in _inits(network):
            yield cell_of(wanted, network, OURS, init)
            if network in _COMPARED:
                yield cell_of(wanted, network, "vanilla", init)


def _present(results: Results, wanted: Wanted) -> Presentation:
    from ranp.reporting.drawing import importance, initialisation

    groups, records, figures = [], [], {}
    for network in _networks(wanted):
        title, studies = NETWORKS[network], {}
        for init in _inits(network):
            study = studied(cell_of(wanted, network, OURS, init), results.place)
            studies[_INITS[init]] = study
            groups.append(Group(f"{title}, {_INITS[init]} initialisation", _rows(study)))
            records += _records(network, init, study)
        figures[f"importance-{network}"] = titled(importance(studies["Glorot"]), f"{title}: importance by layer")
        if len(studies) > 1:
            figures[f"importance-{network}-initialisation"] = titled(
                initialisation(studies, _retained(results, wanted, network, studies["Glorot"])),
                f"{title}: importance by layer and initialisation",
            )
    columns = ("smallest mean of a layer", "largest", "largest / smallest", "channels at 0")
    table = Table(
        "importance",
        "Importance of channels by layer",
        (Column("importance", left=True), *map(Column, columns)),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,), figures)


def _retained(results: Results, wanted: Wanted, network: str, study: Study) -> dict[str, list[float]]:
    lines = {}
    for method in ("vanilla", OURS):
        for init, name in _INITS.items():
            result = results[cell_of(wanted, network, method, init)]
            mark = "†" if result.kept_one else ""
            lines[f"{METHODS[method]}, {name}{mark}"] = [ratios(result)[layer.name] for layer in study.layers]
    return lines


def _means(study: Study, stage: str) -> list[float]:
    """Of the layers that have an importance at all."""
    return [statistics.fmean(layer.scores[stage]) for layer in study.layers if any(layer.scores[stage])]


def _rows(study: Study) -> tuple[tuple[str, ...], ...]:
    rows = []
    for stage, title in _STAGES.items():
        means = _means(study, stage)
        values = [value for layer in study.layers for value in layer.scores[stage]]
        zeros = sum(value == 0 for value in values)
        low, high = min(means), max(means)
        rows.append((title, f"{low:.3g}", f"{high:.3g}", f"{high / low:.3g}", f"{zeros} of {len(values)}"))
    return tuple(rows)


def _records(network: str, init: str, study: Study) -> list[dict[str, Any]]:
    return [
        {
            "network": network,
            "init": init,
            "layer": layer.name,
            "channels": layer.channels,
            "flops": layer.flops,
            "memory": layer.memory,
            **{f"{stage}_mean": statistics.fmean(layer.scores[stage]) for stage in _STAGES},
            **{f"{stage}_lowest": min(layer.scores[stage]) for stage in _STAGES},
            **{f"{stage}_highest": max(layer.scores[stage]) for stage in _STAGES},
        }
        for layer in study.layers
    ]


def _caption(wanted: Wanted) -> str:
    networks = "The paper's 3D-UNets at its sizes" if wanted.scale == "paper" else "Small networks"
    return (
        f"{networks}, scored by MPMG-sum on procedural samples, seed 0: how far apart the mean importances of layers "
        "are, as scored, balanced (all layers have the same mean) and reweighted by the FLOPs of each layer. The "
        "drawings have every channel (200 of those of wider layers), the CSV file every layer. The paper draws them "
        "and prints no figures."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = [
        "Layers without any importance, those that are not scored among them, are left out of smallest and largest.",
        KEPT_ONE.replace("At this sparsity", "In the drawings of retained channels: at the main table's sparsity"),
    ]
    if wanted.scale == "cpu":
        notes += [f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}." for name in _networks(wanted)]
    return tuple(notes)


IMPORTANCE = Experiment(
    "importance",
    "Importance of channels by layer",
    "fig:neuron_distribution_mpmg, fig:ort_xn_neuron_value, fig:ort_xn",
    lambda w: tuple(_cells(w)),
    _present,
)
