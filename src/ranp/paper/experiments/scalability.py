"""Plans made on small samples, networks trained on large ones (paper, the claim of scalability and its setup).

The paper prunes BraTS at 96 voxels and trains at 128. Here a plan made at a small size stands beside one made at the
size of training: how far they agree, and what both networks cost and reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ranp.choosing.plan import Plan
from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import (
    KEPT_ONE,
    NETWORKS,
    NP,
    cost_cells,
    cost_columns,
    figure_cells,
    figure_columns,
    numbers,
    percent,
    seeds_of,
    spreads,
)
from ranp.paper.published import main as main_table
from ranp.scoring.scores import Scores

__all__ = ["SCALABILITY", "Agreement", "agreement", "cell_of", "rank_correlation"]

_NETWORKS = ("unet3d-shapenet", "unet3d-brats")
_SMALL: Mapping[str, Mapping[str, int]] = {
    "paper": {"unet3d-shapenet": 32, "unet3d-brats": 96},
    "cpu": {"unet3d-shapenet": 8, "unet3d-brats": 16},
    "quick": {"unet3d-shapenet": 8, "unet3d-brats": 8},
}
_ROWS = (FULL, "large", "small")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two plans of one network agree, over the layers that either of them cuts.

    Attributes:
        shared: Channels that both keep, as a share of those that the second keeps.
        chance: What that would be if the first kept as many channels of each layer, drawn blindly.
        apart: Differences of widths, added up, as a share of the widths of the second.
    """

    shared: float
    chance: float
    apart: float


def agreement(one: Plan, other: Plan) -> Agreement:
    """How far a plan agrees with another; 1, what follows from the widths, and 0 where neither cuts anything."""
    cut = [name for name, count in other.channels.items() if min(one.widths[name], other.widths[name]) < count]
    kept = sum(other.widths[name] for name in cut)
    if not kept:
        return Agreement(1.0, 1.0, 0.0)
    both = sum(len(set(one.kept[name]) & set(other.kept[name])) for name in cut)
    chance = sum(one.widths[name] * other.widths[name] / other.channels[name] for name in cut)
    apart = sum(abs(one.widths[name] - other.widths[name]) for name in cut)
    return Agreement(both / kept, chance / kept, apart / kept)


def rank_correlation(one: Scores, other: Scores) -> float:
    """Spearman's correlation of the raw scores inside each layer, its mean weighted by channels.

    Between layers scores differ by orders of magnitude at any size, so that over the whole network it would always be
    near 1. Layers of equal scores have no ranks and are left out.
    """
    total, weight = 0.0, 0
    for name in other:
        ranks = [_ranks(scores[name].numpy()) for scores in (one, other)]
        if all(np.ptp(values) > 0 for values in ranks):
            total += len(ranks[0]) * float(np.corrcoef(*ranks)[0, 1])
            weight += len(ranks[0])
    return total / weight if weight else 1.0


