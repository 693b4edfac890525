"""The stereo task as a whole: procedural samples, the paper's settings, and a small network that can follow them."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from ranp.errors import DataError
from ranp.paper.models import build
from ranp.paper.tasks import get
from ranp.paper.tasks.sceneflow import SCENEFLOW, ProceduralPairs
from ranp.paper.tasks.sceneflow.scenes import limit


def test_the_papers_settings():
    assert get("sceneflow") is SCENEFLOW
    assert (SCENEFLOW.network, SCENEFLOW.strength, SCENEFLOW.sparsity) == ("psm-sceneflow", 100.0, 0.9232)
    recipe = SCENEFLOW.recipe
    assert (recipe.optimiser, recipe.schedule, recipe.weight_decay) == ("adam", "constant", 0.0)
    assert (recipe.learning_rate, recipe.epochs, recipe.batch, recipe.size) == (1e-3, 15, 12, 256)
    assert recipe.rate(0) == recipe.rate(14) == 1e-3
    assert (len(SCENEFLOW.train_data()), len(SCENEFLOW.valid_data())) == (35454, 4370)


@pytest.mark.parametrize("size", [16, 32, 48])
def test_a_sample_is_a_pair_and_a_target(size):
    for data in (SCENEFLOW.train_data(size, count=3), SCENEFLOW.valid_data(size, count=3)):
        (left, right), target = data[2]
        assert left.shape == right.shape == (3, size, 2 * size)
        assert target.shape == (2, size, 2 * size)
        assert left.dtype == right.dtype == target.dtype == torch.float32
        assert 0 < target[0].min() < target[0].max() <= limit(size)
        assert set(target[1].unique().tolist()) <= {0.0, 1.0}
        assert not data.varies
        assert torch.equal(data.draw(2, 9)[1], target)


def test_a_sample_depends_on_seed_split_and_number_alone():
    wanted = ProceduralPairs("train", 32, 10, 4)[3]
    again = ProceduralPairs("train", 32, 4, 4)
    again.draw(0)
    np.random.default_rng(0).random()
    torch.manual_seed(1)
    assert all(torch.equal(a, b) for a, b in zip((*again[3][0], again[3][1]), (*wanted[0], wanted[1]), strict=True))
    for split, seed, index in (("valid", 4, 3), ("train", 5, 3), ("train", 4, 2)):
        assert not torch.equal(ProceduralPairs(split, 32, 10, seed)[index][1], wanted[1])


def test_views_are_normalised_and_differ_a_little_in_light():
    """Where both cameras see the same colour, they do not read quite the same; over many pixels they nearly do."""
    (left, right), target = ProceduralPairs("train", 64, 1, 0)[0]
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    for view in (left, right):
        colours = view * deviation[:, None, None] + mean[:, None, None]
        assert colours.min() > -1e-5
        assert colours.max() < 1 + 1e-5
    columns = (torch.arange(128) - target[0]).round().long().clamp(0)
    moved = right.gather(2, columns.expand(3, -1, -1))
    visible = target[1] == 0
    gap = (moved - left)[:, visible].abs().median()
    still = (right - left)[:, visible].abs().median()
    assert 0 < gap < 0.6 * still


def test_an_index_out_of_range_ends_an_iteration():
    data = ProceduralPairs("train", 16, 2, 0)
    assert len(list(data)) == 2
    with pytest.raises(IndexError, match="sample 2 of 2"):
        data[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("test", 32, 1, 0), "split='test': there are train and valid"),
        (("train", 8, 1, 0), "size=8: .*pass 16 or more"),
        (("train", 32, 0, 0), "count=0, seed=0: pass at least one pair"),
        (("train", 32, 1, -1), "count=1, seed=-1: .*not negative"),
    ],
)
def test_what_no_data_set_can_be_is_refused(arguments, words):
    with pytest.raises(DataError, match=words):
        ProceduralPairs(*arguments)


def test_the_small_network_fits_its_data_and_learns_a_batch():
    """It takes the recipe's size and searches all disparities there are; a few steps on one batch lower the loss."""
    recipe = SCENEFLOW.cpu
    assert recipe.network == SCENEFLOW.network
    assert limit(recipe.size) < recipe.options["disparities"] - 1
    data = SCENEFLOW.train_data(recipe.size, count=2)
    pairs = [data[index] for index in range(2)]
    left, right = (torch.stack([inputs[side] for inputs, _ in pairs]) for side in (0, 1))
    target = torch.stack([each for _, each in pairs])
    model = build(recipe.network, seed=0, **recipe.options)
    optimiser = torch.optim.Adam(model.parameters(), recipe.rate(0))
    losses = []
    for _ in range(6):
        optimiser.zero_grad()
        value = SCENEFLOW.loss(model(left, right), target)
        value.backward()
        optimiser.step()
        losses.append(value.item())
    assert losses[-1] < 0.9 * losses[0]
    model.eval()
    with torch.no_grad():
        found = SCENEFLOW.predict(model, (left, right), recipe.size)
    figures = SCENEFLOW.metrics(found, target)
    assert set(figures) == {f"{name}{suffix}" for name in ("epe", "acc1", "acc3") for suffix in ("", "_visible")}


def test_a_sample_of_the_small_recipe_is_made_quickly():
    """Processor time, so that other programs do not matter; many times what it takes."""
    data = SCENEFLOW.train_data(SCENEFLOW.cpu.size, count=20)
    begin = time.process_time()
    for index in range(20):
        data[index]
    assert (time.process_time() - begin) / 20 < 0.06
