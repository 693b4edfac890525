from __future__ import annotations

from dataclasses import replace

import pytest

from ranp.paper import published
from ranp.paper.experiments.equal_resources import EQUAL_RESOURCES, cell_of
from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.main import MAIN
from tests.support.numbered import by_column, numbered

METHODS = ("random", "layerwise", "snip", "weighted", "ranp-f", "flat", "power", "balanced")
PAPER = Wanted(scale="paper", resources_only=True)


@pytest.mark.parametrize("wanted", [Wanted(), PAPER], ids=["cpu", "paper"])
def test_networks_are_matched_with_the_main_tables_own(wanted: Wanted) -> None:
    cells = EQUAL_RESOURCES.cells(wanted)
    matched = [cell for cell in cells if cell.equal]
    assert {cell for cell in cells if not cell.equal} <= set(MAIN.cells(wanted))
    assert {(cell.task, cell.method, cell.equal) for cell in matched} == {
        (task, method, equal) for task in ("shapenet", "brats") for method in METHODS for equal in ("flops", "memory")
    }
    ours = {(cell.task, cell.seed): cell for cell in cells if cell.method == "ranp-f" and not cell.equal}
    for cell in matched:
        partner = ours[cell.task, cell.seed]
        assert (cell.sparsity, cell.size, cell.settings) == (partner.sparsity, partner.size, partner.settings)


def test_it_is_told_how_much_of_the_budget_is_used() -> None:
    wanted = Wanted(seeds=1)
    results = numbered(EQUAL_RESOURCES, wanted)
    shares = {cell: 0.995 + number / 1e4 for number, cell in enumerate(results.found) if cell.equal}
    used = {cell: replace(result, used=shares.get(cell)) for cell, result in results.found.items()}
    table = EQUAL_RESOURCES.present(Results(results.place, used), wanted).table
    rows = by_column(table)
    assert [row["equal"] for row in rows[:2]] == [[""], [""]]
    for at, network in ((2, "unet3d-shapenet"), (20, "unet3d-brats")):
        order = [(equal, method) for equal in ("flops", "memory") for method in METHODS]
        for row, (equal, method) in zip(rows[at : at + 16], order, strict=True):
            share = shares[cell_of(wanted, network, method, "flops" if equal == "flops" else "memory", 0)]
            assert row["of RANP-f's %"] == [f"{100 * share:.2f}"]
            assert row["equal"] == ["FLOPs" if equal == "flops" else "memory"]
            assert row["narrowest"] == ["1"]
    reach = (100 * share for share in (min(shares.values()), max(shares.values())))
    assert "from {:.2f} to {:.2f} %".format(*reach) in table.notes[0]
    assert "last epoch, ± over seeds" not in [column.name for column in table.columns]  # there is one


def test_the_papers_rows_stand_beside_ours() -> None:
    table = EQUAL_RESOURCES.present(numbered(EQUAL_RESOURCES, PAPER), PAPER).table
    rows = by_column(table)
    printed = published.equal_resources("unet3d-brats")
    ours = [rows[20], rows[21], rows[28], rows[29], rows[19]]  # random and layer-wise, twice; RANP-f
    for row, theirs in zip(ours, printed, strict=True):
        assert row["paper's"][0] == f"{theirs.sparsity:.2f}"
        assert row["paper's"][1].split()[0] == f"{theirs.params_mb:.2f}"
        assert row["paper's"][2].split()[0] == f"{theirs.gflops:.2f}"
        assert row["paper's"][3].split()[0] == f"{theirs.memory_mb:.2f}"


def test_a_network_that_had_to_keep_channels_is_marked() -> None:
    wanted = Wanted(seeds=2)
    results = numbered(EQUAL_RESOURCES, wanted)
    cell = cell_of(wanted, "unet3d-brats", "random", "memory", 1)
    marked = Results(results.place, {**results.found, cell: replace(results[cell], kept_one=True)})
    table = EQUAL_RESOURCES.present(marked, wanted).table
    assert [row["method"][0] for row in by_column(table)].count("Random NP†") == 1
