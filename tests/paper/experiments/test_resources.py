from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.resources import RESOURCES
from ranp.paper.experiments.results import Costs
from ranp.paper.experiments.running import Place, run_all, run_cell
from ranp.paper.experiments.texts import NETWORKS
from ranp.paper.published import largest_sparsity
from tests.support.crafted import only, rows_of

SHAPENET = "unet3d-shapenet"


def test_nothing_is_trained_and_every_network_is_scored_once() -> None:
    for wanted, networks in ((Wanted(), 4), (Wanted(scale="paper"), 5)):
        cells = RESOURCES.cells(wanted)
        assert not any(cell.trains for cell in cells)
        assert len(cells) == len({cell.recipe().network for cell in cells}) == networks


@pytest.mark.slow
def test_a_sweep_ends_where_pruning_does_and_costs_what_pruned_networks_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(SHAPENET, monkeypatch)
    wanted, place = Wanted(quick=True), Place(tmp_path)
    (cell,) = RESOURCES.cells(wanted)
    (result,) = run_all([cell], place)
    shown = RESOURCES.present(Results(place, {cell: result}), wanted)
    table = shown.table
    ours, vanilla = rows_of(table, NETWORKS[SHAPENET])
    assert ours["largest %"] == f"{100 * (result.largest or 0):.2f}"
    assert (ours["paper's"], vanilla["paper's"]) == ("98.57", f"{largest_sparsity(SHAPENET, 'vanilla'):.2f}")
    for method in ("ranp-f", "vanilla"):
        steps = [one for one in table.records if one["method"] == method]
        assert [one["sparsity"] for one in steps] == sorted(one["sparsity"] for one in steps)
        feasible = [one for one in steps if one["feasible"]]
        assert feasible[0]["gflops"] == result.full.gflops
        for step in (feasible[len(feasible) // 2], feasible[-1]):
            pruned = run_cell(replace(cell, method=method, sparsity=step["sparsity"]), place)
            assert not pruned.kept_one
            assert step["removed"] == pytest.approx(pruned.removed)
            costs: Costs = pruned.slim
            assert (step["params_mb"], step["gflops"], step["memory_mb"]) == (
                costs.params_mb,
                costs.gflops,
                costs.memory_mb,
            )
        assert feasible[-1]["sparsity"] == feasible[-1]["largest"] == pytest.approx(pruned.largest)
        beyond = run_cell(replace(cell, method=method, sparsity=steps[-1]["sparsity"]), place)
        assert beyond.kept_one
    assert set(shown.figures) == {f"resources-{SHAPENET}"}
