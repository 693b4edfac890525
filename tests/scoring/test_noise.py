"""Batches that look like noise are named, and no batches of data are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import ranp
from ranp.paper import tasks
from ranp.paper.scoring import ScoringBatches
from ranp.scoring.noise import Watched
from tests.support.real_data import real_data

SIZES = {"shapenet": (8, 16, 64), "brats": (12, 24, 64), "sceneflow": (32, 64), "ucf101": (16, 24)}
FOLDERS = {"shapenet": "shapenetpart", "brats": "brats2015", "sceneflow": "sceneflow", "ucf101": "ucf101"}
EVERY = [(task, size) for task, sizes in SIZES.items() for size in sizes]


def noted(batches: Any) -> str:
    watched = Watched(batches)
    list(watched)
    return watched.note()


@pytest.mark.parametrize(("task", "size"), EVERY)
def test_no_procedural_task_looks_like_noise(task: str, size: int) -> None:
    for seed in range(3):
        assert not noted(ScoringBatches(tasks.get(task), size, 1, seed))


@pytest.mark.parametrize(("task", "size"), EVERY)
def test_no_real_sample_looks_like_noise(task: str, size: int) -> None:
    opened = tasks.get(task, str(real_data(FOLDERS[task])), allow_missing=True)
    batches = list(ScoringBatches(opened, size, 4, 0))
    assert batches
    assert not noted(batches)
    assert not any(noted([batch]) for batch in batches)


@pytest.mark.parametrize("draw", [torch.randn, torch.rand], ids=["normal", "uniform"])
@pytest.mark.parametrize("shape", [(1, 1, 8, 8, 8), (2, 3, 16, 16, 16), (1, 3, 32, 32), (2, 3, 8, 16, 16)], ids=str)
def test_random_numbers_do(shape: tuple[int, ...], draw: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    labels = (shape[0], *shape[2:])
    assert "inputs" in noted([(draw(shape), None) for _ in range(4)])
    assert "inputs" in noted([({"image": draw(shape)}, None)])
    found = noted([(draw(shape), torch.randint(4, labels)) for _ in range(4)])
    assert "inputs" in found
    assert "labels" in found


def smooth(*shape: int) -> Tensor:
    return torch.randn(shape).cumsum(-1).cumsum(-2)


def test_random_labels_of_real_inputs_do() -> None:
    torch.manual_seed(0)
    for classes in (2, 5):
        found = noted([(smooth(2, 1, 16, 16), torch.randint(classes, (2, 16, 16)))])
        assert "labels" in found
        assert "inputs" not in found


@pytest.mark.parametrize(
    ("inputs", "target"),
    [
        (torch.randn(4, 3, 512), torch.randint(4, (4, 512))),
        (torch.randn(64, 32), torch.randint(4, (64,))),
        (torch.randint(1000, (4, 128)), None),
        (smooth(2, 1, 16, 16), torch.randn(2, 1, 16, 16)),
        ((torch.rand(1, 1, 32, 32, 32) < 0.02).float(), None),
        (torch.zeros(1, 1, 16, 16, 16), torch.zeros(1, 16, 16, 16)),
        (torch.full((1, 1, 16, 16), torch.nan), None),
        (torch.randn(1, 2, 3, 3), None),
        (torch.empty(1, 1, 16, 16, device="meta"), None),
    ],
    ids=["points", "features", "words", "diffusion", "sparse", "constant", "nan", "small", "meta"],
)
def test_what_cannot_be_told_is_not(inputs: Any, target: Any) -> None:
    assert not noted([(inputs, target)])
    assert not noted([(inputs, None if target is None else target.bool())])


def test_batches_are_handed_on_once_and_as_they_are() -> None:
    batches = [(torch.randn(1, 1, 8, 8), None), "no pair", (1, 2, 3)]
    drawn = 0

    def stream() -> Iterator[Any]:
        nonlocal drawn
        for batch in batches:
            drawn += 1
            yield batch

    watched = Watched(stream())
    first = next(iter(watched))
    assert first is batches[0]
    assert drawn == 1
    assert len(Watched(batches)) == 3
    with pytest.raises(TypeError):
        len(Watched(stream()))


def net() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 2, 1))


def test_pruning_on_noise_says_so_and_on_data_does_not(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    noise = [(torch.randn(2, 1, 8, 8, 8), torch.randint(2, (2, 8, 8, 8))) for _ in range(2)]
    image = smooth(2, 1, 8, 8, 8)
    with caplog.at_level(logging.WARNING, "ranp"):
        pruned = ranp.prune(net(), noise, cross_entropy, sparsity=0.5)
        assert "look like noise" in caplog.text
        assert "scored on noise: neighbours in the inputs" in str(pruned.report)
        caplog.clear()
        clean = ranp.prune(net(), [(image, (image[:, 0] > 0).long())], cross_entropy, sparsity=0.5)
        blind = ranp.prune(net(), noise, cross_entropy, sparsity=0.5, method="random")  # looks at no batch
    assert not caplog.records
    assert "noise" not in str(clean.report) + str(blind.report)
    assert "data_note" not in {**clean.plan.settings, **blind.plan.settings}
