"""Preprocessing: percentiles and z-scores by plain numpy, what is normalised already, and the real sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ranp.paper.tasks import get
from ranp.paper.tasks.brats.files import find_cases
from ranp.paper.tasks.brats.preprocessing import bounds, normalise, prepare
from tests.support.brats_on_disk import MODALITIES, SHAPE, scanned, write_case, write_nifti
from tests.support.real_data import real_data


def expected(voxels: npt.NDArray[np.float64], brain: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Clip and z-score, with the percentile as its definition says: linear between the sorted values."""
    values = np.sort(voxels[brain])

    def percentile(q: float) -> float:
        place = q / 100 * (len(values) - 1)
        low = int(np.floor(place))
        return float(values[low] + (place - low) * (values[min(low + 1, len(values) - 1)] - values[low]))

    clipped = np.minimum(np.maximum(voxels, percentile(0.2)), percentile(99.8))
    mean = clipped[brain].sum() / brain.sum()
    spread = np.sqrt(((clipped[brain] - mean) ** 2).sum() / brain.sum())
    return np.where(brain, (clipped - mean) / spread, 0)


def test_a_case_is_clipped_and_scored_inside_the_brain_and_cut_to_it(tmp_path: Path) -> None:
    shape = (40, 30, 24)  # large enough for the percentiles to cut something
    write_case(tmp_path / "case", 3, shape=shape)
    images, labels = scanned(3, shape)
    brain = np.any(images > 0, axis=0)
    box = np.s_[2:-2, 3:-3, 1:-1]
    volume = prepare(find_cases(tmp_path)[0][0])
    for channel, voxels in zip(volume.image, images, strict=True):
        wanted = expected(voxels.astype(np.float64), brain)
        np.testing.assert_allclose(channel, wanted[box], rtol=1e-3, atol=1e-4)
        assert np.count_nonzero(voxels[brain] > np.percentile(voxels[brain], 99.8)) > 0
    np.testing.assert_array_equal(volume.labels, labels[box])
    assert (volume.image.dtype, volume.labels.dtype) == (np.float16, np.uint8)


def test_normalising_is_exact_and_leaves_zero_outside() -> None:
    rng = np.random.default_rng(0)
    voxels = rng.gamma(2, 50, (20, 20, 20)).astype(np.float32)
    brain = rng.random((20, 20, 20)) < 0.4
    result = normalise(voxels, brain)
    np.testing.assert_allclose(result, expected(voxels.astype(np.float64), brain), atol=1e-5)
    assert not result[~brain].any()
    assert abs(result[brain].mean()) < 1e-5
    assert abs(result[brain].std() - 1) < 1e-5
    np.testing.assert_allclose(normalise(3 * voxels, brain), result, atol=1e-5)  # a scanner's gain does not matter


def test_a_brain_mask_file_is_used(tmp_path: Path) -> None:
    case = write_case(tmp_path / "case", 0)
    mask = np.zeros(SHAPE, dtype=np.float32)
    mask[3:11, 4:8, 2:8] = 0.99999997
    mask[0, 0, 0] = 0.3
    write_nifti(case / "brainmask.nii.gz", mask)
    images, labels = scanned(0)
    volume = prepare(find_cases(tmp_path)[0][0])
    box = np.s_[3:11, 4:8, 2:8]
    assert volume.labels.shape == (8, 4, 6)
    np.testing.assert_array_equal(volume.labels, labels[box])
    wanted = expected(images[1].astype(np.float64), mask > 0.5)[box]
    np.testing.assert_allclose(volume.image[1], wanted, rtol=1e-3, atol=1e-4)


def test_labels_outside_of_the_brain_are_not_cut_off(tmp_path: Path) -> None:
    case = write_case(tmp_path / "case", 0)
    labels = scanned(0)[1]
    labels[0, 6, 9] = 2
    write_nifti(case / "case_seg.nii.gz", labels)
    volume = prepare(find_cases(tmp_path)[0][0])
    assert np.bincount(volume.labels.ravel(), minlength=5).tolist()[1:] == np.bincount(labels.ravel()).tolist()[1:]
    assert volume.labels[0, 3, 8] == 2
    assert not volume.image[:, 0].any()


