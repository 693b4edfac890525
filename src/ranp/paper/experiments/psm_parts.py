"""What pruning leaves of the 2D and of the 3D layers of PSM (paper, ``tb:2d_pruning``): the main table's plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ranp.choosing.plan import Plan
from ranp.costs.measuring import profile
from ranp.costs.profiles import Profile
from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import FULL, Cell, Experiment, Line, Results, Wanted
from ranp.paper.experiments.results import Costs
from ranp.paper.published import psm_parts
from ranp.paper.training.network import make_full
from ranp.slimming.slim import apply_plan

__all__ = ["PSM_PARTS", "parts"]

_NETWORK = "psm-sceneflow"
_METHODS = (FULL, "snip", "random", "layerwise", "ranp-f")
_CRITERIA = ("mnmg-sum", "neuron-mask")
_DIMS: Mapping[str, int] = {"2d": 2, "3d": 3}


def parts(cell: Cell, plan: Plan | None) -> dict[str, Profile]:
    """What a plan leaves of each part of a cell's network: convolutions, norms and pooling, without activations."""
    task = cell.open()
    example = cell.example(task)
    full = make_full(task, cell.recipe())
    found = profile(full if plan is None else apply_plan(full, plan, example=example), example, convention="paper")
    return {part: found.part(dims=dims) for part, dims in _DIMS.items()}


def _lines(wanted: Wanted) -> Iterator[Line]:
    rows: list[tuple[str, str | None]] = [(method, None) for method in _METHODS]
    rows += [("ranp-f", criterion) for criterion in _CRITERIA if wanted.is_paper]
    for part, printed in psm_parts().items():
        by_method = {row.method: row for row in printed}
        for method, criterion in rows:
            if criterion is None:
                cells = tuple(main.cell_of(wanted, _NETWORK, method, seed) for seed in wanted.range)
            else:
                cells = (main.cell_of(wanted.costs_only(), _NETWORK, method, 0, criterion=criterion),)
            yield Line(
                cells,
                texts.METHODS[method] + (f", by {criterion}" if criterion else ""),
                _NETWORK,
                f"{part.upper()} layers",
                printed=None if criterion else by_method[method],
                whole=by_method[FULL],
                key={"part": part, "method": method, "criterion": criterion or ""},
                compared=(main.cell_of(wanted, _NETWORK, FULL, 0),),
            )


def _measured(wanted: Wanted, line: Line, results: Results) -> dict[str, tuple[Costs, Profile]]:
    """Of each part what the plans leave, the mean over seeds, and what the full network has."""
    found = [parts(cell, results.plan(cell)) for cell in line.cells]
    full = parts(line.compared[0], None)
    return {part: (Costs.mean([one[part] for one in found]), full[part]) for part in _DIMS}


PSM_PARTS = Experiment(
    **texts.words("psm-parts", cuts=texts.cuts(lambda wanted: (_NETWORK,))),
    lines=_lines,
    columns=lambda wanted, lines: (
        texts.METHOD,
        texts.SPARSITY,
        *texts.costs(wanted, of=lambda line: line.measured[line.key["part"]]),
    ),
    record=lambda line: {
        **line.key,
        "seeds": len(line.found),
        "sparsity": line.mean("sparsity"),
        **texts.cost_numbers(line.measured[line.key["part"]][0]),
        **texts.cost_numbers(line.measured[line.key["part"]][1], "full_"),
        **texts.papers_numbers(line),
    },
    measure=_measured,
)
