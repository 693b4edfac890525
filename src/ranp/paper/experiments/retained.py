"""What share of its channels each layer keeps, method by method (paper, ``fig:shapenet_neuron_ratio_per_layer``)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.studying import Drawing, by_network

__all__ = ["RETAINED", "ratios"]

_METHODS = ("random", "layerwise", "vanilla", "weighted", "ranp-f")
_SCARCE = 0.05


def ratios(result: Result) -> dict[str, float]:
    """The share of channels that each layer keeps."""
    return {name: kept / channels for name, (kept, channels) in result.widths.items()}


def _of_shares(head: str, text: Callable[[Sequence[float]], str]) -> Column:
    return Column(head, text=lambda line: text(list(ratios(line.found[0]).values())))


def _least(line: Line) -> str:
    shares = ratios(line.found[0])
    name = min(shares, key=lambda layer: shares[layer])
    return "{} ({} of {})".format(name, *line.found[0].widths[name])


def _drawn(wanted: Wanted, lines: Sequence[Line], results: Results) -> Iterator[Drawing]:
    from ranp.reporting.drawing import retained

    shares = {line.method: ratios(line.found[0]) for line in lines}
    layers = list(shares[_METHODS[0]])
    curves = {method: [of[name] for name in layers] for method, of in shares.items()}
    yield "", f": channels retained at {100 * lines[-1].found[0].sparsity:.2f} % sparsity", retained(curves, layers)


RETAINED = Experiment(
    **texts.words("retained"),
    lines=lambda wanted: main.lines_of(wanted, _METHODS, range(1)),
    columns=lambda wanted, lines: (
        texts.METHOD,
        texts.REMOVED,
        _of_shares("layers", lambda shares: str(len(shares))),
        _of_shares("least kept %", lambda shares: f"{100 * min(shares):.1f}"),
        _of_shares("median %", lambda shares: f"{100 * statistics.median(shares):.1f}"),
        _of_shares("most kept %", lambda shares: f"{100 * max(shares):.1f}"),
        _of_shares(f"layers below {_SCARCE:.0%}", lambda shares: str(sum(share < _SCARCE for share in shares))),
        Column("layer that keeps least", left=True, text=_least),
    ),
    record=lambda line: [
        {**line.key, "layer": name, "kept": kept, "channels": channels}
        for name, (kept, channels) in line.found[0].widths.items()
    ],
    figures=by_network("retained", _drawn),
)
