from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ranp.choosing.plan import Plan
from ranp.paper import published
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN, cell_of
from ranp.paper.experiments.psm_parts import PSM_PARTS, parts
from ranp.paper.experiments.running import Place, run_cell
from ranp.paper.training.network import make_full, make_slim, whole
from tests.support.numbered import by_column, numbered

PAPER = Wanted(scale="paper", resources_only=True)
QUICK = Wanted(quick=True, resources_only=True)


def counted(model: nn.Module, inputs: tuple[torch.Tensor, ...], kinds: tuple[type[nn.Module], ...]) -> tuple[int, int]:
    """Parameters of the modules of some kinds, and the elements of all their outputs in one real run."""
    elements: list[int] = []
    chosen = [module for module in model.modules() if isinstance(module, kinds)]
    for module in chosen:
        module.register_forward_hook(lambda _, __, output: elements.append(output.numel()))
    with torch.no_grad():
        model.eval()(*inputs)
    return sum(p.numel() for module in chosen for p in module.parameters()), sum(elements)


def quick(method: str) -> Cell:
    return cell_of(QUICK, "psm-sceneflow", method, 0)


def test_the_full_network_is_split_as_the_paper_prints_it() -> None:
    found = parts(cell_of(PAPER, "psm-sceneflow", "full", 0), None)
    for part, rows in published.psm_parts().items():
        costs = found[part]
        told = (round(costs.params_mb, 2), round(costs.gflops, 2), round(costs.memory_mb, 2))
        assert told == (rows[0].params_mb, rows[0].gflops, rows[0].memory_mb)


def test_parts_of_a_slim_network_are_those_of_a_real_run(tmp_path: Path) -> None:
    one, place = quick("random"), Place(tmp_path)
    run_cell(one, place)
    plan = Plan.load(place.of(one) / "plan.json")
    task = one.open()
    model = make_slim(make_full(task, one.recipe()), plan, one.recipe(), one.example(task))
    inputs = tuple(torch.zeros(tensor.shape) for tensor in one.example(task))
    found = parts(one, plan)
    for part, kinds in (
        ("2d", (nn.Conv2d, nn.BatchNorm2d, nn.AvgPool2d)),
        ("3d", (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d)),
    ):
        assert (found[part].params, found[part].memory) == counted(model, inputs, kinds)


def test_a_plan_that_removes_nothing_leaves_the_full_network() -> None:
    one = quick("full")
    assert parts(one, whole(make_full(one.open(), one.recipe()))) == parts(one, None)


@pytest.mark.parametrize("wanted", [Wanted(), PAPER], ids=["cpu", "paper"])
def test_nothing_is_run_that_the_main_table_does_not_run(wanted: Wanted) -> None:
    cells = PSM_PARTS.cells(wanted)
    assert set(cells) <= set(MAIN.cells(wanted))
    assert {cell.method for cell in cells} == {row.method for row in published.psm_parts()["2d"]}


def test_the_papers_reductions_stand_beside_ours(tmp_path: Path) -> None:
    results = numbered(PSM_PARTS, QUICK, tmp_path)
    for one in PSM_PARTS.cells(QUICK):
        if one.method != "full":
            folder = results.folder(one)
            folder.mkdir(parents=True)
            whole(make_full(one.open(), one.recipe())).save(folder / "plan.json")
    table = PSM_PARTS.present(results, QUICK).table
    rows = by_column(table)
    assert [row["group"][0] for row in rows] == ["2D layers"] * 5 + ["3D layers"] * 5
    ours = next(row for row in rows if row["method"][0] == "RANP-f")
    assert ours["paper's"] == ["(67.9)", "(67.8)", "(43.3)"]  # 4.09 of 12.74, 56.28 of 174.94, 1079.32 of 1902.75
    assert ours["MFLOPs"] == rows[0]["MFLOPs"]  # nothing was removed
