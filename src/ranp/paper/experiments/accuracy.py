"""What slim networks learn as more and more is removed (paper, ``fig:shapenet_acc`` and its like).

Between the sparsities of the main table, whose cells are taken as they are, each network is pruned by RANP-f at a few
more, and trained once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import Result, over_last_epochs, over_seeds
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.studying import axis_of, last_epoch, titled
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import (
    FIGURE_NAMES,
    KEPT_ONE,
    METHODS,
    NETWORKS,
    NP,
    cost,
    figures_over_epochs,
    mean_costs,
    paper_figures,
)
from ranp.paper.published import FIGURES, in_the_papers_unit
from ranp.paper.published import main as printed
from ranp.paper.published.text import QUOTES, Quote

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


def sparsities(wanted: Wanted, network: str) -> tuple[float, ...]:
    """What is removed beside the main table's share; at the paper's scale also where its text tells what came out."""
    if wanted.resources_only:  # nothing to be seen that the experiment of resources does not show
        return ()
    usual = _UNETS if network.startswith("unet3d") else _OTHERS
    if wanted.quick:
        return usual[1:2]
    quoted = [round(sparsity / 100, 6) for sparsity, _ in _quoted(network)] if wanted.scale == "paper" else []
    return tuple(sorted({*usual, *quoted}))


def _quoted(network: str) -> list[tuple[float, Quote]]:
    of_it = [quote for quote in QUOTES if (quote.network, quote.method) == (network, OURS)]
    return [(quote.sparsity, quote) for quote in of_it if quote.sparsity is not None]


def _of_main(wanted: Wanted, network: str, method: str) -> list[Cell]:
    seeds = range(1) if wanted.resources_only else wanted.range
    return [main.cell_of(wanted, network, method, seed) for seed in seeds]


def _between(wanted: Wanted, network: str) -> list[Cell]:
    of_main = {cell.sparsity for cell in _of_main(wanted, network, OURS)}
    return [
        main.cell_of(wanted, network, OURS, 0, sparsity=sparsity)
        for sparsity in sparsities(wanted, network)
        if sparsity not in of_main
    ]


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for network in main.networks(wanted):
        yield from (*_of_main(wanted, network, FULL), *_of_main(wanted, network, OURS), *_between(wanted, network))


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records, figures = [], [], {}
    for network in main.networks(wanted):
        full = [results[cell] for cell in _of_main(wanted, network, FULL)]
        ours = [[results[cell] for cell in _of_main(wanted, network, OURS)]]
        ours += [[results[cell]] for cell in _between(wanted, network)]
        ours.sort(key=lambda found: found[0].sparsity)
        groups.append(Group(NETWORKS[network], tuple(_row(network, found, wanted) for found in (full, *ours))))
        records += [_record(network, found) for found in (full, *ours)]
        for name, shown in ({} if wanted.resources_only else _drawings(network)).items():
            figures[name] = _drawn(network, shown, full, ours)
    flops = "GFLOPs" if wanted.scale == "paper" else "MFLOPs"
    columns = ["sparsity %", "removed %", "seeds", flops, "Memory MB"]
    words = [] if wanted.resources_only else ["last epoch, ± over seeds", "last 5 epochs, ± over them", "paper's"]
    table = Table(
        "accuracy",
        "Accuracy against sparsity",
        (Column("method", left=True), *map(Column, columns), *(Column(name, left=True) for name in words)),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,), figures)


def _drawings(network: str) -> dict[str, tuple[str, ...]]:
    """Name of each drawing to what it shows: shares in one, errors in pixels in another."""
    pixels = tuple(name for name in FIGURES[network] if in_the_papers_unit(name, 1.0) == 1.0)
    shares = tuple(name for name in FIGURES[network] if name not in pixels)
    drawings = {f"accuracy-{network}": shares, f"accuracy-{network}-error": pixels}
    return {name: shown for name, shown in drawings.items() if shown}


def _drawn(network: str, names: Sequence[str], full: Sequence[Result], ours: Sequence[Sequence[Result]]) -> Figure:
    """Means of the last epochs against sparsity, the full network's as a line of the same colour."""
    from ranp.reporting.drawing import accuracy

    def point(found: Sequence[Result], name: str) -> tuple[float, float]:
        spread = over_last_epochs(found, name)
        return in_the_papers_unit(name, spread.mean), in_the_papers_unit(name, spread.deviation)

    curves = {
        METHODS[OURS] if len(names) == 1 else f"{METHODS[OURS]}, {FIGURE_NAMES[name]}": [
            (found[0].sparsity, *point(found, name)) for found in ours
        ]
        for name in names
    }
    single = point(full, names[0]) if len(names) == 1 else None
    figure = accuracy(curves, axis_of(names[0]) if single else _TOGETHER[network], single)
    (axes,) = figure.axes
    axes.set_xlim(0, 1)
    if not single:
        for line, name in zip(list(axes.lines), names, strict=True):
            axes.axhline(point(full, name)[0], color=line.get_color(), linewidth=0.8, linestyle=(0, (4, 1.5)), zorder=2)
    for found in ours:
        for name in names if any(one.kept_one for one in found) else ():
            place = found[0].sparsity, point(found, name)[0]
            axes.annotate("†", place, (3, 2), textcoords="offset points", fontsize=7)
    return titled(figure, f"{NETWORKS[network]} by sparsity" + ("" if single else " (dashed: full)"))


