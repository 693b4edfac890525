"""A real FlyingThings3D pair: shapes, ranges, and the geometry that ties images, disparities and masks together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranp.errors import DataError
from ranp.paper.tasks import get
from ranp.paper.tasks.sceneflow.pfm import read_pfm
from tests.support.real_data import real_data

pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def folder():
    return real_data("sceneflow")


@pytest.fixture(scope="module")
def task(folder):
    return get("sceneflow", folder, allow_missing=True)


@pytest.fixture(scope="module")
def whole(task):
    """The pair without crop or padding: views (H, W, 3), disparity, occlusion."""
    data = task.train_data(256)
    data.crop = None
    (left, right), target = data.draw(0)
    views = [view[:, 4:].permute(1, 2, 0).double().numpy() for view in (left, right)]
    return (*views, target[0, 4:].double().numpy(), target[1, 4:].numpy())


def warped(view: np.ndarray, disparity: np.ndarray) -> np.ndarray:
    columns = (np.arange(960) - disparity).clip(0, 959)
    before = np.floor(columns).astype(int).clip(max=958)
    share = (columns - before)[..., None]
    rows = np.arange(540)[:, None]
    return view[rows, before] * (1 - share) + view[rows, before + 1] * share


def test_shapes_ranges_and_counts(task, whole):
    left, right, disparity, occluded = whole
    assert left.shape == right.shape == (540, 960, 3)
    assert disparity.shape == occluded.shape == (540, 960)
    assert 1 < disparity.min() < disparity.max() < 192
    assert set(np.unique(occluded)) == {0, 1}
    assert 0.05 < occluded.mean() < 0.4
    assert -2.2 < left.min() < left.max() < 2.7
    assert len(task.train_data(256)) == 1
    assert "without an official split: 1" in task.source.summary


def test_there_is_no_split_and_nothing_to_validate_on(folder, task):
    with pytest.raises(DataError, match=r"no TRAIN or TEST folder: 1, .*A-0032-0006\.png.*--allow-missing"):
        get("sceneflow", folder)
    with pytest.raises(DataError, match=r"no pair to validate on: .* a second pair"):
        task.valid_data(256)


def test_the_right_view_warped_by_the_disparity_explains_the_left_one(whole):
    left, right, disparity, occluded = whole
    visible = occluded == 0

    def error(view: np.ndarray) -> float:
        return float(np.abs(view - left).mean(axis=-1)[visible].mean())

    explained = error(warped(right, disparity))
    assert explained < 0.1 * error(right)
    assert explained < 0.1 * error(warped(right, -disparity))
    assert explained < 0.1 * error(warped(right, disparity[::-1]))
    for off in (-3, 3):
        assert explained < 0.3 * error(warped(right, disparity + off))


def test_masks_agree_with_the_right_views_own_disparity(folder, whole):
    """Where the right view's disparity at x - d is another one, or x - d lies outside, the point is occluded."""
    _, _, disparity, occluded = whole
    mirrored = np.abs(read_pfm(next((folder / "disparity" / "right").iterdir())))
    columns = np.rint(np.arange(960) - disparity).astype(int)
    there = mirrored[np.arange(540)[:, None], columns.clip(0)]
    hidden = (columns < 0) | (np.abs(there - disparity) > 1)
    assert (hidden == (occluded == 1)).mean() > 0.99


def test_crops_are_windows_of_the_whole_and_repeat(task, whole):
    left, right, disparity, occluded = whole
    data = task.train_data(256, seed=5)
    corners = set()
    for visit in range(3):
        (one, two), target = data.draw(0, visit)
        assert one.shape == two.shape == (3, 256, 512)
        assert target.shape == (2, 256, 512)
        assert torch.equal(data.draw(0, visit)[1], target)
        first = target[0].double().numpy()
        candidates = np.argwhere(disparity[:285, :449] == first[0, 0])
        matches = [(r, c) for r, c in candidates if (disparity[r : r + 256, c : c + 512] == first).all()]
        assert len(matches) == 1
        row, column = matches[0]
        window = slice(row, row + 256), slice(column, column + 512)
        np.testing.assert_array_equal(one.permute(1, 2, 0).numpy(), left[window])
        np.testing.assert_array_equal(two.permute(1, 2, 0).numpy(), right[window])
        np.testing.assert_array_equal(target[1].numpy(), occluded[window])
        corners.add((int(row), int(column)))
    assert len(corners) == 3


def test_the_pair_passes_the_check_and_larger_crops_do_not(task):
    seen: list[tuple[int, int]] = []
    task.train_data(256).check(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 1)]
    with pytest.raises(DataError, match="540 x 960, too small for crops of 512 x 1024; pass a size of at most 480"):
        task.train_data(512).check()


def test_exact_disparity_scores_perfectly_and_no_matching_does_not(task, whole):
    _, _, disparity, occluded = whole
    target = torch.from_numpy(np.stack((disparity, occluded))[None]).float()
    assert task.metrics(target[:, 0], target) == {
        **{f"epe{s}": 0.0 for s in ("", "_visible")},
        **{f"acc{n}{s}": 1.0 for n in (1, 3) for s in ("", "_visible")},
    }
    flat = task.metrics(torch.full((1, 540, 960), float(np.median(disparity))), target)
    assert flat["epe"] > 3
    assert flat["epe_visible"] != flat["epe"]
