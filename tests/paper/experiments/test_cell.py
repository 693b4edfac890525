from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

from ranp.errors import UnsupportedError
from ranp.paper.experiments.cell import Cell
from ranp.paper.published import main
from ranp.paper.recipe import Setting
from tests.support.small_cells import cell

CELLS = st.builds(
    Cell,
    task=st.sampled_from(["shapenet", "brats", "ucf101", "sceneflow"]),
    method=st.sampled_from(["full", "ranp-f", "random"]),
    seed=st.integers(0, 5),
    scale=st.sampled_from(["cpu", "paper"]),
    sparsity=st.one_of(st.none(), st.floats(0, 0.9)),
    settings=st.sampled_from([(), (("epochs", 2),), (("epochs", 2), ("options.widths", (4, 8)), ("decay", 0.0))]),
    criterion=st.sampled_from([None, "mnmg-sum"]),
    equal=st.sampled_from([None, "flops"]),
    trains=st.booleans(),
)


@given(CELLS)
def test_a_cell_comes_back_from_plain_values_with_its_name(one: Cell) -> None:
    nested = dataclasses.replace(one, origin=cell())
    for each in (one, nested):
        again = Cell.from_dict(each.to_dict())
        assert again == each
        assert again.id == each.id


@given(CELLS, CELLS)
def test_two_cells_have_one_name_only_if_they_are_equal(one: Cell, other: Cell) -> None:
    assert (one.id == other.id) == (one == other)


def test_a_value_that_no_cell_has_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="wings"):
        Cell.from_dict({**cell().to_dict(), "wings": 2})


def test_settings_come_after_those_of_the_scale() -> None:
    recipe = Cell("brats", settings=(("epochs", 3),), seed=4).recipe()
    assert (recipe.epochs, recipe.seed, recipe.milestones) == (3, 4, (8,))
    assert Cell("brats", scale="paper").recipe().epochs == 200


@pytest.mark.parametrize(
    ("task", "settings", "network"),
    [
        ("shapenet", (), "unet3d-shapenet"),
        ("brats", (), "unet3d-brats"),
        ("ucf101", (), "mobilenetv2-ucf101"),
        ("ucf101", (("network", "i3d-ucf101"), ("size", 224)), "i3d-ucf101"),
        ("sceneflow", (), "psm-sceneflow"),
    ],
)
def test_the_full_networks_of_the_paper_cost_what_it_prints(
    task: str, settings: tuple[Setting, ...], network: str
) -> None:
    from ranp.costs.measuring import profile
    from ranp.paper import models

    one = Cell(task, scale="paper", settings=settings)
    example = one.example(one.open())
    assert all(tensor.is_meta for tensor in tree_leaves(example))
    with torch.device("meta"):
        costs = profile(models.build(one.recipe().network), example, convention="paper")
    printed = main(network)[0]
    found = (round(costs.params_mb, 2), round(costs.gflops, 2), round(costs.memory_mb, 2))
    assert found == (printed.params_mb, printed.gflops, printed.memory_mb)


def test_settings_are_text_on_disk_and_name_the_cell_as_they_always_did() -> None:
    settings = (("options.widths", (8, 16)), ("milestones", ()), ("weight_decay", 0.0), ("size", 8), ("size", 16))
    one = Cell("shapenet", "ranp-f", 1, sparsity=0.5, settings=settings)
    assert one.to_dict()["settings"] == [
        "options.widths=8,16",
        "milestones=none",
        "weight_decay=0",
        "size=8",
        "size=16",
    ]
    assert one.id == "unet3d-shapenet-ranp-f-1-826c5c812d"
    recipe = one.recipe()
    assert (recipe.options["widths"], recipe.milestones, recipe.size) == ((8, 16), (), 16)
