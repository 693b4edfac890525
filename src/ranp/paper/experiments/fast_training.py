"""How fast a slim network learns that leaves room for larger batches (paper, ``fig:convergence``).

The deeper 3D-UNet on ShapeNet: full with one sample a step, by RANP-f with four. The paper lets both run for 40 hours;
here the full network makes four epochs, and RANP-f about as many as take the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.studying import axis_of, titled
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import KEPT_ONE, METHODS, cost
from ranp.paper.published import Quote, quotes
from ranp.paper.training.runs import records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ranp.reporting.drawing import Curve

__all__ = ["FAST_TRAINING", "cell_of", "curve_of", "reached"]

_NETWORK, _TASK, _FIGURE = "unet3d-shapenet-23", "shapenet", "miou"
_SPARSITY = 0.8
"""As in the paper's table on a single GPU, from which the experiment goes on."""
_BATCH: Mapping[str, int] = {FULL: 1, OURS: 4}
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "paper": ("size=128", "learning_rate=0.01"),
    "cpu": (
        "options.widths=16,32,48,64",
        "train_count=120",
        "learning_rate=0.002",
        "schedule=constant",
    ),
}
_QUICK = ("options.widths=4,8,8,8", "size=16", "train_count=8", "valid_count=4")
_EPOCHS: Mapping[str, Mapping[str, int]] = {"paper": {FULL: 6, OURS: 26}, "cpu": {FULL: 4, OURS: 36}}
_WINDOWS = 8
"""Points of the loss in an epoch: a batch of one sample says little."""


def cell_of(wanted: Wanted, method: str) -> Cell:
    """The run of the full network, or that of RANP-f."""
    epochs = _EPOCHS[wanted.scale][method] // (2 if wanted.quick else 1)
    settings = (
        f"network={_NETWORK}",
        *_SETTINGS[wanted.scale],
        *(_QUICK if wanted.quick else ()),
        f"batch={_BATCH[method]}",
        f"epochs={epochs}",
    )
    slim = {"sparsity": _SPARSITY, **({"size": 64} if wanted.scale == "paper" else {})} if method == OURS else {}
    return wanted.cell(_TASK, method, 0, settings=settings, **slim)


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for method in _BATCH:
        yield cell_of(wanted, method)


