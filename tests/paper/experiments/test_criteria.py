from __future__ import annotations

import statistics

import pytest

from ranp.paper import published
from ranp.paper.experiments.criteria import CRITERIA, cell_of
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN, networks
from tests.support.numbered import by_column, numbered

PAPER = Wanted(scale="paper", resources_only=True)


@pytest.mark.parametrize("wanted", [Wanted(), PAPER], ids=["cpu", "paper"])
def test_every_criterion_of_the_paper_is_pruned_at_its_own_largest_sparsity(wanted: Wanted) -> None:
    cells = CRITERIA.cells(wanted)
    for network in networks(wanted):
        for row in published.criteria(network):
            cell = cell_of(wanted, network, row.method, 0)
            assert cell in cells
            if row.method != "full":
                assert (cell.method, cell.criterion, cell.sparsity) == ("vanilla", row.method, None)
    assert {cell.criterion for cell in cells} - {None, "neuron-mask"} == {
        f"{kind}-{over}" for kind in ("mpmg", "mnmg") for over in ("sum", "mean", "max")
    }


def test_full_networks_are_those_of_the_main_table() -> None:
    full = {cell for cell in CRITERIA.cells(Wanted()) if cell.method == "full"}
    assert full == {cell for cell in MAIN.cells(Wanted()) if cell.method == "full"}
    assert len(CRITERIA.cells(Wanted(seeds=2))) == 2 * 4 * 7


def test_the_mask_is_scored_for_psm_at_the_papers_scale_alone() -> None:
    masked = [cell.task for cell in CRITERIA.cells(PAPER) if cell.criterion == "neuron-mask"]
    assert masked == ["sceneflow"]
    assert not any(cell.criterion == "neuron-mask" for cell in CRITERIA.cells(Wanted()))


def test_figures_stand_where_they_belong() -> None:
    wanted = Wanted(seeds=2)
    results = numbered(CRITERIA, wanted)
    table = CRITERIA.present(results, wanted).table
    rows = iter(by_column(table))
    for network in networks(wanted):
        for printed, row in zip(published.criteria(network), rows, strict=False):
            runs = [results[cell_of(wanted, network, printed.method, seed)] for seed in range(2)]
            assert row["criterion"][0].lower() == printed.method
            if printed.method != "full":
                assert row["largest sparsity %"] == [f"{50 * sum(run.sparsity for run in runs):.2f}"]
                assert row["paper's"][0] == f"{printed.sparsity:.2f}"
                removed = 1 - statistics.fmean(run.slim.flops for run in runs) / runs[0].full.flops
                assert row["MFLOPs"][0].endswith(f"({100 * removed:.1f})")
            figure = published.FIGURES[network][0]
            value = statistics.fmean(run.figures[figure] for run in runs) * (1 if figure == "epe" else 100)
            assert f" {value:.2f} ± " in row["last epoch, ± over seeds"][0]
            assert f" {printed.figures[figure].mean:.2f} ± " in row["paper's"][-1]


def test_reductions_of_the_paper_follow_from_its_costs() -> None:
    table = CRITERIA.present(numbered(CRITERIA, PAPER), PAPER).table
    best = next(row for row in by_column(table) if row["criterion"] == ["MPMG-sum"])
    assert best["paper's"] == ["78.24", "2.54 (95.9)", "55.69 (76.6)", "557.32 (44.1)"]
    assert not any("epoch" in column.name for column in table.columns)
    assert any("MNMG" in note for note in table.notes)
