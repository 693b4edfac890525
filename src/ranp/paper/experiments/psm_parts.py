"""What pruning leaves of the 2D and of the 3D layers of PSM (paper, ``tb:2d_pruning``): the main table's plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ranp.choosing.plan import Plan
from ranp.costs.measuring import profile
from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.results import Costs
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import KEPT_ONE, METHODS, cost, percent, seeds_of
from ranp.paper.published import Row, psm_parts
from ranp.paper.published.resource_tables import Part
from ranp.paper.training.network import make_full
from ranp.slimming.slim import apply_plan

__all__ = ["PSM_PARTS", "parts"]

_NETWORK = "psm-sceneflow"
_METHODS = (FULL, "snip", "random", "layerwise", "ranp-f")
_CRITERIA = ("mnmg-sum", "neuron-mask")
_TITLES: dict[Part, str] = {"2d": "2D layers", "3d": "3D layers"}
_DIMS: dict[Part, int] = {"2d": 2, "3d": 3}


@dataclass(frozen=True, slots=True)
class _Line:
    """A row: a method, and the criterion where it is not the method's own."""

    method: str
    criterion: str | None = None

    def cell(self, wanted: Wanted, seed: int) -> Cell:
        """A cell of the main table."""
        if self.criterion is None:
            return main.cell_of(wanted, _NETWORK, self.method, seed)
        return main.cell_of(wanted.costs_only(), _NETWORK, self.method, 0, criterion=self.criterion)

    @property
    def name(self) -> str:
        """As the table calls it."""
        return METHODS[self.method] + (f", by {self.criterion}" if self.criterion else "")


def parts(cell: Cell, plan: Plan | None) -> dict[Part, Costs]:
    """What a plan leaves of each part of a cell's network: convolutions, norms and pooling, without activations."""
    task = cell.open()
    example = cell.example(task)
    full = make_full(task, cell.recipe())
    figures = profile(full if plan is None else apply_plan(full, plan, example=example), example, convention="paper")
    found = {part: figures.part(dims=dims) for part, dims in _DIMS.items()}
    return {part: Costs(each.params, each.flops, each.memory) for part, each in found.items()}


def _lines(wanted: Wanted) -> tuple[_Line, ...]:
    more = _CRITERIA if wanted.scale == "paper" else ()
    return (*map(_Line, _METHODS), *(_Line("ranp-f", criterion) for criterion in more))


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for seed in seeds_of(wanted):
        for line in _lines(wanted):
            yield line.cell(wanted, seed)


def _present(results: Results, wanted: Wanted) -> Presentation:
    found: dict[_Line, list[dict[Part, Costs]]] = {}
    for line in _lines(wanted):
        cells = dict.fromkeys(line.cell(wanted, seed) for seed in seeds_of(wanted))
        plans = {cell: None if line.method == FULL else Plan.load(results.folder(cell) / "plan.json") for cell in cells}
        found[line] = [parts(cell, plan) for cell, plan in plans.items()]
    printed = {part: {row.method: row for row in rows} for part, rows in psm_parts().items()}
    groups, records = [], []
    for part, title in _TITLES.items():
        full = found[_Line(FULL)][0][part]
        rows = []
        for line, each in found.items():
            costs = _mean([one[part] for one in each])
            theirs = printed[part][line.method] if line.criterion is None else None
            runs = [results[cell] for cell in dict.fromkeys(line.cell(wanted, seed) for seed in seeds_of(wanted))]
            rows.append(
                (
                    line.name + ("†" if any(one.kept_one for one in runs) else ""),
                    "" if line.method == FULL else percent([one.sparsity for one in runs]),
                    *_cost_cells(costs, full, theirs, printed[part][FULL], wanted),
                )
            )
            records.append(
                {
                    "part": part,
                    "method": line.method,
                    "criterion": line.criterion or "",
                    "seeds": len(runs),
                    "sparsity": sum(one.sparsity for one in runs) / len(runs),
                    **{name: getattr(costs, name) for name in ("params_mb", "gflops", "memory_mb")},
                    **{f"full_{name}": getattr(full, name) for name in ("params_mb", "gflops", "memory_mb")},
                    "paper_params_mb": theirs.params_mb if theirs else "",
                    "paper_gflops": theirs.gflops if theirs else "",
                    "paper_memory_mb": theirs.memory_mb if theirs else "",
                }
            )
        groups.append(Group(title, tuple(rows)))
    flops = "GFLOPs" if wanted.scale == "paper" else "MFLOPs"
    names = ("sparsity %", "Param MB", "paper's", flops, "paper's", "Memory MB", "paper's")
    table = Table(
        "psm-parts",
        "2D and 3D layers of PSM",
        (Column("method", left=True), *map(Column, names)),
        tuple(groups),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,))


def _mean(found: Sequence[Costs]) -> Costs:
    params, flops, memory = (
        round(sum(getattr(one, name) for one in found) / len(found)) for name in ("params", "flops", "memory")
    )
    return Costs(params, flops, memory)


def _cost_cells(costs: Costs, full: Costs, row: Row | None, whole: Row, wanted: Wanted) -> Iterator[str]:
    for name in ("params_mb", "gflops", "memory_mb"):
        unit = 1000.0 if name == "gflops" and wanted.scale != "paper" else 1.0
        yield cost(getattr(costs, name) * unit, getattr(full, name) * unit)
        theirs, of = getattr(row, name, None), getattr(whole, name)
        text = "" if theirs is None else cost(theirs, of)
        yield text if wanted.scale == "paper" else text.partition(" ")[2]


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's network at its size, scored on a few procedural samples instead of SceneFlow."
        if wanted.scale == "paper"
        else f"A small network, means over {len(seeds_of(wanted))} seed(s), beside the reductions of the paper's."
    )
    return (
        "What the plans of the main table leave of the 2D layers of PSM, which see both images, and of its 3D layers. "
        f"{how} In brackets: what is removed of that part, in percent. Costs in the paper's convention, for one call, "
        "of convolutions, norms and pooling; activations are in neither part, so memory does not add up to the whole."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    notes = [
        KEPT_ONE,
        "SNIP's sparsity is a share of single weights, at most the largest feasible one.",
    ]
    if wanted.scale == "paper":
        notes.append(
            "The paper's RANP-f rests on MNMG-sum here. Its authors took the inputs of a transposed convolution for "
            "its neurons, and count a pruned one with inputs and outputs the other way round; here its outputs are its "
            "neurons, so the random and layer-wise rows, which need no data, differ from the paper's too."
        )
    else:
        notes.append(f"Cut: {told(wanted.scale, 'sceneflow', quick=wanted.quick)}.")
    return tuple(notes)


PSM_PARTS = Experiment(
    "psm-parts",
    "What is left of the 2D and the 3D layers of PSM",
    "tb:2d_pruning",
    lambda wanted: tuple(_cells(wanted)),
    _present,
)
