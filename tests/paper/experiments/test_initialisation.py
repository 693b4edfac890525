from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ranp.paper import published
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.initialisation import INITIALISATION, ROWS, cell_of
from ranp.paper.experiments.main import MAIN, networks
from ranp.paper.experiments.running import Place, run_cell
from tests.support.numbered import by_column, numbered
from tests.support.small_cells import cell

PAPER = Wanted(scale="paper", resources_only=True)


@pytest.mark.slow
def test_four_cells_of_a_network_share_the_least_of_their_largest_sparsities(tmp_path: Path) -> None:
    usual = cell().settings
    four = tuple(
        cell(method, sparsity=None, trains=False, settings=settings)
        for method in ("vanilla", "ranp-f")
        for settings in (usual, (*usual, ("init", "orthogonal")))
    )
    place = Place(tmp_path)
    alone = [run_cell(one, place) for one in four]
    least = min(one.sparsity for one in alone)
    assert len({one.sparsity for one in alone}) > 1
    for one, own in zip(four, alone, strict=True):
        found = run_cell(replace(one, among=four), place)
        assert found.sparsity == least
        assert found.largest == own.sparsity
        assert not found.kept_one


def test_cells_told_plainly_come_back_with_those_they_are_measured_by() -> None:
    for one in INITIALISATION.cells(Wanted()):
        again = Cell.from_dict(one.to_dict())
        assert again == one
        assert again.id == one.id
    assert "among" not in cell().to_dict()


def test_nothing_is_trained_at_any_scale() -> None:
    for wanted in (Wanted(), PAPER):
        cells = INITIALISATION.cells(wanted)
        assert not any(one.trains for one in cells)
        for network in networks(wanted):
            for row in published.initialisation(network):
                one = cell_of(wanted, network, row.method, row.init)
                assert one in cells
                assert row.init is None or one.recipe().init == row.init
                assert len(one.among) == (0 if row.init is None else 4)
                assert all(other.recipe().network == network for other in one.among)
    assert cell_of(PAPER, "i3d-ucf101", "full", None) in MAIN.cells(PAPER)


def test_figures_stand_where_they_belong() -> None:
    results = numbered(INITIALISATION, PAPER)
    table = INITIALISATION.present(results, PAPER).table
    rows = iter(by_column(table))
    for network in networks(PAPER):
        for printed, (method, init) in zip(published.initialisation(network), ROWS, strict=True):
            row, result = next(rows), results[cell_of(PAPER, network, method, init)]
            assert (printed.method, printed.init) == (method, init)
            assert row["GFLOPs"][0].split()[0] == f"{result.slim.gflops:.2f}"
            assert row["paper's"][2].split()[0] == f"{printed.gflops:.2f}"
            if init is not None:
                assert row["sparsity %"] == [f"{100 * result.sparsity:.2f}"]
                assert row["paper's"][0] == f"{printed.sparsity:.2f}"
