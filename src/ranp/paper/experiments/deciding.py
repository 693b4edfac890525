"""Which channels a cell's network keeps: scores from the shelf, the sparsity as the cell says, the plan verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ranp.choosing.methods import resolve
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection
from ranp.costs.quantities import QUANTITIES, Quantity
from ranp.options import Options
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.shelf import Shelf
from ranp.paper.training.network import make_full, options_of
from ranp.paper.training.runs import Setting
from ranp.paper.training.team import Team
from ranp.progress import Labelled
from ranp.pruning import prune_scored
from ranp.reporting.pruned import Pruned
from ranp.scoring.score import score_many
from ranp.scoring.scores import Scores
from ranp.slimming.slim import apply_plan
from ranp.tracing.trace import Trace
from ranp.tracing.tracer import Tracer

__all__ = ["OURS", "Decision", "scores_of"]

OURS = "ranp-f"
_SHARE = 0.95
"""Of the largest feasible sparsity, where it shall not be reached."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Prunes the network of a cell, as ``training.train`` asks for it.

    A method that would leave a layer without channels at the wanted sparsity keeps the best one of each coupled set
    instead (``exact``); the plan says so, and which sparsity would have been feasible (``largest``).

    Attributes:
        cell: What is wanted.
        shelf: Where scores are kept.
        together: Criteria that are scored along with the cell's own, because other cells will ask for them.
    """

    cell: Cell
    shelf: Shelf
    together: Sequence[str] = ()

    def prune(self, full: nn.Module, setting: Setting) -> Pruned:
        """The slim network of the cell.

        Raises:
            InfeasibleError: No sparsity is feasible.
        """
        cell, task, recipe = self.cell, setting.task, setting.recipe
        how = resolve(cell.method)
        tracer = Tracer(full, setting.example)
        trace = tracer.trace()
        raw = scores_of(cell, full, setting, self.shelf, trace, self.together)
        own = self._selection(cell, full, setting, trace, raw)
        largest = own.max_sparsity()
        sparsity = largest if cell.sparsity is None else cell.sparsity
        if cell.sparsity is None and cell.among:
            sparsity = min(self._largest_of(other, setting.team, setting.progress) for other in cell.among)
        if cell.sparsity is None and cell.at_most is not None:
            sparsity = min(cell.at_most, int(_SHARE * sparsity * 1e4) / 1e4)
        amount: dict[str, Any]
        if cell.equal is not None:
            ours = self._selection(replace(cell, method=OURS, criterion=None), full, setting, trace)
            plan = ours.plan(sparsity, exact=not ours.feasible(sparsity))
            taken = _taken(full, plan, setting.example, QUANTITIES.get(cell.equal))
            amount = {"budget": taken, "convention": "true"}
        else:
            if cell.method == "snip":  # a share of weights: there is no share of channels to make exact
                sparsity = min(sparsity, largest)
            kept_one = not own.feasible(sparsity)
            share = min(sparsity, own.max_share()) if kept_one else sparsity
            amount = {"sparsity": share, "exact": kept_one, "convention": "paper"}
        return prune_scored(
            full,
            raw,
            tracer,
            trace,
            Options(
                **amount,
                method=replace(how, floor=cell.floor),
                strength=task.strength,
                init=recipe.init,
                seed=recipe.seed,
            ),
            costs=how.costs(trace, convention="paper"),
            settings={"largest": largest, "task": task.name},
        )

    def to_dict(self) -> dict[str, Any]:
        """The cell; ``method`` and ``sparsity`` are named for messages even where they are defaults."""
        return {**self.cell.to_dict(), "method": self.cell.method, "sparsity": self.cell.sparsity}

    def of_cell(self, team: Team, progress: Labelled | None) -> Pruned:
        """The slim network of the cell where nothing is trained, or another cell is."""
        setting = self.cell.setting(team, progress)
        return self.prune(make_full(setting.task, setting.recipe), setting)

    def _selection(
        self, cell: Cell, full: nn.Module, setting: Setting, trace: Trace, raw: Scores | None = None
    ) -> Selection:
        """What a cell chooses from, on the network and in the setting of its own."""
        method = resolve(cell.method)
        scores = raw or scores_of(cell, full, setting, self.shelf, trace, self.together)
        weighed = method.weigh(scores, method.costs(trace, convention="paper"), setting.task.strength)
        return Selection.of(weighed, trace, scope=method.scope, seed=setting.recipe.seed)

    def _largest_of(self, cell: Cell, team: Team, progress: Labelled | None) -> float:
        """The largest feasible sparsity of another cell, on a network of its own."""
        setting = cell.setting(team, progress)
        full = make_full(setting.task, setting.recipe).to(team.device)
        return self._selection(cell, full, setting, Tracer(full, setting.example).trace()).max_sparsity()


def scores_of(
    cell: Cell, full: nn.Module, setting: Setting, shelf: Shelf, trace: Trace, together: Sequence[str] = ()
) -> Scores:
    """The raw scores of a cell's network.

    Args:
        cell: Criterion and batches.
        full: The network.
        setting: Task and recipe.
        shelf: Where scores are kept.
        trace: Of the network.
        together: Criteria to score along with it if anything has to be scored.
    """
    task, recipe = setting.task, setting.recipe
    criterion = cell.criterion or resolve(cell.method).criterion
    size = cell.size or recipe.size
    what = {
        "task": task.name,
        "data": cell.data,
        "network": recipe.network,
        "options": {name: repr(value) for name, value in options_of(task, recipe).items()},
        "init": recipe.init,
        "seed": recipe.seed,
        "size": size,
        "batches": cell.batches,
        "batch": cell.batch,
        "ranks": setting.team.size,
    }
    if criterion == "random":
        return score_many(full, (), task.loss, (criterion,), trace=trace, seed=recipe.seed)[criterion]

    def make(criteria: Sequence[str]) -> dict[str, Scores]:
        batches = setting.batches(size, cell.batches, cell.batch, f"size={size}")
        return score_many(full, batches, task.loss, criteria, trace=trace, seed=recipe.seed, progress=setting.scoring)

    wanted = dict.fromkeys((criterion, *together))
    return shelf.scores(what, tuple(wanted), make)[criterion]


def _taken(full: nn.Module, plan: Plan, example: Any, quantity: Quantity) -> str:
    """What the network of a plan takes, as a budget, in torch's count."""
    assert quantity.of_network is not None  # what a table makes equal is counted
    return quantity.exactly(quantity.of_network(apply_plan(full, plan, example=example), example, "true"))
