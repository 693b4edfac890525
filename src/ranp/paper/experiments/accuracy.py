"""What slim networks learn as more and more is removed (paper, ``fig:shapenet_acc`` and its like).

Between the sparsities of the main table, whose cells are taken as they are, each network is pruned by RANP-f at a few
more, and trained once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import FULL, OURS, Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.results import over_last_epochs
from ranp.paper.experiments.studying import Drawing, by_network
from ranp.paper.published import FIGURES, QUOTES, Quote, in_the_papers_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ACCURACY", "sparsities"]

_TOGETHER = {
    "unet3d-brats": "Dice (%)",
    "mobilenetv2-ucf101": "accuracy of videos (%)",
    "i3d-ucf101": "accuracy of videos (%)",
    "psm-sceneflow": "pixels within 1 and 3 (%)",
}
"""What the figures of a network have in common, where there is more than one."""
_UNETS, _OTHERS = (0.3, 0.5, 0.7, 0.85), (0.15, 0.3, 0.45, 0.6)
_COSTS = ("gflops", "memory_mb")


def sparsities(wanted: Wanted, network: str) -> tuple[float, ...]:
    """What is removed beside the main table's share; at the paper's scale also where its text tells what came out."""
    if wanted.resources_only:  # nothing to be seen that the experiment of resources does not show
        return ()
    usual = _UNETS if network.startswith("unet3d") else _OTHERS
    if wanted.quick:
        return usual[1:2]
    quoted = [round((quote.sparsity or 0.0) / 100, 6) for quote in _quoted(network) if wanted.is_paper]
    return tuple(sorted({*usual, *quoted}))


def _quoted(network: str) -> list[Quote]:
    return [one for one in QUOTES if (one.network, one.method) == (network, OURS) and one.sparsity is not None]


def _lines(wanted: Wanted) -> Iterator[Line]:
    for network in main.networks(wanted):
        yield main.line_of(wanted, network, FULL)
        ours = main.line_of(wanted, network, OURS)
        at = {ours.cells[0].sparsity: ours}
        for sparsity in sparsities(wanted, network):
            line = main.line_of(wanted, network, OURS, range(1), sparsity=sparsity)
            at.setdefault(sparsity, replace(line, printed=None))
        yield from (at[sparsity] for sparsity in sorted(at, key=lambda value: value or 0.0))


def _columns(wanted: Wanted, lines: Sequence[Line]) -> Iterator[Column]:
    yield texts.METHOD
    yield texts.SPARSITY
    yield Column("removed %", text=lambda line: f"{100 * line.mean('removed'):.2f}" if line.pruned else "")
    yield Column("seeds", text=lambda line: str(len(line.found)))
    yield from texts.costs(wanted, _COSTS, beside=False)
    if not wanted.resources_only:
        yield Column("last epoch, ± over seeds", left=True, text=texts.last_epoch)
        yield texts.OVER_EPOCHS
        yield texts.PAPERS_FIGURES


def _record(line: Line) -> dict[str, Any]:
    reached = texts.merit_numbers(line)
    if len(line.found) == 1:
        reached |= {name: "" for name in reached if name.endswith("_std_over_seeds")}
    return {
        **line.key,
        "sparsity": line.found[0].sparsity,
        "removed": line.mean("removed"),
        "kept_one": line.kept_one,
        "seeds": len(line.found),
        **texts.cost_numbers(line.slim, names=_COSTS),
        **texts.cost_numbers(line.full, "full_", _COSTS),
        **reached,
    }


def _drawn(wanted: Wanted, lines: Sequence[Line], results: Results) -> Iterator[Drawing]:
    """Shares in one drawing, errors in pixels in another."""
    figures = FIGURES[lines[0].network]
    pixels = [name for name in figures if in_the_papers_unit(name, 1.0) == 1.0]
    for end, names in ("", [name for name in figures if name not in pixels]), ("-error", pixels):
        if names:
            yield end, " by sparsity" + (" (dashed: full)" if len(names) > 1 else ""), _curves(names, *lines)


def _curves(names: Sequence[str], full: Line, *ours: Line) -> Figure:
    """Means of the last epochs against sparsity, the full network's as a line of the same colour."""
    from ranp.reporting.drawing import accuracy

    def point(line: Line, name: str) -> tuple[float, float]:
        spread = over_last_epochs(line.found, name)
        return in_the_papers_unit(name, spread.mean), in_the_papers_unit(name, spread.deviation)

    curves = {
        texts.METHODS[OURS] if len(names) == 1 else f"{texts.METHODS[OURS]}, {texts.FIGURE_NAMES[name]}": [
            (line.found[0].sparsity, *point(line, name)) for line in ours
        ]
        for name in names
    }
    single = point(full, names[0]) if len(names) == 1 else None
    figure = accuracy(curves, texts.axis_of(names[0]) if single else _TOGETHER[full.network], single)
    (axes,) = figure.axes
    axes.set_xlim(0, 1)
    if not single:
        for curve, name in zip(list(axes.lines), names, strict=True):
            axes.axhline(
                point(full, name)[0], color=curve.get_color(), linewidth=0.8, linestyle=(0, (4, 1.5)), zorder=2
            )
    for line in ours:
        for name in names if line.kept_one else ():
            place = line.found[0].sparsity, point(line, name)[0]
            axes.annotate("†", place, (3, 2), textcoords="offset points", fontsize=7)
    return figure


def _quotes(wanted: Wanted, lines: object) -> Iterator[str]:
    for network in main.networks(wanted):
        yield from (f"{texts.NETWORKS[network]}: “{quote.words}”" for quote in _quoted(network))


ACCURACY = Experiment(
    **texts.words("accuracy", quotes=_quotes, cuts=texts.cuts(main.networks)),
    lines=_lines,
    columns=_columns,
    record=_record,
    figures=by_network("accuracy", _drawn, trained=True),
)
