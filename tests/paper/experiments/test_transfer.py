from __future__ import annotations

from pathlib import Path

import pytest

from ranp.choosing.plan import Plan
from ranp.paper import published
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.running import Place, run_cell
from ranp.paper.experiments.transfer import TRANSFER, cell_of
from tests.support.numbered import by_column, numbered

PAPER = Wanted(scale="paper", resources_only=True)
QUICK = Wanted(quick=True, resources_only=True)


@pytest.mark.parametrize("wanted", [Wanted(), PAPER, QUICK], ids=["cpu", "paper", "quick"])
def test_plans_cross_over_between_networks_of_equal_width(wanted: Wanted) -> None:
    for task, other in (("shapenet", "brats"), ("brats", "shapenet")):
        moved = cell_of(wanted, task, "transferred", 0)
        assert moved.origin == cell_of(wanted, other, "ranp-f", 0)
        assert moved.origin is not None
        assert moved.origin.task == other
        assert {moved.sparsity, moved.origin.sparsity} == {0.8}
        networks = [cell.recipe() for cell in (moved, moved.origin)]
        if wanted.scale == "paper":
            assert {recipe.network for recipe in networks} == {"unet3d-shapenet-23", "unet3d-brats-23"}
            assert [dict(recipe.options) for recipe in networks] == [{}, {}]
        else:
            assert networks[0].options["widths"] == networks[1].options["widths"]


def test_the_full_network_of_brats_is_that_of_the_main_table() -> None:
    assert cell_of(Wanted(), "brats", "full", 1) in MAIN.cells(Wanted())
    assert len(TRANSFER.cells(Wanted(seeds=1))) == 6


def test_figures_stand_where_they_belong() -> None:
    wanted = Wanted(seeds=1)
    results = numbered(TRANSFER, wanted)
    table = TRANSFER.present(results, wanted).table
    rows = by_column(table)
    assert [row["pruned on"][0] for row in rows] == ["", "shapenet", "brats", "", "brats", "shapenet"]
    for task, shown in (("shapenet", rows[:3]), ("brats", rows[3:])):
        printed = published.transfer()[f"unet3d-{task}-23"]
        for name, row, theirs in zip(("full", "ranp-f", "transferred"), shown, printed, strict=True):
            result = results[cell_of(wanted, task, name, 0)]
            assert row["MFLOPs"][0].split()[0] == f"{1000 * result.slim.gflops:.2f}"
            for value in theirs.figures.values():
                assert str(value) in row["paper's"][0]


def test_a_transferred_network_has_the_widths_of_the_other_task(tmp_path: Path) -> None:
    place = Place(tmp_path)
    moved, own = (cell_of(QUICK, "shapenet", "transferred", 0), cell_of(QUICK, "brats", "ranp-f", 0))
    found, there = run_cell(moved, place), run_cell(own, place)
    plans = [Plan.load(place.of(cell) / "plan.json") for cell in (moved, own)]
    assert plans[0].kept == plans[1].kept
    inner = [name for name in there.widths if name != "head"]
    assert [found.widths[name] for name in inner] == [there.widths[name] for name in inner]
    assert found.slim.flops < found.full.flops
    assert found.full.flops != there.full.flops  # costs are those of the task that is trained
