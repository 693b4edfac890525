"""The four tasks behind one contract: by name, from samples through the small network to loss and figures."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate

from ranp.errors import DataError, UnsupportedError
from ranp.paper import models, tasks
from ranp.paper.training.network import make_full
from ranp.running.calling import call

NAMES = ("brats", "sceneflow", "shapenet", "ucf101")


def task_of(name: str) -> tasks.Task:
    if name == "brats":
        pytest.importorskip("monai")
    return tasks.get(name)


@cache
def answered(name: str) -> tuple[nn.Module, Any, Tensor]:
    """The small network in training mode, and its outputs for three training samples."""
    task = task_of(name)
    data = task.train_data(task.cpu.size, 3, 1)
    inputs, target = default_collate([data[index] for index in range(3)])
    model = make_full(task, task.cpu).train()
    return model, call(model, tuple(inputs) if isinstance(inputs, list) else inputs), target


def test_there_are_four() -> None:
    assert tasks.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_found_by_its_name(name: str) -> None:
    task = task_of(name)
    assert task.name == name
    assert task is tasks.get(name)
    assert task.network == task.recipe.network == task.cpu.network
    assert name in task.network
    assert task.network in models.names()
    assert set(task.cpu.options) <= set(models.arguments(task.network))
    assert 0 < task.sparsity < 1
    assert task.strength > 0
    with pytest.raises(FrozenInstanceError):
        task.name = "mine"  # type: ignore[misc]


@pytest.mark.parametrize("wrong", ["shapnet", "BraTS", "", "ucf-101"])
def test_another_name_is_refused_with_the_list(wrong: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf"unknown task '{wrong}'.* Allowed: brats, sceneflow, shapenet, ucf101"
    ):
        tasks.get(wrong)
    if wrong == "shapnet":
        with pytest.raises(UnsupportedError, match="did you mean 'shapenet'"):
            tasks.get(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_is_not_the_data_set_is_refused(name: str, tmp_path: Path) -> None:
    task_of(name)
    with pytest.raises(DataError, match=rf"nowhere' is not a folder\. Pass the folder of the {name} data set"):
        tasks.get(name, data=tmp_path / "nowhere")
    with pytest.raises(DataError) as caught:
        tasks.get(name, data=str(tmp_path), allow_missing=True)
    assert str(tmp_path) in str(caught.value)
    assert tasks.get(name).source is task_of(name).source, "the task itself is as it was"


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_a_function_of_seed_and_number_and_parts_differ(name: str) -> None:
    task, size = task_of(name), task_of(name).cpu.size
    first = task.train_data(size, 2, 0)[1]
    for data, same in (
        (task.train_data(size, 5, 0), True),
        (task.train_data(size, 2, 7), False),
        (task.valid_data(size, 2, 0), False),
    ):
        inputs, target = data[1]
        alike = [torch.equal(a, b) for a, b in zip(_flat(inputs), _flat(first[0]), strict=True) if a.shape == b.shape]
        assert (bool(alike) and all(alike)) == same
        assert target.dtype == first[1].dtype
    assert len(task.train_data(size, 2)) == 2
    with pytest.raises(IndexError):
        task.train_data(size, 2)[2]


def _flat(inputs: Any) -> tuple[Tensor, ...]:
    return inputs if isinstance(inputs, tuple) else (inputs,)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_is_finite_and_reaches_every_weight(name: str) -> None:
    task = task_of(name)
    model, output, target = answered(name)
    model.zero_grad()
    loss = task.loss(output, target)
    assert loss.shape == ()
    assert math.isfinite(float(loss.detach()))
    assert float(loss.detach()) > 0
    loss.backward(retain_graph=True)
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    reached = [bool(parameter.grad.any()) for parameter in model.parameters() if parameter.dim() > 1]  # type: ignore[union-attr]
    assert sum(reached) > 0.9 * len(reached)


@pytest.mark.parametrize("name", NAMES)
def test_weighted_losses_of_parts_are_the_loss_of_the_whole(name: str) -> None:
    task = task_of(name)
    _, output, target = answered(name)
    whole = float(task.loss(output, target).detach())
    for cut in (1, 2):
        parts = [slice(None, cut), slice(cut, None)]
        weights = [task.weight(target[part]) for part in parts]
        losses = [float(task.loss(tree_map(lambda x, p=part: x[p], output), target[part]).detach()) for part in parts]
        assert sum(weights) == task.weight(target)
        assert all(weight > 0 for weight in weights)
        mean = sum(weight * loss for weight, loss in zip(weights, losses, strict=True)) / sum(weights)
        assert mean == pytest.approx(whole, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_figures_of_a_validation_sample_are_finite(name: str) -> None:
    task = task_of(name)
    model = make_full(task, task.cpu).eval()
    data = task.valid_data(task.cpu.size, 2, 0)
    pairs = []
    with torch.no_grad():
        for index in range(2):
            inputs, target = data[index]
            batch = tree_map(lambda tensor: tensor[None], inputs)
            pairs.append((task.predict(model, batch, task.cpu.size), target[None]))
    figures = task.evaluate(pairs)
    assert task.metrics.main in figures
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    one_by_one = [task.metrics.tally(*pair) for pair in pairs]
    assert one_by_one[0].keys() == one_by_one[1].keys()
    summed = {key: one_by_one[0][key] + one_by_one[1][key] for key in one_by_one[0]}
    assert task.metrics.figures(summed) == figures
    with pytest.raises(DataError, match="nothing to evaluate"):
        task.evaluate([])
    data.check()


@pytest.mark.parametrize("name", NAMES)
def test_sizes_counts_and_seeds_out_of_range_are_refused(name: str) -> None:
    task = task_of(name)
    for arguments in ((1, 2, 0), (task.cpu.size, 0, 0), (task.cpu.size, 2, -1)):
        for make in (task.train_data, task.valid_data):
            with pytest.raises(DataError, match=r"size=1\b|count=0|seed=-1"):
                make(*arguments)