@pytest.mark.parametrize("background", [0.0, -4.5])
def test_volumes_that_are_normalised_already_stay_as_they_are(tmp_path: Path, background: float) -> None:
    images, labels = scanned(1)
    brain = np.any(images > 0, axis=0)
    for name, voxels in zip(MODALITIES, images, strict=True):
        scores = expected(voxels.astype(np.float64), brain).astype(np.float32)
        write_nifti(tmp_path / "case" / f"case_{name}.nii.gz", np.where(brain, scores, np.float32(background)))
    write_nifti(tmp_path / "case" / "case_seg.nii.gz", labels)
    volume = prepare(find_cases(tmp_path)[0][0])
    assert volume.image.shape == (4, 10, 6, 8)
    for channel, voxels in zip(volume.image, images, strict=True):
        wanted = expected(voxels.astype(np.float64), brain)[2:-2, 3:-3, 1:-1].astype(np.float32)
        np.testing.assert_array_equal(channel, wanted.astype(np.float16))


def test_a_scanners_values_with_a_few_below_zero_are_still_normalised(tmp_path: Path) -> None:
    case = write_case(tmp_path / "case", 0)
    voxels = scanned(0)[0][0]
    voxels[5, 5, 5] = -3
    write_nifti(case / "case_flair.nii.gz", voxels)
    assert np.abs(prepare(find_cases(tmp_path)[0][0]).image[0].astype(np.float32)).max() < 6


def test_the_box_around_a_mask() -> None:
    mask = np.zeros((9, 8, 7), dtype=bool)
    mask[2, 3, 6] = mask[5, 1, 4] = True
    assert bounds(mask) == np.s_[2:6, 1:4, 4:7]


@pytest.mark.slow
def test_the_real_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four patients of 2015: two modalities, a brain mask, values that are normalised already, labels 0 to 4."""
    import nibabel

    folder = real_data("brats2015")
    monkeypatch.setenv("RANP_CACHE", str(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    task = get("brats", folder)
    assert task.source.options == {"in_channels": 2}
    assert task.source.summary == (
        "4 cases (4 no grade); modalities flair, t1ce; fold 0 of 2: 2 to train on, 2 to validate on"
    )
    train, valid = task.train_data(32, count=12), task.valid_data(32)
    assert (len(train), len(valid)) == (12, 2)
    for index in range(2):
        image, labels = valid[index]
        case = valid.cases.cases[index]  # type: ignore[attr-defined]
        files = {
            path.name.split("_")[0].split(".")[0]: np.asarray(nibabel.load(path).dataobj, dtype=np.float32)
            for path in case.files
        }
        brain = files["brainmask"] > 0.5
        spans = [
            np.flatnonzero((brain | (files["OTMultiClass"] > 0)).any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1))
        ]
        box = tuple(slice(span[0], span[-1] + 1) for span in spans)
        assert image.shape == (2, *brain[box].shape)
        assert all(100 < edge < 180 for edge in image.shape[1:])
        np.testing.assert_array_equal(labels, files["OTMultiClass"][box])
        assert np.unique(labels).tolist() == [0, 1, 2, 3, 4]
        for channel, name in zip(image.numpy(), ("Flair", "T1c"), strict=True):
            inside = brain[box]
            np.testing.assert_array_equal(channel[inside], files[name][brain].astype(np.float16))
            assert not channel[~inside].any()
            assert -8 < channel.min() < -1
            assert 2 < channel.max() < 15
        assert image[0][labels == 2].mean() > image[0][labels == 0].mean() + 1  # edema is bright in flair
        assert image[1][labels == 4].mean() > image[1][labels == 2].mean() + 0.5  # enhancing tumour is bright in t1ce
    crops = [train.draw(index, 1) for index in range(12)]
    assert all(image.shape == (2, 32, 32, 32) for image, _ in crops)
    assert sum(bool(labels.any()) for _, labels in crops) >= 6
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
