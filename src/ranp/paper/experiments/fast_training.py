"""How fast a slim network learns that leaves room for larger batches (paper, ``fig:convergence``).

The deeper 3D-UNet on ShapeNet: full with one sample a step, by RANP-f with four. The paper lets both run for 40 hours;
here the full network makes four epochs, and RANP-f about as many as take the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranp.paper.experiments import texts
from ranp.paper.experiments.experiment import FULL, OURS, Cell, Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.scales import changes
from ranp.paper.experiments.studying import titled
from ranp.paper.published import quotes
from ranp.paper.training.runs import records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ranp.reporting.drawing import Curve

__all__ = ["FAST_TRAINING", "cell_of", "curve_of", "reached"]

_NETWORK, _TASK, _FIGURE = "unet3d-shapenet-23", "shapenet", "miou"
_SPARSITY = 0.8
"""As in the paper's table on a single GPU, from which the experiment goes on."""
_BATCH: Mapping[str, int] = {FULL: 1, OURS: 4}
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"size": 128, "learning_rate": 0.01},
    "cpu": {
        "options.widths": (16, 32, 48, 64),
        "train_count": 120,
        "learning_rate": 0.002,
        "schedule": "constant",
    },
}
_QUICK: Mapping[str, Any] = {"options.widths": (4, 8, 8, 8), "size": 16, "train_count": 8, "valid_count": 4}
_EPOCHS: Mapping[str, Mapping[str, int]] = {"paper": {FULL: 6, OURS: 26}, "cpu": {FULL: 4, OURS: 36}}
_WINDOWS = 8
"""Points of the loss in an epoch: a batch of one sample says little."""


def cell_of(wanted: Wanted, method: str) -> Cell:
    """The run of the full network, or that of RANP-f."""
    settings = (
        ("network", _NETWORK),
        *_SETTINGS[wanted.scale].items(),
        *(_QUICK.items() if wanted.quick else ()),
        ("batch", _BATCH[method]),
        ("epochs", _EPOCHS[wanted.scale][method] // (2 if wanted.quick else 1)),
    )
    slim = {"sparsity": _SPARSITY, **({"size": 64} if wanted.is_paper else {})} if method == OURS else {}
    return wanted.cell(_TASK, method, 0, settings=settings, **slim)


def _lines(wanted: Wanted) -> Iterator[Line]:
    for method in _BATCH:
        yield Line((cell_of(wanted, method),), network=_NETWORK, group="ShapeNet, {layers}-layer 3D-UNet")


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
    before = [record for record in result.epochs if record.get("valid") and record["seconds"] <= seconds]
    return float(before[-1]["valid"][_FIGURE]) if before else None


def _shortest(wanted: Wanted, line: Line, results: Results) -> float:
    """Seconds after which the shorter of the two runs was over."""
    return min(results[cell_of(wanted, method)].seconds for method in _BATCH)


def _record(line: Line) -> dict[str, Any]:
    (result,), batch = line.found, _BATCH[line.method]
    record: dict[str, Any] = {
        **line.key,
        "sparsity": result.sparsity if line.pruned else 0.0,
        "removed": result.removed,
        "kept_one": result.kept_one,
        "batch": batch,
        "gflops": result.slim.gflops,
        "full_gflops": result.full.gflops,
        "memory_mb": result.slim.memory_mb,
        "full_memory_mb": result.full.memory_mb,
        "memory_mb_of_batch": batch * result.slim.memory_mb,
    }
    if not result.epochs:
        return record
    epochs = len(result.epochs)
    return record | {
        "epochs": epochs,
        "paper_epochs": next(
            q.figures["epochs"] for q in quotes(_NETWORK) if q.method == line.method and "epochs" in q.figures
        ),
        "seconds": result.seconds,
        "seconds_per_epoch": result.seconds / epochs,
        "samples_per_second": batch * result.epochs[-1]["step"] / result.seconds,
        "miou": result.figures[_FIGURE],
        "equal_seconds": line.measured,
        "miou_at_equal_seconds": reached(result, line.measured),
    }


def _columns(wanted: Wanted, lines: Sequence[Line]) -> Iterator[Column]:
    def of(head: str, name: str, text: Callable[[Any], str]) -> Column:
        return Column(head, text=lambda line: text(_record(line)[name]))

    def miou(share: float | None) -> str:
        return "" if share is None else f"{100 * share:.2f}"

    yield from (texts.METHOD, texts.SPARSITY, texts.REMOVED, of("batch", "batch", str))
    yield from texts.costs(wanted, ("gflops", "memory_mb"), beside=False)
    yield of("of a batch, MB", "memory_mb_of_batch", "{:.2f}".format)
    if not wanted.resources_only:
        yield of("epochs", "epochs", str)
        yield of("paper's", "paper_epochs", "{:.0f}".format)
        yield of("s per epoch", "seconds_per_epoch", "{:.2f}".format)
        yield of("samples/s", "samples_per_second", "{:.1f}".format)
        yield of("mIoU % at the end", "miou", miou)
        yield of(f"mIoU % after {lines[0].measured:.0f} s", "miou_at_equal_seconds", miou)


def _figures(wanted: Wanted, lines: Sequence[Line], results: Results) -> dict[str, Figure]:
    from ranp.reporting.drawing import convergence

    if wanted.resources_only:
        return {}
    curves = {
        f"{line.name}, batch {_BATCH[line.method]}": curve_of(records(results.folder(line.cells[0]))) for line in lines
    }
    labels = {"loss": "training loss", _FIGURE: texts.axis_of(_FIGURE)}
    drawn = convergence(curves, y=("loss", _FIGURE), labels=labels)
    return {"fast-training": titled(drawn, f"{lines[0].group}: full and by RANP-f")}


def _cut(wanted: Wanted, lines: object) -> list[str]:
    return [changes((*_SETTINGS["cpu"].items(), *(_QUICK.items() if wanted.quick else ())))]


FAST_TRAINING = Experiment(
    **texts.words(
        "fast-training",
        quote=next(quote.words for quote in quotes(_NETWORK) if "epochs" in quote.figures),
        kept_one=lambda wanted, lines: [texts.KEPT_ONE] if any(line.kept_one for line in lines) else [],
        cut=_cut,
    ),
    lines=_lines,
    columns=_columns,
    record=_record,
    measure=_shortest,
    figures=_figures,
)
