"""What slim networks learn, seed by seed against the full one, at a sparsity that RANP-f can have.

Not in the paper: its sparsities empty layers of small networks. Each task's own ``cpu`` recipe, a little shorter for
two of them; all networks of a seed see the same samples in the same order, so differences are taken seed by seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ranp.paper import tasks
from ranp.paper.experiments import texts
from ranp.paper.experiments.experiment import FULL, OURS, Cell, Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.scales import CPU
from ranp.paper.guessing import trivial
from ranp.paper.recipe import Setting
from ranp.paper.training.network import options_of

__all__ = ["LEARNING", "cell_of"]

_SHORT: Mapping[str, Mapping[str, Any]] = {
    "sceneflow": {"epochs": 4, "train_count": 192},
    "ucf101": {"epochs": 3, "milestones": (2,), "train_count": 2424},
}
"""Where the ``cpu`` recipe is cut: so many cells are an hour on two cores as it is."""
_TRIVIAL = "trivial"


def cell_of(wanted: Wanted, name: str, method: str, seed: int) -> Cell:
    """A cell of a task: at the paper's sparsity of RANP-f, or at .95 of the largest feasible one where that is less."""
    settings = () if wanted.quick or wanted.is_paper else _settings(name)
    full = wanted.cell(name, FULL, seed, settings=settings)
    if method == FULL:
        return full
    scored = {"settings": settings, "sparsity": None, "batches": 10, "batch": 1}
    ours = wanted.cell(name, OURS, seed, **scored)
    return wanted.cell(name, method, seed, **scored, among=(ours,), at_most=tasks.get(name).sparsity)


def _settings(name: str) -> tuple[Setting, ...]:
    """What the small scale of the other tables changes of the task's recipe is as the recipe has it."""
    recipe = tasks.get(name).cpu
    values = {**{f"options.{key}": value for key, value in recipe.options.items()}, **recipe.to_dict()}
    own = {key: tuple(value) if isinstance(value := values[key], list) else value for key in CPU[name]}
    return tuple({**own, **_SHORT.get(name, {})}.items())


def _lines(wanted: Wanted) -> Iterator[Line]:
    trained = () if wanted.resources_only else (_TRIVIAL,)
    for name in tasks.names():
        for row in (FULL, OURS, "random", "layerwise", *trained):
            full = wanted.runs(partial(cell_of, wanted, name, FULL))
            own = full if row in (FULL, _TRIVIAL) else wanted.runs(partial(cell_of, wanted, name, row))
            key = {"task": name, "network": row}
            yield Line(own, row, group=name, key=key, compared=() if own is full else full)


def _figures(wanted: Wanted, line: Line, results: Results) -> dict[str, Any]:
    """The main figure of each seed, that of the full network, and that of the best answer without looking."""
    main = tasks.get(line.group).metrics.main
    if wanted.resources_only:
        return {"name": main}
    own = [results[cell].figures[main] for cell in line.cells]
    against = [value - results[full].figures[main] for value, full in zip(own, line.compared, strict=False)]
    guess = [] if line.pruned else [trivial(cell.open(), cell.recipe(), main) for cell in line.cells]
    return {"name": main, "own": own, "against": against, _TRIVIAL: guess}


def _values(line: Line) -> list[float]:
    values: list[float] = line.measured[_TRIVIAL if line.name == _TRIVIAL else "own"]
    return values


def _columns(wanted: Wanted, lines: Sequence[Line]) -> Iterator[Column]:
    def of(head: str, text: Any) -> Column:
        return Column(head, text=lambda line: "" if line.name == _TRIVIAL else text(line))

    yield texts.name("network")
    yield of("channels removed", lambda line: f"{line.mean('removed'):.1%}")
    yield of("parameters", lambda line: f"{line.slim.params:,}")
    yield of("MFLOPs", lambda line: f"{line.slim.flops / 1e6:.1f}")
    yield of("memory MB", lambda line: f"{line.slim.memory_mb:.2f}")
    if not wanted.resources_only:
        yield Column("figure", left=True, text=lambda line: str(line.measured["name"]))
        yield Column("mean", text=lambda line: f"{statistics.fmean(_values(line)):.4f}")
        yield Column("by seed", text=lambda line: ", ".join(f"{value:.4f}" for value in _values(line)))
        yield of("against full, by seed", _against)


def _against(line: Line) -> str:
    found = line.measured["against"]
    return f"{statistics.fmean(found):+.4f} ({', '.join(f'{value:+.4f}' for value in found)})" if found else ""


def _recipes(wanted: Wanted, lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        if line.name == OURS:
            cell, task = line.cells[0], line.cells[0].open()
            recipe = cell.recipe()
            options = ", ".join(f"{name}={value}" for name, value in options_of(task, recipe).items())
            better = "higher" if task.metrics.higher_is_better else "lower"
            sparsities = ", ".join(f"{one.sparsity:.4f}" for one in line.found)
            yield (
                f"{task.name}: `{recipe.network}` with {options}; {recipe.epochs} epochs of {recipe.train_count} "
                f"samples of size {recipe.size}, batch {recipe.batch}; {task.source.summary or 'procedural samples'}. "
                f"{task.metrics.main}: {better} is better. Sparsity {sparsities} (the paper: {task.sparsity})."
            )


LEARNING = Experiment(
    **texts.words("learning", recipes=_recipes),
    lines=_lines,
    columns=_columns,
    record=lambda line: {
        **line.key,
        **({} if line.name == _TRIVIAL else {"sparsity": line.mean("sparsity"), **texts.cost_numbers(line.slim)}),
        **({f"seed_{at}": value for at, value in enumerate(_values(line))} if "own" in line.measured else {}),
    },
    measure=_figures,
)