def _removed(found: Sequence[Result]) -> float:
    return sum(one.removed for one in found) / len(found)


def _row(network: str, found: Sequence[Result], wanted: Wanted) -> tuple[str, ...]:
    method, slim, whole = found[0].cell.method, mean_costs(found, "slim"), mean_costs(found, "full")
    scale = 1.0 if wanted.scale == "paper" else 1000.0
    pruned = method != FULL
    cells = [
        METHODS[method] + ("†" if any(one.kept_one for one in found) else ""),
        f"{100 * found[0].sparsity:.2f}" if pruned else "",
        f"{100 * _removed(found):.2f}" if pruned else "",
        str(len(found)),
        cost(slim.gflops * scale, whole.gflops * scale),
        cost(slim.memory_mb, whole.memory_mb),
    ]
    if not wanted.resources_only:
        of_main = found[0].cell.sparsity == main.cell_of(wanted, network, method, 0).sparsity
        paper = next(row for row in printed(network) if row.method == method)
        cells += [
            last_epoch(found, network),
            figures_over_epochs(found, network),
            paper_figures(paper) if of_main else "",
        ]
    return tuple(cells)


def _record(network: str, found: Sequence[Result]) -> dict[str, Any]:
    slim, whole = mean_costs(found, "slim"), mean_costs(found, "full")
    record: dict[str, Any] = {
        "network": network,
        "method": found[0].cell.method,
        "sparsity": found[0].sparsity,
        "removed": _removed(found),
        "kept_one": any(one.kept_one for one in found),
        "seeds": len(found),
        "gflops": slim.gflops,
        "memory_mb": slim.memory_mb,
        "full_gflops": whole.gflops,
        "full_memory_mb": whole.memory_mb,
    }
    for name in FIGURES[network] if found[0].figures else ():
        seeds, epochs = over_seeds(found, name), over_last_epochs(found, name)
        record |= {
            f"{name}_mean_over_seeds": seeds.mean,
            f"{name}_std_over_seeds": seeds.deviation if len(found) > 1 else "",
            f"{name}_mean_of_last_epochs": epochs.mean,
            f"{name}_std_over_last_epochs": epochs.deviation,
        }
    return record


def _caption(wanted: Wanted) -> str:
    if wanted.resources_only:
        return "Nothing is trained: what the networks cost that the accuracy of the main table's sparsity is of."
    data = "The paper's networks and recipes" if wanted.scale == "paper" else "Small networks on procedural data"
    return (
        f"{data}, pruned by RANP-f at rising sparsities and trained once at each, {len(wanted.range)} time(s) at that "
        "of the main table. In brackets: what is removed of the full network, in percent; “removed” is a share of all "
        "channels, those that must stay among them. The drawings show the mean of the last five epochs and a standard "
        "deviation over them to each side; lines between points are for the eye only."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    if wanted.resources_only:
        return (KEPT_ONE,)
    notes = [
        KEPT_ONE,
        "A row of one seed has no spread over seeds; how much seeds differ shows the row with more.",
        "The paper draws such curves but prints figures at the sparsity of its main table only; its text adds:",
    ]
    for network in main.networks(wanted):
        notes += [f"{NETWORKS[network]}: “{quote.words}”" for _, quote in _quoted(network)]
    if wanted.scale == "cpu":
        notes += [f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}." for name in main.networks(wanted)]
    return tuple(notes)


ACCURACY = Experiment(
    "accuracy",
    "Accuracy against sparsity",
    "fig:shapenet_acc, fig:brats_acc, fig:mobilenetv2_acc, fig:i3d_acc, fig:sceneflow_acc, fig:sceneflow_epe",
    lambda w: tuple(_cells(w)),
    _present,
)