def curve_of(journal: Sequence[Mapping[str, Any]]) -> Curve:
    """The curve of a journal: the loss in windows of an epoch, the figure of merit at the end of each."""
    from ranp.reporting.drawing import Curve

    valid = {record["epoch"]: record.get("valid", {}).get(_FIGURE) for record in journal if record["kind"] == "epoch"}
    points: list[tuple[float, float, float | None, float | None]] = []
    steps = [record for record in journal if record["kind"] == "step" and record["epoch"] in valid]
    for epoch, group in itertools.groupby(steps, key=lambda record: record["epoch"]):
        taken = list(group)
        ends = sorted({-(-len(taken) * window // _WINDOWS) for window in range(1, _WINDOWS + 1)})
        for begin, end in itertools.pairwise((0, *ends)):
            losses = [record["loss"] for record in taken[begin:end]]
            loss = None if None in losses else sum(losses) / len(losses)
            figure = valid[epoch] if end == len(taken) else None
            points.append((epoch - 1 + end / len(taken), taken[end - 1]["seconds"], loss, figure))
    epochs, seconds, loss_of, figure_of = zip(*points, strict=True)
    return Curve(epochs, seconds, {"loss": loss_of, _FIGURE: tuple(v if v is None else 100 * v for v in figure_of)})


def reached(result: Result, seconds: float) -> float | None:
    """The figure of merit at the last validation before that much training, as a share; None before the first."""
    told = [record for record in result.epochs if record.get("valid") and record["seconds"] <= seconds]
    return float(told[-1]["valid"][_FIGURE]) if told else None


def _present(results: Results, wanted: Wanted) -> Presentation:
    found = {method: results[cell_of(wanted, method)] for method in _BATCH}
    trained = not wanted.resources_only
    shortest = min(result.epochs[-1]["seconds"] for result in found.values()) if trained else 0.0
    rows = {method: _record(method, result, wanted, shortest) for method, result in found.items()}
    columns = [
        "sparsity %",
        "removed %",
        "batch",
        "GFLOPs" if wanted.scale == "paper" else "MFLOPs",
        "Memory MB",
        "of a batch, MB",
    ]
    if trained:
        columns += [
            "epochs",
            "paper's",
            "s per epoch",
            "samples/s",
            "mIoU % at the end",
            f"mIoU % after {shortest:.0f} s",
        ]
    table = Table(
        "fast-training",
        "Fast training with larger batches",
        (Column("method", left=True), *map(Column, columns)),
        (Group(_title(found[FULL]), tuple(_row(record, wanted) for record in rows.values())),),
        caption=_caption(wanted),
        notes=_notes(wanted, found),
        records=tuple(rows.values()),
    )
    return Presentation((table,), {"fast-training": _drawn(results, wanted)} if trained else {})


def _drawn(results: Results, wanted: Wanted) -> Figure:
    from ranp.reporting.drawing import convergence

    curves = {
        f"{METHODS[method]}, batch {batch}": curve_of(records(results.folder(cell_of(wanted, method))))
        for method, batch in _BATCH.items()
    }
    figure = convergence(curves, y=("loss", _FIGURE), labels={"loss": "training loss", _FIGURE: axis_of(_FIGURE)})
    return titled(figure, f"{_title(results[cell_of(wanted, FULL)])}: full and by RANP-f")


def _title(full: Result) -> str:
    return f"ShapeNet, {len(full.widths)}-layer 3D-UNet"


def _record(method: str, result: Result, wanted: Wanted, shortest: float) -> dict[str, Any]:
    batch = _BATCH[method]
    record: dict[str, Any] = {
        "network": _NETWORK,
        "method": method,
        "sparsity": result.sparsity if method != FULL else 0.0,
        "removed": result.removed,
        "kept_one": result.kept_one,
        "batch": batch,
        "gflops": result.slim.gflops,
        "full_gflops": result.full.gflops,
        "memory_mb": result.slim.memory_mb,
        "full_memory_mb": result.full.memory_mb,
        "memory_mb_of_batch": batch * result.slim.memory_mb,
    }
    if wanted.resources_only:
        return record
    epochs, seconds = len(result.epochs), float(result.epochs[-1]["seconds"])
    return record | {
        "epochs": epochs,
        "paper_epochs": next(
            q.figures["epochs"] for q in quotes(_NETWORK) if q.method == method and "epochs" in q.figures
        ),
        "seconds": seconds,
        "seconds_per_epoch": seconds / epochs,
        "samples_per_second": batch * result.epochs[-1]["step"] / seconds,
        "miou": result.figures[_FIGURE],
        "equal_seconds": shortest,
        "miou_at_equal_seconds": reached(result, shortest),
    }


def _row(record: Mapping[str, Any], wanted: Wanted) -> tuple[str, ...]:
    scale = 1.0 if wanted.scale == "paper" else 1000.0
    cells = [
        METHODS[record["method"]] + ("†" if record["kept_one"] else ""),
        "" if record["method"] == FULL else f"{100 * record['sparsity']:.2f}",
        "" if record["method"] == FULL else f"{100 * record['removed']:.2f}",
        str(record["batch"]),
        cost(record["gflops"] * scale, record["full_gflops"] * scale),
        cost(record["memory_mb"], record["full_memory_mb"]),
        f"{record['memory_mb_of_batch']:.2f}",
    ]
    if not wanted.resources_only:
        equal = record["miou_at_equal_seconds"]
        cells += [
            str(record["epochs"]),
            f"{record['paper_epochs']:.0f}",
            f"{record['seconds_per_epoch']:.2f}",
            f"{record['samples_per_second']:.1f}",
            f"{100 * record['miou']:.2f}",
            "" if equal is None else f"{100 * equal:.2f}",
        ]
    return tuple(cells)


def _caption(wanted: Wanted) -> str:
    network = (
        "The 23-layer 3D-UNet" if wanted.scale == "paper" else "A small 3D-UNet, deeper than that of the main table,"
    )
    text = (
        f"{network} on ShapeNet's task, full with batches of 1 and by RANP-f with batches of 4. In brackets: what is "
    )
    text += "removed of the full network, in percent."
    if wanted.resources_only:
        return text
    return text + (
        " Seconds are those of the steps of training, without validation, by the clock of a machine that may have had "
        "other work to do, so they repeat roughly only; the same time is that after which the shorter of the two runs "
        "was over. Loss: mean over an eighth of an epoch. One seed."
    )


def _quoted() -> list[Quote]:
    """What the paper's text tells of this experiment."""
    return [quote for quote in quotes(_NETWORK) if "epochs" in quote.figures]


def _notes(wanted: Wanted, found: Mapping[str, Result]) -> tuple[str, ...]:
    notes = [f"The paper, on 128³ voxels and one GPU, in 40 hours: “{_quoted()[0].words}”."]
    if found[OURS].kept_one:
        notes.append(KEPT_ONE)
    if wanted.scale == "cpu":
        changes = dict(setting.split("=", 1) for setting in (*_SETTINGS["cpu"], *(_QUICK if wanted.quick else ())))
        notes.append(f"Cut: as in the main table, but {', '.join(f'{k}={v}' for k, v in changes.items())}.")
    return tuple(notes)


FAST_TRAINING = Experiment(
    "fast-training", "Fast training with larger batches", "fig:convergence", lambda w: tuple(_cells(w)), _present
)
