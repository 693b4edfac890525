"""Procedural brains: the same for the same seed, nested tumours, and no threshold that finds them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from ranp.paper import tasks
from ranp.paper.tasks.brats.procedural import ProceduralBrains

TASK = tasks.get("brats")


@pytest.fixture(scope="module")
def brains() -> list[tuple[torch.Tensor, torch.Tensor]]:
    data = TASK.valid_data(size=24, count=24, seed=0)
    return [data[index] for index in range(24)]  # type: ignore[misc]


def test_shapes_types_and_labels(brains: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for image, labels in brains:
        assert (image.shape, image.dtype) == ((4, 33, 33, 33), torch.float32)
        assert (labels.shape, labels.dtype) == ((33, 33, 33), torch.int64)
        assert {0, 1, 2} <= set(labels.unique().tolist()) <= {0, 1, 2, 4}
        brain = (image != 0).any(dim=0)
        assert not labels[~brain].any()
        assert 0.2 < brain.float().mean() < 0.6
        for channel in image:
            assert abs(float(channel[brain].mean())) < 1e-3
            assert abs(float(channel[brain].std()) - 1) < 1e-2
    share = np.mean([bool((labels == 4).any()) for _, labels in brains])
    assert 0.5 < share < 0.95


def test_tumours_are_nested(brains: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """On its way out of the core one meets edema, or the surface of the brain, before healthy tissue."""
    around, edema = 0, 0
    for image, labels in brains:
        core = np.isin(labels.numpy(), (1, 4))
        brain = (image != 0).any(dim=0).numpy()
        for axis in range(3):
            for step in (-1, 1):
                beside = np.roll(labels.numpy(), step, axis)[
                    core & ~np.roll(core, step, axis) & np.roll(brain, step, axis)
                ]
                around, edema = around + len(beside), edema + int((beside == 2).sum())
    assert around > 1000
    assert edema / around > 0.9


def test_no_threshold_finds_the_tumour(brains: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """The best one for each modality, chosen with the answers known, is far from a good segmentation."""
    images, targets = (torch.stack(part).flatten(-3) for part in zip(*brains[:12], strict=True))
    for members in ((1, 2, 4), (1, 4), (4,)):
        wanted = torch.isin(targets, torch.tensor(members))[:, None]
        for sign in (-1, 1):
            dices = []
            for cut in np.arange(-0.5, 3, 0.25):
                found = sign * images > cut
                both = found.sum(dim=-1) + wanted.sum(dim=-1)
                dices.append((2 * (found & wanted).sum(dim=-1) / both.clamp(min=1)).mean(dim=0))
            assert float(torch.stack(dices).max()) < 0.7, (members, sign)


def test_modalities_tell_the_parts_apart(brains: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    means = {
        label: np.nanmean(
            [image[:, labels == label].mean(dim=1).numpy() for image, labels in brains if (labels == label).any()],
            axis=0,
        )
        for label in (1, 2, 4)
    }
    flair, t1ce, t1, t2 = range(4)
    assert means[4][t1ce] > means[2][t1ce] + 1 > means[1][t1ce] + 1.5
    assert means[2][flair] > means[1][flair] + 0.2
    assert means[1][t2] > 0 > means[1][t1]


def test_a_brain_depends_on_seed_split_and_number_alone() -> None:
    first = ProceduralBrains(0, 22, 40, 3)
    one = first.volume(7)
    assert np.array_equal(one.image, ProceduralBrains(0, 22, 9, 3).volume(7).image)
    again = pickle.loads(pickle.dumps(first)).volume(7)
    assert np.array_equal(one.image, again.image)
    assert np.array_equal(one.labels, again.labels)
    for other in (first.volume(8), ProceduralBrains(1, 22, 40, 3).volume(7), ProceduralBrains(0, 22, 40, 4).volume(7)):
        assert not np.array_equal(one.labels, other.labels)


def test_training_samples_are_crops_that_change_and_validation_samples_do_not() -> None:
    train, valid = TASK.train_data(16, 6, 0), TASK.valid_data(16, 6, 0)
    assert train.varies
    assert train.draw(2, 0)[0].shape == (4, 16, 16, 16)  # type: ignore[union-attr]
    assert not torch.equal(train.draw(2, 0)[0], train.draw(2, 1)[0])  # type: ignore[arg-type]
    assert torch.equal(train.draw(2, 1)[0], TASK.train_data(16, 6, 0).draw(2, 1)[0])  # type: ignore[arg-type]
    assert not valid.varies
    assert valid.draw(2, 0)[0].shape == (4, 22, 22, 22)  # type: ignore[union-attr]
    assert torch.equal(valid.draw(2, 0)[0], valid.draw(2, 1)[0])  # type: ignore[arg-type]
    train.check()
