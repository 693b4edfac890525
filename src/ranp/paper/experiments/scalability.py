"""Plans made on small samples, networks trained on large ones (paper, the claim of scalability and its setup).

The paper prunes BraTS at 96 voxels and trains at 128. Here a plan made at a small size stands beside one made at the
size of training: how far they agree, and what both networks cost and reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ranp.choosing.plan import Plan
from ranp.paper.experiments import main, texts
from ranp.paper.experiments.agreement import agreement, rank_correlation
from ranp.paper.experiments.experiment import FULL, OURS, Cell, Column, Experiment, Line, Results, Wanted
from ranp.paper.published import main as main_table
from ranp.paper.recipe import Setting
from ranp.scoring.scores import Scores

__all__ = ["SCALABILITY", "cell_of"]

_SMALL: Mapping[str, Mapping[str, int]] = {
    "paper": {"unet3d-shapenet": 32, "unet3d-brats": 96},
    "cpu": {"unet3d-shapenet": 8, "unet3d-brats": 16},
    "quick": {"unet3d-shapenet": 8, "unet3d-brats": 8},
}
_PRINTED = {"unet3d-shapenet": "large", "unet3d-brats": "small"}
"""Where the paper planned each network."""
_SHARED = {"shared": "channels in both %", "chance": "by chance %", "apart": "widths apart %"}


def cell_of(wanted: Wanted, network: str, row: str, seed: int) -> Cell:
    """A cell of the table: ``"full"``, or RANP-f by a plan made at the ``"large"`` size of training or a small one."""
    size = _SMALL["quick" if wanted.quick else wanted.scale][network] if row == "small" else None
    sized = {} if row == FULL else {"size": size}
    return main.cell_of(
        wanted, network, FULL if row == FULL else OURS, seed, settings=_settings(wanted, network), **sized
    )


def _settings(wanted: Wanted, network: str) -> tuple[Setting, ...]:
    """In a hurry ShapeNet is trained at the least size there is; a plan needs a smaller one."""
    return (("size", 16),) if wanted.quick and network == "unet3d-shapenet" else texts.NP[network][1]


def _lines(wanted: Wanted) -> Iterator[Line]:
    for network, planned in _PRINTED.items():
        printed = {row.method: row for row in main_table(network)}
        cells = {row: wanted.runs(partial(cell_of, wanted, network, row)) for row in (FULL, "large", "small")}
        trained = cells[FULL][0].recipe().size
        for row, own in cells.items():
            planned_at = {FULL: "", "large": str(trained), "small": str(own[0].size)}[row]
            yield Line(
                own,
                network=network,
                group=f"{texts.NETWORKS[network]}, trained at {trained}³",
                printed=printed[own[0].method] if row in (FULL, planned) else None,
                whole=printed[FULL],
                key={"network": network, "plan_size": planned_at, "train_size": trained},
                compared=cells["large"] if row == "small" else (),
            )


def _compared(wanted: Wanted, line: Line, results: Results) -> dict[str, list[float]]:
    """How far the plans of both sizes agree, seed by seed."""
    found: dict[str, list[float]] = {}
    for small, large in zip(line.cells, line.compared, strict=False):
        folders = results.folder(small), results.folder(large)
        agreed = agreement(*(Plan.load(folder / "plan.json") for folder in folders))
        for name in _SHARED:
            found.setdefault(name, []).append(getattr(agreed, name))
        if small.trains:
            scores = (Scores.load(folder / "scores.safetensors") for folder in folders)
            found.setdefault("correlation", []).append(rank_correlation(*scores))
    return found


def _mean(line: Line, name: str) -> float | str:
    values = line.measured.get(name)
    return sum(values) / len(values) if values else ""


def _column(head: str, name: str, text: Callable[[float], str]) -> Column:
    return Column(head, text=lambda line: text(float(_mean(line, name))) if line.measured.get(name) else "")


SCALABILITY = Experiment(
    **texts.words("scalability", cuts=texts.cuts(lambda wanted: _PRINTED, _settings)),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.METHOD,
        Column("planned at", text=lambda line: f"{line.key['plan_size']}³" if line.pruned else ""),
        *(_column(head, name, lambda share: f"{100 * share:.2f}") for name, head in _SHARED.items()),
        *(() if wanted.resources_only else (_column("rank correlation", "correlation", "{:.3f}".format),)),
        *texts.costs(wanted),
        *texts.merit(wanted),
    ),
    record=lambda line: {
        **line.key,
        "channels_shared": _mean(line, "shared"),
        "channels_shared_by_chance": _mean(line, "chance"),
        "widths_apart": _mean(line, "apart"),
        "rank_correlation": _mean(line, "correlation"),
        **texts.numbers(line),
    },
    measure=_compared,
)
