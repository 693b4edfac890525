"""FLOPs against memory for every method and network, ours beside the paper's (paper, ``fig:fig_all``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.studying import titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SCATTER"]

_SHARES = {"gflops": "flops_share", "memory_mb": "memory_share"}


def _record(line: Line) -> dict[str, Any]:
    slim, full = line.slim, line.full
    record: dict[str, Any] = {
        **line.key,
        "seeds": len(line.found),
        "kept_one": line.kept_one,
        "gflops": slim.gflops,
        "memory_mb": slim.memory_mb,
        "flops_share": slim.flops / full.flops,
        "memory_share": slim.memory / full.memory,
    }
    for name, share in _SHARES.items():
        value = getattr(line.printed, name)
        record |= {f"paper_{name}": value, f"paper_{share}": value / getattr(line.whole, name)}
    return record


def _column(head: str, name: str, unit: float, digits: int) -> Column:
    return Column(head, text=lambda line: f"{_record(line)[name] * unit:.{digits}f}")


def _columns(wanted: Wanted, lines: Sequence[Line]) -> Iterator[Column]:
    yield texts.METHOD
    heads = {"gflops": (texts.flops_head(wanted), 1.0 if wanted.is_paper else 1000.0), "memory_mb": ("Memory MB", 1.0)}
    for name, (head, unit) in heads.items():
        yield _column(head, name, unit, 2)
        yield _column("of full %", _SHARES[name], 100, 1)
        yield _column("paper's", f"paper_{_SHARES[name]}", 100, 1)


def _figures(wanted: Wanted, lines: Sequence[Line], results: Results) -> dict[str, Figure]:
    from ranp.reporting.drawing import ScatterPoint, scatter

    def drawn(prefix: str, whose: str) -> Figure:
        records = [(line, _record(line)) for line in lines]
        points = [
            ScatterPoint(line.group, line.method, record[f"{prefix}gflops"], record[f"{prefix}memory_mb"])
            for line, record in records
        ]
        return titled(scatter(points), f"What each method leaves of FLOPs and memory: {whose}")

    return {"scatter": drawn("", "ours"), "scatter-paper": drawn("paper_", "the paper's table")}


SCATTER = Experiment(
    **texts.words("scatter"),
    lines=lambda wanted: main.lines_of(wanted, texts.METHODS),
    columns=_columns,
    record=_record,
    figures=_figures,
)
