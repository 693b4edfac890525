"""How figures are written in the tables: ours beside the paper's, means with their spread, always labelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.results import Costs, Result, Spread, over_last_epochs, over_seeds
from ranp.paper.experiments.table import Column
from ranp.paper.published import FIGURES, Row, in_the_papers_unit
from ranp.reporting import looks

__all__ = [
    "FIGURE_NAMES",
    "KEPT_ONE",
    "METHODS",
    "NETWORKS",
    "NP",
    "cost",
    "cost_cells",
    "cost_columns",
    "figure_cells",
    "figure_columns",
    "figures_over_epochs",
    "figures_over_seeds",
    "mean_costs",
    "numbers",
    "paper_figures",
    "percent",
    "seeds_of",
    "spreads",
]

KEPT_ONE = (
    "† At this sparsity the method would leave a layer without channels: every coupled set of channels kept its best "
    "one instead, and as much as possible was removed elsewhere."
)
"""What the mark behind a method means."""

METHODS, NETWORKS = looks.TITLES, looks.NETWORKS
"""The methods of the main table by the paper's names, in its order; and its networks."""

NP: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "unet3d-shapenet": ("shapenet", ()),
    "unet3d-brats": ("brats", ()),
    "mobilenetv2-ucf101": ("ucf101", ()),
    "i3d-ucf101": ("ucf101", ("network=i3d-ucf101", "size=224")),
    "psm-sceneflow": ("sceneflow", ()),
}
"""The five networks of the paper's tables: the task of each, and what it changes of the task's recipe."""

FIGURE_NAMES: Mapping[str, str] = {
    "miou": "mIoU",
    "dice_et": "ET",
    "dice_tc": "TC",
    "dice_wt": "WT",
    "top1_video": "Top-1",
    "top5_video": "Top-5",
    "acc1": "Acc-1",
    "acc3": "Acc-3",
    "epe": "EPE",
}


def cost(value: float, full: float) -> str:
    """A cost and what was removed of it in percent, as the paper prints it."""
    return f"{value:.2f}" if value == full else f"{value:.2f} ({100 * (1 - value / full):.1f})"


def figures_over_seeds(results: Sequence[Result], network: str) -> str:
    """Every figure of the paper for a network: mean and standard deviation over seeds, after the last epoch."""
    return _figures(results, network, lambda name: over_seeds(results, name))


def figures_over_epochs(results: Sequence[Result], network: str) -> str:
    """The same as the paper takes it: over the last five epochs of a run, averaged over the seeds."""
    return _figures(results, network, lambda name: over_last_epochs(results, name))


def paper_figures(row: Row | None) -> str:
    """The paper's own."""
    told = {} if row is None else row.figures
    return " · ".join(f"{FIGURE_NAMES[name]} {value}" for name, value in told.items())


def mean_costs(results: Sequence[Result], which: str) -> Costs:
    """Costs averaged over the runs of several seeds, ``"slim"`` or ``"full"``; seeds score differently."""
    found: list[Costs] = [getattr(result, which) for result in results]
    params, flops, memory = (
        round(sum(getattr(one, name) for one in found) / len(found)) for name in ("params", "flops", "memory")
    )
    return Costs(params, flops, memory)


def seeds_of(wanted: Wanted) -> range:
    """The seeds of cells that are trained where anything is; costs are told of the first."""
    return range(1) if wanted.resources_only else wanted.range


def percent(values: Sequence[float]) -> str:
    """The mean of shares, in percent."""
    return f"{100 * sum(values) / len(values):.2f}"


def cost_columns(wanted: Wanted, *, beside: bool = True) -> tuple[Column, ...]:
    """Parameters, FLOPs and memory; ``beside``: each with the paper's own."""
    names = ("Param MB", "GFLOPs" if wanted.scale == "paper" else "MFLOPs", "Memory MB")
    return tuple(Column(name) for own in names for name in ((own, "paper's") if beside else (own,)))


