"""Procedural part segmentation: what the data promise, and loss and metrics against slow loops."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ranp.errors import DataError, UnsupportedError
from ranp.paper import models, tasks
from ranp.paper.tasks.shapenet import catalogue
from ranp.paper.tasks.shapenet.catalogue import CATEGORIES, PARTS

TASK = tasks.get("shapenet")
EMPTY = 255
FIRST = [sum(PARTS[:k]) for k in range(16)]


def category_of(label: int) -> int:
    return max(k for k in range(16) if FIRST[k] <= label)


def test_the_task_is_the_papers() -> None:
    assert (TASK.name, TASK.network, TASK.classes, TASK.strength) == ("shapenet", "unet3d-shapenet", 50, 11)
    assert TASK.sparsity == 0.9857
    assert TASK.network in models.names()
    assert len(CATEGORIES) == len(PARTS) == 16
    assert sum(PARTS) == 50
    assert list(FIRST) == list(catalogue.FIRST)
    assert len(TASK.train_data()) == 6955
    assert len(TASK.valid_data()) == 7052


def test_the_recipe_is_the_papers() -> None:
    recipe = TASK.recipe
    assert (recipe.optimiser, recipe.momentum, recipe.nesterov, recipe.weight_decay) == ("sgd", 0.9, True, 1e-4)
    assert (recipe.size, recipe.batch, recipe.epochs) == (64, 12, 100)
    assert (recipe.train_count, recipe.valid_count) == (None, None)
    assert [recipe.rate(epoch) for epoch in (0, 1, 99)] == pytest.approx(
        [0.1, 0.1 * math.exp(-0.04), 0.1 * math.exp(-0.04 * 99)]
    )


def test_the_small_recipe_fits_its_network_and_data() -> None:
    recipe = TASK.cpu
    model = models.build(recipe.network, **recipe.options).eval()
    data = TASK.train_data(recipe.size, recipe.train_count, recipe.seed)
    with torch.no_grad():
        output = TASK.predict(model, data[0][0][None], recipe.size)
    assert output.shape == (1, 50, *[recipe.size] * 3)
    assert len(data) == recipe.train_count
    assert len(data) % len(CATEGORIES) == 0
    assert TASK.metrics.main == "miou"
    assert TASK.metrics.higher_is_better
    assert set(TASK.metrics(output, data[0][1][None])) == {"miou", "accuracy"}


def test_unknown_tasks_are_refused() -> None:
    assert "shapenet" in tasks.names()
    with pytest.raises(
        UnsupportedError, match=r"unknown task 'shapnet'; did you mean 'shapenet'\? Allowed: .*shapenet"
    ):
        tasks.get("shapnet")


@pytest.mark.parametrize("size", [8, 24, 33])
def test_shapes_types_and_labels(size: int) -> None:
    data = TASK.train_data(size=size, count=16, seed=1)
    categories = []
    for volume, target in (data[i] for i in range(16)):
        assert volume.shape == (1, size, size, size)
        assert target.shape == (size, size, size)
        assert (volume.dtype, target.dtype) == (torch.float32, torch.int64)
        assert torch.equal(volume[0] == 1, target != EMPTY)
        assert torch.equal(volume[0] == 0, target == EMPTY)
        found = {category_of(label) for label in target[target != EMPTY].tolist()}
        assert len(found) == 1
        categories += found
    assert sorted(categories) == list(range(16))


def test_every_part_appears_and_objects_differ() -> None:
    data = TASK.train_data(size=24, count=96, seed=0)
    targets = [data[i][1] for i in range(96)]
    assert set(torch.cat([t.flatten() for t in targets]).unique().tolist()) == {*range(50), EMPTY}
    occupied = [(t != EMPTY).float().mean().item() for t in targets]
    assert min(occupied) > 0.005
    assert max(occupied) < 0.2
    assert len({t.numpy().tobytes() for t in targets}) == 96


def test_a_sample_depends_on_seed_split_and_index_alone() -> None:
    short, long = TASK.train_data(16, 5, 3), TASK.train_data(16, 40, 3)
    _ = long[39]
    assert not short.varies
    for index in (4, 0, 2):
        for again in (long[index], long.draw(index, visit=9)):
            for ours, theirs in zip(short[index], again, strict=True):
                assert torch.equal(ours, theirs)
    assert not torch.equal(short[0][1], TASK.train_data(16, 5, 4)[0][1])
    valid = [TASK.valid_data(16, 32, seed)[i][1].numpy().tobytes() for seed in (0, 3) for i in range(32)]
    train = [TASK.train_data(16, 32, seed)[i][1].numpy().tobytes() for seed in (0, 3) for i in range(32)]
    assert not set(valid) & set(train)


def test_the_global_generators_are_not_touched() -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    _ = TASK.train_data(16, 2, 0)[1]
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_data_set_ends_where_it_ends() -> None:
    data = TASK.train_data(16, 3, 0)
    assert len(list(data)) == 3
    with pytest.raises(IndexError):
        data[-1]
    batch, target = next(iter(DataLoader(data, batch_size=3)))
    assert batch.shape == (3, 1, 16, 16, 16)
    assert target.shape == (3, 16, 16, 16)


@pytest.mark.parametrize(
    ("options", "word"), [({"size": 7}, "size=7"), ({"count": 0}, "count=0"), ({"seed": -1}, "seed=-1")]
)
def test_impossible_data_sets_are_refused(options: dict[str, int], word: str) -> None:
    with pytest.raises(DataError, match=word):
        TASK.train_data(**{"size": 16, "count": 2, "seed": 0, **options})


def batch(seed: int, count: int = 4, size: int = 9) -> tuple[Tensor, Tensor]:
    """Random scores for real objects."""
    data = TASK.valid_data(size=size, count=count, seed=seed)
    target = torch.stack([data[i][1] for i in range(count)])
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn((count, 50, size, size, size), generator=generator)
    right = torch.nn.functional.one_hot(target.clamp(max=49), 50).movedim(-1, 1)
    hinted = torch.rand(target.shape, generator=generator).unsqueeze(1) < 0.6
    return scores + 1.5 * right * hinted, target


def slow_miou(output: Tensor, target: Tensor) -> float:
    """The paper's metric, voxel by voxel; categories weighted by their objects."""
    by_category: dict[int, list[float]] = {}
    for scores, labels in zip(output.tolist(), target.tolist(), strict=True):
        size = len(labels)
        voxels = [
            (labels[x][y][z], [scores[c][x][y][z] for c in range(50)])
            for x in range(size)
            for y in range(size)
            for z in range(size)
            if labels[x][y][z] != EMPTY
        ]
        category = category_of(voxels[0][0])
        parts = range(FIRST[category], FIRST[category] + PARTS[category])
        pairs = [(label, max(parts, key=values.__getitem__)) for label, values in voxels]
        ious = []
        for part in parts:
            union = sum(part in pair for pair in pairs)
            ious.append(sum(pair == (part, part) for pair in pairs) / union if union else 1.0)
        by_category.setdefault(category, []).append(math.fsum(ious) / len(ious))
    objects = len(target)
    return sum(len(ious) / objects * (math.fsum(ious) / len(ious)) for ious in by_category.values())


