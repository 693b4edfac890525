from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from ranp.paper import tasks
from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.learning import LEARNING, cell_of
from ranp.paper.experiments.results import Result
from ranp.paper.experiments.running import Place, run_cell
from ranp.paper.guessing import trivial
from tests.support.crafted import result_of, rows_of
from tests.support.small_cells import cell


@pytest.mark.parametrize("name", tasks.names())
def test_networks_are_trained_by_the_recipe_of_their_task(name: str) -> None:
    shorter = {"sceneflow": {"epochs": 4, "train_count": 192}, "ucf101": {"epochs": 3, "milestones": (2,)}}
    recipe = cell_of(Wanted(), name, "ranp-f", 1).recipe()
    expected = replace(tasks.get(name).cpu, seed=1, tensorboard=False, **shorter.get(name, {}))
    assert recipe == replace(expected, train_count=2424 if name == "ucf101" else expected.train_count)
    assert len({cell_of(Wanted(), name, method, 1).recipe().train_count for method in ("full", "random")}) == 1


def test_a_sparsity_stays_below_the_largest_feasible_one_of_ranp_f(tmp_path: Path) -> None:
    place, ours = Place(tmp_path), cell("ranp-f", sparsity=None, trains=False)
    largest = run_cell(ours, place).sparsity
    for method in ("ranp-f", "random"):
        one = replace(cell(method, sparsity=None, trains=False), among=(ours,), at_most=0.9857)
        assert run_cell(one, place).sparsity == pytest.approx(0.95 * largest, abs=1e-4)
        assert run_cell(replace(one, at_most=0.1), place).sparsity == 0.1


@pytest.mark.slow
def test_differences_are_taken_seed_by_seed(tmp_path: Path) -> None:
    wanted = Wanted(seeds=2)
    results = Results(Place(tmp_path), {one: _with_main_figure(result_of(one)) for one in LEARNING.cells(wanted)})
    full, ours = (
        [results[cell_of(wanted, "brats", method, seed)] for seed in range(2)] for method in ("full", "ranp-f")
    )
    rows = rows_of(LEARNING.present(results, wanted).table, "brats")
    assert [row["network"] for row in rows] == ["full", "ranp-f", "random", "layerwise", "trivial"]
    against = [a.figures["dice"] - b.figures["dice"] for a, b in zip(ours, full, strict=True)]
    told = ", ".join(f"{value:+.4f}" for value in against)
    assert rows[1]["against full, by seed"] == f"{statistics.fmean(against):+.4f} ({told})"
    assert rows[1]["parameters"] == f"{round(sum(one.slim.params for one in ours) / 2):,}"
    guess = [trivial(one.cell.open(), one.cell.recipe(), "dice") for one in full]
    assert rows[4]["by seed"] == ", ".join(f"{value:.4f}" for value in guess)
    assert rows[4]["parameters"] == rows[0]["against full, by seed"] == ""


def _with_main_figure(result: Result) -> Result:
    main = result.cell.open().metrics.main
    epochs = tuple({**one, "valid": {**one["valid"], main: one["loss"]}} for one in result.epochs)
    return replace(result, epochs=epochs)
