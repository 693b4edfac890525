from __future__ import annotations

from dataclasses import replace

import pytest

from ranp.paper import published
from ranp.paper.experiments.equal_resources import EQUAL_RESOURCES, Resource, cell_of
from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.main import MAIN
from tests.support.numbered import by_column, numbered

PAPER = Wanted(scale="paper", resources_only=True)


@pytest.mark.parametrize("wanted", [Wanted(), PAPER], ids=["cpu", "paper"])
def test_networks_are_matched_with_the_main_tables_own(wanted: Wanted) -> None:
    cells = EQUAL_RESOURCES.cells(wanted)
    matched = [cell for cell in cells if cell.equal]
    assert {cell for cell in cells if not cell.equal} <= set(MAIN.cells(wanted))
    assert {(cell.task, cell.method, cell.equal) for cell in matched} == {
        (task, method, equal)
        for task in ("shapenet", "brats")
        for method in ("random", "layerwise")
        for equal in ("flops", "memory")
    }
    ours = {(cell.task, cell.seed): cell for cell in cells if cell.method == "ranp-f"}
    for cell in matched:
        partner = ours[cell.task, cell.seed]
        assert (cell.sparsity, cell.size, cell.settings) == (partner.sparsity, partner.size, partner.settings)


def test_it_is_told_how_close_they_came() -> None:
    wanted = Wanted(seeds=1)
    results = numbered(EQUAL_RESOURCES, wanted)
    table = EQUAL_RESOURCES.present(results, wanted).table
    rows = by_column(table)
    shares = []
    order: tuple[tuple[str, Resource], ...] = (
        ("random", "flops"),
        ("layerwise", "flops"),
        ("random", "memory"),
        ("layerwise", "memory"),
    )
    for at, network in ((1, "unet3d-shapenet"), (7, "unet3d-brats")):
        ours = results[cell_of(wanted, network, "ranp-f", None, 0)]
        for row, (method, equal) in zip(rows[at : at + 4], order, strict=True):
            own = results[cell_of(wanted, network, method, equal, 0)]
            shares.append(100 * getattr(own.slim, equal) / getattr(ours.slim, equal))
            assert row["of RANP-f's %"] == [f"{shares[-1]:.2f}"]
            assert row["equal"] == ["FLOPs" if equal == "flops" else "memory"]
    assert f"from {min(shares):.2f} to {max(shares):.2f} %" in table.notes[0]
    assert "last epoch, ± over seeds" not in [column.name for column in table.columns]  # there is one


def test_the_papers_rows_stand_beside_ours() -> None:
    table = EQUAL_RESOURCES.present(numbered(EQUAL_RESOURCES, PAPER), PAPER).table
    rows = by_column(table)
    printed = published.equal_resources("unet3d-brats")
    for row, theirs in zip(rows[7:12], printed, strict=True):
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