def _ranks(values: Any) -> Any:
    """Ranks from 0, equal values at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]


def cell_of(wanted: Wanted, network: str, row: str, seed: int) -> Cell:
    """A cell of the table: ``"full"``, or RANP-f by a plan made at the ``"large"`` size of training or a small one."""
    settings = _settings(wanted, network)
    if row == FULL:
        return main.cell_of(wanted, network, FULL, seed, settings=settings)
    size = _small(wanted, network) if row == "small" else None
    return main.cell_of(wanted, network, OURS, seed, settings=settings, size=size)


def _small(wanted: Wanted, network: str) -> int:
    return _SMALL["quick" if wanted.quick else wanted.scale][network]


def _settings(wanted: Wanted, network: str) -> tuple[str, ...]:
    """In a hurry ShapeNet is trained at the least size there is; a plan needs a smaller one."""
    return ("size=16",) if wanted.quick and network == "unet3d-shapenet" else NP[network][1]


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for seed in seeds_of(wanted):
        for network in _NETWORKS:
            for row in _ROWS:
                yield cell_of(wanted, network, row, seed)


def _present(results: Results, wanted: Wanted) -> Presentation:
    groups, records = [], []
    for network in _NETWORKS:
        printed = {row.method: row for row in main_table(network)}
        large = cell_of(wanted, network, "large", 0).recipe().size
        rows = []
        for row in _ROWS:
            cells = [cell_of(wanted, network, row, seed) for seed in seeds_of(wanted)]
            found = [results[cell] for cell in cells]
            compared = _compared(results, wanted, network) if row == "small" else {}
            size = {FULL: "", "large": f"{large}³", "small": f"{_small(wanted, network)}³"}[row]
            theirs = printed[FULL if row == FULL else OURS] if _is_printed(wanted, network, row) else None
            rows.append(
                (
                    ("Full" if row == FULL else "RANP-f") + ("†" if any(one.kept_one for one in found) else ""),
                    size,
                    *(percent(compared[name]) if name in compared else "" for name in ("shared", "chance", "apart")),
                    *_correlation_cell(wanted, compared),
                    *cost_cells(found, wanted, (theirs, printed[FULL])),
                    *figure_cells(found, network, wanted, theirs),
                )
            )
            means = {name: sum(values) / len(values) for name, values in compared.items()}
            records.append(
                {
                    "network": network,
                    "plan_size": size.removesuffix("³"),
                    "train_size": large,
                    "channels_shared": means.get("shared", ""),
                    "channels_shared_by_chance": means.get("chance", ""),
                    "widths_apart": means.get("apart", ""),
                    "rank_correlation": means.get("correlation", ""),
                    **numbers(found, network),
                }
            )
        groups.append(Group(f"{NETWORKS[network]}, trained at {large}³", tuple(rows)))
    agreeing = ["channels in both %", "by chance %", "widths apart %"]
    table = Table(
        "scalability",
        "Plans made at a small size",
        (
            Column("method", left=True),
            Column("planned at"),
            *map(Column, agreeing),
            *(() if wanted.resources_only else (Column("rank correlation"),)),
            *cost_columns(wanted),
            *figure_columns(wanted),
        ),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,))


def _compared(results: Results, wanted: Wanted, network: str) -> dict[str, list[float]]:
    """How far the plans of both sizes agree, seed by seed."""
    told: dict[str, list[float]] = {"shared": [], "chance": [], "apart": []}
    for seed in seeds_of(wanted):
        small, large = (results.folder(cell_of(wanted, network, row, seed)) for row in ("small", "large"))
        found = agreement(Plan.load(small / "plan.json"), Plan.load(large / "plan.json"))
        for name in ("shared", "chance", "apart"):
            told[name].append(getattr(found, name))
        if not wanted.resources_only:
            told.setdefault("correlation", []).append(rank_correlation(*map(_scores, (small, large))))
    return told


def _scores(folder: Path) -> Scores:
    return Scores.load(folder / "scores.safetensors")


def _correlation_cell(wanted: Wanted, compared: Mapping[str, Sequence[float]]) -> list[str]:
    if wanted.resources_only:
        return []
    values = compared.get("correlation")
    return [f"{sum(values) / len(values):.3f}" if values else ""]


def _is_printed(wanted: Wanted, network: str, row: str) -> bool:
    """Whether the paper has that row: it planned ShapeNet at the size of training, BraTS at the small one."""
    return row == FULL or row == {"unet3d-shapenet": "large", "unet3d-brats": "small"}[network]


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's networks at its sizes of training, scored on a few procedural samples instead of its data sets."
        if wanted.scale == "paper"
        else f"Small networks on procedural data, {len(seeds_of(wanted))} seed(s); the paper's columns are those of "
        "its own networks and data."
    )
    return (
        "RANP-f at the paper's sparsity with scores taken on samples of the size of training, and on small ones. "
        f"{how} In brackets: what is removed of the full network, in percent. Costs in the paper's convention, for one "
        "call at the size of training."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = [
        "Channels in both: those that both plans keep, of those that the plan of the large size keeps, in layers that "
        "either cuts. By chance: what that would be if channels were drawn blindly at the same widths. Widths apart: "
        "the differences of the layers' widths, added up, of all widths of the large plan.",
        "Reweighting sees the ratios of the layers' costs alone, which in a 3D-UNet are the same at every size that "
        "its poolings divide without rest.",
        "The paper plans ShapeNet at the size of training and BraTS at the small one; those rows have the paper's "
        "figures beside them.",
        KEPT_ONE,
    ]
    if not wanted.resources_only:
        notes.insert(1, "Rank correlation: Spearman's, of the raw scores inside each layer, mean weighted by channels.")
    if wanted.scale == "cpu":
        for name in _NETWORKS:
            own = "".join(f", but {setting}" for setting in _settings(wanted, name))
            notes.append(f"Cut: {told(wanted.scale, NP[name][0], quick=wanted.quick)}{own}.")
    return (*notes, *spreads(wanted))


SCALABILITY = Experiment(
    "scalability",
    "Plans made at a small size, networks trained at a large one",
    "scalability (introduction and experimental setup)",
    lambda wanted: tuple(_cells(wanted)),
    _present,
)