@pytest.mark.parametrize("seed", range(4))
def test_miou_against_a_loop_over_voxels(seed: int) -> None:
    output, target = batch(seed)
    assert TASK.metrics(output, target)["miou"] == pytest.approx(slow_miou(output, target), abs=1e-6)


def test_accuracy_against_a_loop_over_voxels() -> None:
    output, target = batch(7)
    right = total = 0
    for scores, labels in zip(output, target, strict=True):
        for where in (labels != EMPTY).nonzero().tolist():
            label = int(labels[tuple(where)])
            first, count = FIRST[category_of(label)], PARTS[category_of(label)]
            right += int(scores[(slice(first, first + count), *where)].argmax()) + first == label
            total += 1
    assert TASK.metrics(output, target)["accuracy"] == pytest.approx(right / total)


def test_evaluating_in_batches_equals_all_at_once() -> None:
    output, target = batch(1, count=7)
    pairs = ((output[a:b], target[a:b]) for a, b in ((0, 3), (3, 4), (4, 7)))
    assert TASK.evaluate(pairs) == pytest.approx(TASK.metrics(output, target))


def test_perfect_and_absent_parts() -> None:
    _, target = batch(2, count=16, size=12)
    perfect = torch.nn.functional.one_hot(target.clamp(max=49), 50).movedim(-1, 1).float()
    assert TASK.metrics(perfect, target) == {"miou": 1.0, "accuracy": 1.0}
    # a mug of which only the cup is there: found whole, and the absent handle found absent
    cup = torch.full((1, 9, 9, 9), EMPTY)
    cup[0, 2:5] = FIRST[11] + 1
    scores = torch.zeros(1, 50, 9, 9, 9)
    scores[:, FIRST[11] + 1] = 1
    assert TASK.metrics(scores, cup) == {"miou": 1.0, "accuracy": 1.0}
    scores[:, 0] = 9  # another category's part is no rival
    assert TASK.metrics(scores, cup)["miou"] == 1.0
    scores[:, FIRST[11], 2] = 2  # a third of the cup taken for a handle: IoU 2/3 and 0
    assert TASK.metrics(scores, cup) == pytest.approx({"miou": 1 / 3, "accuracy": 2 / 3})


