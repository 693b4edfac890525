from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.single_gpu import SINGLE_GPU, StepMemory, cell_of, copies, step_memory
from ranp.paper.experiments.transfer import cell_of as transferred
from ranp.paper.training.network import make_full, make_optimiser, whole
from tests.support.numbered import by_column, numbered
from tests.support.small_cells import cell

PAPER = Wanted(scale="paper", resources_only=True)


@pytest.mark.parametrize(
    "settings",
    [
        ("optimiser=sgd", "momentum=0", "nesterov=false"),
        ("optimiser=sgd", "momentum=0.9"),
        ("optimiser=adam",),
        ("optimiser=adam", "amsgrad=true"),
    ],
)
def test_copies_are_those_that_a_real_step_of_the_optimiser_leaves(settings: tuple[str, ...]) -> None:
    one = cell(settings=(*cell().settings, *settings))
    recipe = one.recipe()
    model = make_full(one.open(), recipe)
    optimiser = make_optimiser(model, recipe)
    model(torch.rand(2, 1, 8, 8, 8)).sum().backward()
    optimiser.step()
    parameters = list(model.parameters())
    held = sum(
        tensor.numel()
        for parameter in parameters
        for tensor in (parameter, parameter.grad, *optimiser.state[parameter].values())
        if isinstance(tensor, torch.Tensor) and tensor.shape == parameter.shape and tensor.ndim
    )
    assert held == copies(recipe) * sum(parameter.numel() for parameter in parameters)


def test_a_step_holds_what_autograd_saves() -> None:
    one = cell()
    recipe = one.recipe()
    model = make_full(one.open(), recipe).train()
    inputs = torch.rand(2, 1, 8, 8, 8)
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers(), inputs)}
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(inputs)
    found = step_memory(one, None)
    statistics = 2 * 4 * sum(m.num_features for m in model.modules() if isinstance(m, torch.nn.BatchNorm3d))
    kept = sum(storage.nbytes() for storage in saved.values())
    # Means and deviations of a batch are kept once whatever its size; the rest grows with the samples.
    assert found.sample == pytest.approx((kept - statistics) / 2, abs=statistics)
    assert found.fixed == 4 * copies(recipe) * sum(parameter.numel() for parameter in model.parameters())
    assert found == step_memory(one, whole(model))
    del output


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    memory = StepMemory(fixed=1000, sample=77)
    for limit in (999, 1000, 1076, 1077, 5000):
        batch = memory.largest_batch(limit)
        assert batch == 0 or memory.fixed + batch * memory.sample <= limit
        assert memory.fixed + (batch + 1) * memory.sample > limit


def test_a_deep_full_network_does_not_fit_the_papers_batch_on_one_gpu() -> None:
    shallow, deep = (
        step_memory(cell_of(PAPER, network, "full", 0), None) for network in ("unet3d-shapenet", "unet3d-shapenet-23")
    )
    parameters = 791.31 * 1024**2  # as printed, in float32; SGD with momentum keeps three of them
    assert deep.fixed == pytest.approx(3 * parameters, rel=1e-5)
    assert deep.largest_batch(12 * 1024**3) < 12 <= shallow.largest_batch(12 * 1024**3)


def test_cells_are_shared_with_other_tables() -> None:
    for wanted in (Wanted(), PAPER):
        assert cell_of(wanted, "unet3d-shapenet", "full", 0) in MAIN.cells(wanted)
    for method in ("full", "ranp-f"):
        assert cell_of(PAPER, "unet3d-shapenet-23", method, 0) == transferred(PAPER, "shapenet", method, 0)
    cells = SINGLE_GPU.cells(Wanted(seeds=1))
    assert [one.sparsity for one in cells] == [0.0, 0.0, 0.8]
    assert len({one.recipe().batch for one in cells}) == 1
    widths = [one.recipe().options["widths"] for one in cells]
    assert widths[1][: len(widths[0])] == widths[0]  # deeper, not narrower
    assert len(widths[1]) == len(widths[2]) > len(widths[0])


def test_the_table_tells_the_estimate_beside_the_papers_figures(tmp_path: Path) -> None:
    results = numbered(SINGLE_GPU, PAPER, tmp_path)
    deep = cell_of(PAPER, "unet3d-shapenet-23", "ranp-f", 0)
    with torch.device("meta"):
        full = make_full(deep.open(), deep.recipe())
    results.folder(deep).mkdir(parents=True)
    whole(full).save(results.folder(deep) / "plan.json")
    (table,) = SINGLE_GPU.present(results, PAPER).tables
    rows = by_column(table)
    assert [row["paper's batch on GPUs"][0] for row in rows] == ["12 on 2", "12 on 2", "12 on 1"]
    assert rows[2]["paper's"] == ["", "7.39 (97.2)", "255.57 (74.6)"]
    assert rows[0]["paper's"] == ["62.26", "237.85", "997.00"]
    for row, network in zip(rows[:2], ("unet3d-shapenet", "unet3d-shapenet-23"), strict=True):
        memory = step_memory(cell_of(PAPER, network, "full", 0), None)
        assert row["batch in 12 GiB, estimate"] == [str(memory.largest_batch(12 * 1024**3))]
        assert row["batch in 24 GiB, estimate"] == [str(memory.largest_batch(24 * 1024**3))]
    assert rows[1]["per sample MB, estimate"] == rows[2]["per sample MB, estimate"]  # a plan that removes nothing
    assert any("Estimate" in note for note in table.notes)
