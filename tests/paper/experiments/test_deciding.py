from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import ranp
from benchmarks.judges import saved_bytes, torch_flops
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.deciding import Decision
from ranp.paper.experiments.shelf import Shelf
from ranp.paper.scoring import ScoringBatches
from ranp.paper.training.network import make_full
from ranp.paper.training.runs import Setting
from ranp.paper.training.team import Team
from ranp.reporting.pruned import Pruned
from tests.support.small_cells import cell


def decided(one: Cell, shelf: Path) -> Pruned:
    task = one.open()
    setting = Setting(task, one.recipe(), one.example(task), Team())
    return Decision(one, Shelf(shelf)).prune(make_full(task, one.recipe()), setting)


@pytest.mark.parametrize("method", ["ranp-f", "ranp-m", "weighted", "vanilla", "layerwise", "random", "snip"])
def test_a_cell_is_pruned_as_ranp_prune_would(method: str, tmp_path: Path) -> None:
    one = cell(method, 3)
    task, recipe = one.open(), one.recipe()
    expected = ranp.prune(
        make_full(task, recipe),
        ScoringBatches(task, recipe.size, one.batches, recipe.seed, batch=one.batch),
        task.loss,
        sparsity=0.3,
        method=method,
        example=one.example(task),
        strength=task.strength,
        init=recipe.init,
        seed=recipe.seed,
        convention="paper",
    )
    for _ in range(2):  # scored, then from the shelf
        found = decided(one, tmp_path)
        assert found.plan.kept == expected.plan.kept
        assert found.report.flops == expected.report.flops


def test_the_largest_sparsity_is_feasible_and_one_channel_more_is_not(tmp_path: Path) -> None:
    found = decided(cell("vanilla", sparsity=None), tmp_path)
    largest = found.plan.settings["largest"]
    assert found.plan.sparsity.requested == largest
    assert not found.plan.settings["exact"]
    more = decided(cell("vanilla", sparsity=largest + 1.5 / found.plan.sparsity.channels), tmp_path)
    assert more.plan.settings["exact"]
    assert min(more.plan.widths.values()) >= 1


def test_what_is_infeasible_keeps_a_channel_of_every_layer_and_says_so(tmp_path: Path) -> None:
    found = decided(cell("ranp-f", sparsity=0.9), tmp_path)
    assert found.plan.settings["exact"]
    assert found.plan.settings["largest"] < 0.9
    assert min(found.plan.widths.values()) >= 1


def test_snip_takes_no_more_weights_than_is_feasible(tmp_path: Path) -> None:
    found = decided(cell("snip", sparsity=0.9999), tmp_path)
    assert found.plan.sparsity.requested == found.plan.settings["largest"] < 0.9999


@pytest.mark.parametrize("resource", ["flops", pytest.param("memory", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["random", "layerwise", "snip", "weighted", "ranp-f", "flat", "power", "balanced"])
def test_equal_resources_are_never_above_and_close_below(method: str, resource: str, tmp_path: Path) -> None:
    wide = (("options.widths", (16, 32)),)
    ours = decided(cell("ranp-f", sparsity=0.5, settings=(*cell().settings, *wide)), tmp_path)
    one = cell(method, sparsity=0.5, equal=resource, settings=(*cell().settings, *wide))
    found = decided(one, tmp_path)
    target, reached = (_counted(pruned.model, one, resource) for pruned in (ours, found))
    assert 0.995 * target <= reached <= target


def _counted(network: nn.Module, one: Cell, resource: str) -> int:
    example = torch.zeros([*one.example(one.open()).shape])
    return torch_flops(network, example) if resource == "flops" else saved_bytes(network, example)


def test_equal_resources_with_a_floor_leave_no_narrow_layer(tmp_path: Path) -> None:
    wide = (("options.widths", (16, 32)),)
    one = cell("vanilla", sparsity=0.5, equal="flops", settings=(*cell().settings, *wide))
    assert min(decided(one, tmp_path).plan.widths.values()) < 4
    assert min(decided(replace(one, floor=4), tmp_path).plan.widths.values()) == 4


def test_criteria_are_scored_together_but_kept_apart(tmp_path: Path) -> None:
    one = cell("vanilla", criterion="mnmg-max")
    task = one.open()
    setting = Setting(task, one.recipe(), one.example(task), Team())
    full = make_full(task, one.recipe())
    together = Decision(one, Shelf(tmp_path / "a"), ("mpmg-sum", "snip")).prune(full, setting)
    alone = decided(one, tmp_path / "b")
    assert together.plan.kept == alone.plan.kept
    assert len(list((tmp_path / "a").glob("*.safetensors"))) == 3
    assert decided(replace(one, criterion=None), tmp_path / "a").raw.criterion == "mpmg-sum"