def test_loss_against_a_loop_over_voxels() -> None:
    output, target = batch(3, count=2)
    terms = [
        -math.log(math.exp(values[label]) / sum(math.exp(v) for v in values))
        for scores, labels in zip(output.double(), target, strict=True)
        for where in (labels != EMPTY).nonzero().tolist()
        for label, values in [(int(labels[tuple(where)]), scores[(slice(None), *where)].tolist())]
    ]
    assert TASK.loss(output, target).item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-5)


@pytest.mark.parametrize("cuts", [(0, 1, 5), (0, 2, 3, 5), (0, 1, 2, 3, 4, 5)])
def test_weighted_losses_of_parts_are_the_loss_of_the_whole(cuts: tuple[int, ...]) -> None:
    output, target = (
        tensor.to(kind) for tensor, kind in zip(batch(5, count=5), (torch.float64, torch.int64), strict=True)
    )
    target[3, target[3] != EMPTY] = torch.where(torch.arange(int((target[3] != EMPTY).sum())) % 3 > 0, EMPTY, 49)
    parts = [(output[a:b], target[a:b]) for a, b in pairwise(cuts)]
    weights = [TASK.weight(labels) for _, labels in parts]
    assert weights == [sum(label != EMPTY for label in labels.flatten().tolist()) for _, labels in parts]
    assert len(set(weights)) > 1
    joined = sum(w * TASK.loss(*part) for w, part in zip(weights, parts, strict=True)) / sum(weights)
    assert float(joined) == pytest.approx(float(TASK.loss(output, target)), rel=1e-12)


def test_sums_of_batches_add_up_and_weight_categories_by_their_objects() -> None:
    output, target = batch(6, count=5)
    parts = [TASK.metrics.tally(output[i : i + 1], target[i : i + 1]) for i in range(5)]
    whole = TASK.metrics.tally(output, target)
    assert {name: sum(part[name] for part in parts) for name in whole} == pytest.approx(whole)
    assert whole["objects"] == 5
    assert whole["voxels"] == TASK.weight(target)


@pytest.mark.parametrize("label", [-1, 50, 254])
def test_labels_out_of_range_are_refused(label: int) -> None:
    output, target = batch(0, count=1)
    target[0, 4, 4, 4] = label
    for call in (TASK.loss, TASK.metrics):
        with pytest.raises(DataError, match=rf"label {label}; allowed are 0 to 49"):
            call(output, target)


def test_useless_batches_are_refused() -> None:
    output, target = batch(0, count=2)
    with pytest.raises(DataError, match="do not fit"):
        TASK.loss(output, target[:1])
    with pytest.raises(DataError, match="do not fit"):
        TASK.metrics(output[:, :49], target)
    with pytest.raises(DataError, match="every voxel"):
        TASK.loss(output, torch.full_like(target, EMPTY))
    with pytest.raises(DataError, match="at least one batch"):
        TASK.evaluate([])
    hollow = target.clone()
    hollow[1] = EMPTY
    with pytest.raises(DataError, match="no occupied voxel"):
        TASK.metrics(output, hollow)
    mixed = target.clone()
    mixed[0, 0, 0, 0], mixed[0, 0, 0, 1] = 0, 49
    with pytest.raises(DataError, match="categories 0 and 15"):
        TASK.metrics(output, mixed)


def test_a_small_network_learns_the_task() -> None:
    data = TASK.train_data(size=12, count=16, seed=0)
    volumes, targets = (torch.stack(list(tensors)) for tensors in zip(*(data[i] for i in range(16)), strict=True))
    model = models.build(TASK.network, widths=(8, 16))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(25):
        loss = TASK.loss(model(volumes), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 3
    assert losses[-1] < 0.5 * losses[0]
    before = TASK.metrics(models.build(TASK.network, widths=(8, 16))(volumes), targets)
    after = TASK.metrics(model(volumes), targets)
    assert after["accuracy"] > before["accuracy"] + 0.2