def cost_cells(found: Sequence[Result], wanted: Wanted, printed: tuple[Row | None, Row] | None = None) -> list[str]:
    """The cells of ``cost_columns``, means over the runs.

    Args:
        found: The runs of one row.
        wanted: Its scale decides on the unit of FLOPs, and whether the paper's network is ours.
        printed: The paper's row, if it has one, and that of its full network, which reductions are taken against;
            without them there is no column beside.
    """
    slim, full = mean_costs(found, "slim"), mean_costs(found, "full")
    cells: list[str] = []
    for name in ("params_mb", "gflops", "memory_mb"):
        unit = 1000.0 if name == "gflops" and wanted.scale != "paper" else 1.0
        cells.append(cost(getattr(slim, name) * unit, getattr(full, name) * unit))
        if printed is not None:
            row, whole = printed
            cells.append(_paper_cost(getattr(row, name, None), getattr(whole, name), absolute=wanted.scale == "paper"))
    return cells


def figure_columns(wanted: Wanted) -> tuple[Column, ...]:
    """What was reached: nothing where nothing is trained; over seeds only where there are several."""
    if wanted.resources_only:
        return ()
    several = ("last epoch, ± over seeds",) if len(wanted.range) > 1 else ()
    return tuple(Column(name, left=True) for name in (*several, "last 5 epochs, ± over them", "paper's"))


def figure_cells(found: Sequence[Result], network: str, wanted: Wanted, printed: Row | None = None) -> list[str]:
    """The cells of ``figure_columns``."""
    if wanted.resources_only:
        return []
    several = [figures_over_seeds(found, network)] if len(wanted.range) > 1 else []
    return [*several, figures_over_epochs(found, network), paper_figures(printed)]


def spreads(wanted: Wanted) -> tuple[str, ...]:
    """What the plus-minus of ``figure_columns`` means."""
    if wanted.resources_only:
        return ()
    several = "± over seeds: standard deviation of the last epoch. " if len(wanted.range) > 1 else ""
    return (f"{several}± over epochs: as the paper's, of one run.",)


def numbers(found: Sequence[Result], network: str) -> dict[str, Any]:
    """What the runs of one row came to, for programs: means in the units of ``Result``, costs in the paper's."""
    slim, full = mean_costs(found, "slim"), mean_costs(found, "full")
    largest = [one.largest for one in found if one.largest is not None]
    told: dict[str, Any] = {
        "seeds": len(found),
        "sparsity": sum(one.sparsity for one in found) / len(found),
        "removed": sum(one.removed for one in found) / len(found),
        "largest": sum(largest) / len(largest) if largest else "",
        "kept_one": any(one.kept_one for one in found),
    }
    for which, costs in (("", slim), ("full_", full)):
        told |= {f"{which}{name}": getattr(costs, name) for name in ("params_mb", "gflops", "memory_mb")}
    for name in FIGURES[network] if found[0].figures else ():
        seeds, epochs = over_seeds(found, name), over_last_epochs(found, name)
        told |= {
            f"{name}_mean_over_seeds": seeds.mean,
            f"{name}_std_over_seeds": seeds.deviation,
            f"{name}_mean_of_last_epochs": epochs.mean,
            f"{name}_std_over_last_epochs": epochs.deviation,
        }
    return told


def _paper_cost(value: float | None, full: float, *, absolute: bool) -> str:
    """A printed cost with the reduction that follows from it; that alone where the paper's network is not ours."""
    if value is None:
        return ""
    return cost(value, full) if absolute else "" if value == full else f"({100 * (1 - value / full):.1f})"


def _figures(results: Sequence[Result], network: str, spread: object) -> str:
    if not results or not results[0].figures:
        return ""
    cells = []
    for name in FIGURES[network]:
        found: Spread = spread(name)  # type: ignore[operator]
        mean, deviation = (in_the_papers_unit(name, value) for value in (found.mean, found.deviation))
        cells.append(f"{FIGURE_NAMES[name]} {mean:.2f} ± {deviation:.2f}")
    return " · ".join(cells)
