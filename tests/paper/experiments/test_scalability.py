from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ranp.costs.measuring import measure
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.running import Place, run_cell
from ranp.paper.experiments.scalability import SCALABILITY, cell_of
from ranp.scoring.scores import Scores
from ranp.tracing.tracer import Tracer
from tests.support.numbered import by_column, numbered
from tests.support.small_plans import cut_plan

PAPER = Wanted(scale="paper", resources_only=True)


def test_sizes_are_the_papers_and_one_of_each_pair_is_the_main_tables() -> None:
    for wanted, sizes, shared in (
        (Wanted(), {"shapenet": (8, 16), "brats": (16, 24)}, ("large", "large")),
        (PAPER, {"shapenet": (32, 64), "brats": (96, 128)}, ("large", "small")),
    ):
        for (task, (small, large)), row in zip(sizes.items(), shared, strict=True):
            network = f"unet3d-{task}"
            cell = cell_of(wanted, network, "small", 0)
            assert (cell.size, cell.recipe().size) == (small, large)
            assert cell_of(wanted, network, "large", 0) == replace(cell, size=None)
            assert cell_of(wanted, network, row, 0) in MAIN.cells(wanted)
            assert cell_of(wanted, network, "full", 0) in MAIN.cells(wanted)


def test_ratios_of_costs_do_not_depend_on_the_size() -> None:
    from ranp.paper import models

    with torch.device("meta"):
        model = models.build("unet3d-shapenet")
    shares = []
    for size in (32, 64):
        costs = measure(Tracer(model, torch.empty(1, 1, size, size, size, device="meta")).trace(), "flops")
        shares.append([value / max(costs.values()) for value in costs.values()])
    assert shares[0] == pytest.approx(shares[1], rel=1e-12)


def test_agreement_is_read_from_the_plans_of_the_cells(tmp_path: Path) -> None:
    results = numbered(SCALABILITY, PAPER, tmp_path)
    small, large = cut_plan(a=(0, 1), b=(0, 5)), cut_plan(a=(1, 2), b=(0, 1, 2))
    for network in ("unet3d-shapenet", "unet3d-brats"):
        for row, made in (("small", small), ("large", large)):
            folder = results.folder(cell_of(PAPER, network, row, 0))
            folder.mkdir(parents=True)
            made.save(folder / "plan.json")
    table = SCALABILITY.present(results, PAPER).table
    rows = by_column(table)
    assert [row["planned at"][0] for row in rows] == ["", "64³", "32³", "", "128³", "96³"]
    assert [row["channels in both %"][0] for row in rows] == ["", "", "40.00"] * 2
    assert [row["widths apart %"][0] for row in rows] == ["", "", "20.00"] * 2
    printed = [bool(row["paper's"][1]) for row in rows]
    assert printed == [True, True, False, True, False, True]  # the paper planned BraTS at the small size alone
    assert rows[1]["paper's"][1] == "7.54 (96.8)"


def test_scores_are_taken_at_the_size_of_the_cell(tmp_path: Path) -> None:
    wanted = Wanted(quick=True, resources_only=True)
    place = Place(tmp_path)
    for row in ("small", "large"):
        run_cell(cell_of(wanted, "unet3d-brats", row, 0), place)
    kept = list((tmp_path / "scores").glob("*.safetensors"))
    assert len(kept) == 2
    assert Scores.load(kept[0]) != Scores.load(kept[1])
