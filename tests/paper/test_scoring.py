"""What a task's network is scored on: single samples from all over the data, shared out among ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranp.paper import tasks
from ranp.paper.scoring import ScoringBatches, example_of

SHAPENET = tasks.get("shapenet")


def test_batches_are_single_samples_of_the_training_data() -> None:
    batches = ScoringBatches(SHAPENET, 8, 5, seed=2)
    assert len(batches) == len(batches.chosen) == len({index for (index,) in batches.chosen}) == 5
    data = SHAPENET.train_data(8, None, 2)
    pairs = list(batches)
    assert len(pairs) == 5
    for (index,), (volume, target) in zip(batches.chosen, pairs, strict=True):
        assert torch.equal(volume[0], data[index][0])
        assert torch.equal(target[0], data[index][1])
        assert volume.shape == (1, 1, 8, 8, 8)
        assert target.shape == (1, 8, 8, 8)
    again = list(batches)  # scoring may pass over them more than once
    assert all(torch.equal(one[0], other[0]) for one, other in zip(pairs, again, strict=True))


def test_samples_come_from_all_over_the_data() -> None:
    """Published data are sorted by class: the first few would be of one."""
    total = len(SHAPENET.train_data(8))
    chosen = np.array(ScoringBatches(SHAPENET, 8, 60, seed=0).chosen).ravel()
    assert np.ptp(chosen) > 0.8 * total
    assert len(np.unique(chosen * 4 // total)) == 4
    other = ScoringBatches(SHAPENET, 8, 60, seed=1).chosen
    assert {index for (index,) in other} != set(chosen.tolist())
    assert ScoringBatches(SHAPENET, 8, 60, seed=1).chosen == other


def test_fewer_are_the_first_of_more() -> None:
    assert ScoringBatches(SHAPENET, 8, 20, seed=4).chosen[:6] == ScoringBatches(SHAPENET, 8, 6, seed=4).chosen


@pytest.mark.parametrize("count", [1, 7, 8])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_samples_of_one(count: int, ranks: int) -> None:
    alone = ScoringBatches(SHAPENET, 8, count, seed=0).chosen
    shares = [ScoringBatches(SHAPENET, 8, count, 0, rank, ranks).chosen for rank in range(ranks)]
    assert sorted(index for share in shares for index in share) == sorted(alone)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_more_than_there_are_is_all_there_are() -> None:
    batches = ScoringBatches(SHAPENET, 8, 10**6, seed=0)
    assert sorted(batches.chosen) == [[index] for index in range(len(batches.samples))]


def test_batches_may_hold_several_samples() -> None:
    batches, single = ScoringBatches(SHAPENET, 8, 3, 0, batch=4), ScoringBatches(SHAPENET, 8, 12, 0)
    assert [index for numbers in batches.chosen for index in numbers] == [index for (index,) in single.chosen]
    volume, target = next(iter(batches))
    assert volume.shape == (4, 1, 8, 8, 8)
    assert torch.equal(volume[1:2], list(single)[1][0])
    assert torch.equal(target[1:2], list(single)[1][1])
    total = len(single.samples)
    assert len(ScoringBatches(SHAPENET, 8, 10**6, 0, batch=16)) == total // 16  # none is smaller than the others


@pytest.mark.parametrize(
    ("name", "size", "shapes"),
    [
        ("shapenet", 8, [(1, 1, 8, 8, 8)]),
        ("ucf101", 32, [(1, 3, 16, 32, 32)]),
        ("sceneflow", 64, [(1, 3, 64, 128)] * 2),
        ("brats", 8, [(1, 4, 8, 8, 8)]),
    ],
)
def test_the_example_is_one_call_without_data(name: str, size: int, shapes: list[tuple[int, ...]]) -> None:
    example = example_of(tasks.get(name), size)
    tensors = example if isinstance(example, tuple) else (example,)
    assert [tuple(tensor.shape) for tensor in tensors] == shapes
    assert all(tensor.is_meta and tensor.dtype == torch.float32 for tensor in tensors)


def test_a_pair_of_images_is_batched_as_a_pair() -> None:
    (left, right), target = next(iter(ScoringBatches(tasks.get("sceneflow"), 32, 1, seed=0)))
    assert left.shape == right.shape == (1, 3, 32, 64)
    assert target.shape == (1, 2, 32, 64)
