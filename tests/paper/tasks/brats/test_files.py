"""BraTS folders: layouts and names that are understood, and bad ones that are refused with what is wrong."""

from __future__ import annotations

import gzip
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from ranp.errors import DataError, UnsupportedError
from ranp.paper import tasks
from ranp.paper.tasks.brats.cases import open_folder
from ranp.paper.tasks.brats.files import Case, find_cases, read_voxels
from ranp.paper.tasks.brats.preprocessing import prepare
from tests.support.brats_on_disk import MODALITIES, SHAPE, scanned, write_2018, write_case, write_nifti


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANP_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_the_layout_of_2018(tmp_path: Path) -> None:
    write_2018(tmp_path, 3, 2)
    (tmp_path / "survival_data.csv").write_text("BraTS18ID,Age,Survival\n")
    cases, left_out = find_cases(tmp_path)
    assert [case.grade for case in cases] == ["HGG"] * 3 + ["LGG"] * 2
    assert left_out == 0
    for case in cases:
        assert tuple(case.images) == MODALITIES
        assert case.mask is None
        for name, path in case.images.items():
            assert path == tmp_path / case.grade / case.name / f"{case.name}_{name}.nii.gz"
        assert case.labels.name == f"{case.name}_seg.nii.gz"


def test_cases_side_by_side_and_other_spellings(tmp_path: Path) -> None:
    images, labels = scanned(0)
    for case in ("BraTS20_Training_001", "t1_patient"):  # a name that sounds like a modality
        for name, voxels in zip(("Flair", "T1c", "T1", "T2"), images, strict=True):
            write_nifti(tmp_path / case / f"{case}_{name}.nii", voxels)
    write_nifti(tmp_path / "BraTS20_Training_001" / "BraTS20_Training_001_seg.nii", labels)
    write_nifti(tmp_path / "t1_patient" / "W39_1998.09.19_Segm.nii", labels)
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "read.me").write_text("nothing")
    cases, left_out = find_cases(tmp_path)
    assert [case.name for case in cases] == ["BraTS20_Training_001", "t1_patient"]
    assert [case.grade for case in cases] == ["", ""]
    assert left_out == 0
    assert all(tuple(case.images) == MODALITIES for case in cases)
    assert cases[1].images["t1"].name == "t1_patient_T1.nii"


def test_the_source_says_what_is_there(tmp_path: Path) -> None:
    write_2018(tmp_path, 7, 4)
    source = open_folder(tmp_path, allow_missing=False, fold=0)
    assert source.options == {"in_channels": 4}
    assert source.summary == (
        "11 cases (7 HGG, 4 LGG); modalities flair, t1ce, t1, t2; fold 0 of 5: 8 to train on, 3 to validate on"
    )
    train, valid = source.train_data(size=8), source.valid_data(size=8)
    assert (len(train), len(valid)) == (8, 3)
    assert len(source.train_data(size=8, count=50)) == 50
    assert train[0][0].shape == (4, 8, 8, 8)
    assert valid[0][0].shape == (4, 10, 6, 8)
    seen: list[tuple[int, int]] = []
    train.check(lambda done, of: seen.append((done, of)))
    assert seen == [(n, 8) for n in range(1, 9)]


def test_every_case_validates_in_one_fold(tmp_path: Path) -> None:
    write_2018(tmp_path, 3, 3)
    images = [open_folder(tmp_path, allow_missing=False, fold=fold).valid_data(size=8) for fold in (0, 1)]
    volumes = {data[index][0].numpy().tobytes() for data in images for index in range(len(data))}
    assert len(volumes) == 6


def test_fewer_modalities_are_fewer_channels(tmp_path: Path) -> None:
    for number in range(2):
        write_case(tmp_path / f"case{number}", number, ("t2", "flair"))
    source = open_folder(tmp_path, allow_missing=False, fold=1)
    assert source.options == {"in_channels": 2}
    assert source.train_data(size=8)[0][0].shape == (2, 8, 8, 8)
    assert "modalities flair, t2;" in source.summary


def test_incomplete_cases_are_left_out_if_that_is_allowed(tmp_path: Path) -> None:
    write_2018(tmp_path, 3, 2)
    (tmp_path / "LGG" / "Brats18_LGG_00_1" / "Brats18_LGG_00_1_t2.nii.gz").unlink()
    shutil.rmtree(tmp_path / "HGG" / "Brats18_HGG_02_1")
    (tmp_path / "HGG" / "Brats18_HGG_02_1").mkdir()
    source = open_folder(tmp_path, allow_missing=True, fold=0)
    assert "3 cases (2 HGG, 1 LGG), 2 of 5 left out as incomplete" in source.summary
    assert source.options == {"in_channels": 4}


def read(folder: Path) -> None:
    source = tasks.get("brats", folder).source
    for data in (source.train_data(size=8), source.valid_data(size=8)):
        data.check()


def refused(folder: Path, *said: str) -> None:
    """Opening, checking or drawing is refused, in one message that says all of that."""
    with pytest.raises(DataError) as caught:
        read(folder)
    for part in said:
        assert part in str(caught.value), str(caught.value)
    assert len(re.findall(r"[.?] [A-Z]", str(caught.value))) <= 2


def test_a_folder_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "cat.png").write_bytes(b"")
    (tmp_path / "readme.txt").write_text("")
    refused(tmp_path, "does not look like BraTS", "HGG/<case>/<case>_flair.nii.gz", "Found", "images, readme.txt")
    refused(tmp_path / "images" / "cat.png", "is not a folder", "Pass the folder of the brats data set")


def test_an_empty_folder(tmp_path: Path) -> None:
    refused(tmp_path, "does not look like BraTS", "Found", "nothing")


def test_the_folder_of_one_case(tmp_path: Path) -> None:
    case = write_case(tmp_path / "case")
    refused(case, "does not look like BraTS", "case_flair.nii.gz", "the cases")


def test_one_case_only(tmp_path: Path) -> None:
    write_case(tmp_path / "case")
    refused(tmp_path, "1 complete case found", "at least 2")


def test_a_missing_modality(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    (tmp_path / "HGG" / "Brats18_HGG_01_1" / "Brats18_HGG_01_1_t1ce.nii.gz").unlink()
    refused(tmp_path, "Brats18_HGG_01_1", "lacks t1ce", "flair, t1ce, t1, t2", "--allow-missing")


def test_a_case_without_labels(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    (tmp_path / "LGG" / "Brats18_LGG_00_1" / "Brats18_LGG_00_1_seg.nii.gz").unlink()
    refused(tmp_path, "Brats18_LGG_00_1", "lacks labels", "_seg.nii.gz", "--allow-missing")


def test_two_files_for_one_modality(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    case = tmp_path / "HGG" / "Brats18_HGG_00_1"
    write_nifti(case / "Brats18_HGG_00_1_flair.nii", scanned(0)[0][0])
    refused(tmp_path, "two files for flair", "Brats18_HGG_00_1_flair.nii'", "Keep one")


def test_names_since_2023_whose_labels_mean_something_else(tmp_path: Path) -> None:
    write_case(tmp_path / "BraTS-GLI-00000-000")
    write_nifti(tmp_path / "BraTS-GLI-00000-000" / "BraTS-GLI-00000-000-t2f.nii.gz", scanned(0)[0][0])
    refused(tmp_path, "BraTS-GLI-00000-000-t2f.nii.gz", "BraTS 2023", "change label 3 to 4")


@pytest.mark.parametrize(("label", "said"), [(5, "label 5"), (-1, "label -1"), (1.5, "label 1.5")])
def test_a_label_that_does_not_exist(tmp_path: Path, label: float, said: str) -> None:
    write_2018(tmp_path, 2, 1)
    labels = scanned(0)[1].astype(np.float32)
    labels[5, 5, 5] = label
    write_nifti(tmp_path / "HGG" / "Brats18_HGG_01_1" / "Brats18_HGG_01_1_seg.nii.gz", labels)
    refused(
        tmp_path, "Brats18_HGG_01_1_seg.nii.gz", said, "0 background, 1 necrosis, 2 edema", "4 enhancing", "Mend it"
    )


@pytest.mark.parametrize("ending", ["flair", "seg"])
def test_a_torn_file(tmp_path: Path, ending: str) -> None:
    write_2018(tmp_path, 2, 1)
    path = tmp_path / "HGG" / "Brats18_HGG_01_1" / f"Brats18_HGG_01_1_{ending}.nii.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(tmp_path, path.name, "cannot be read as NIfTI", "torn", "Fetch it again")


def test_a_file_that_is_whole_but_short(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    path = tmp_path / "HGG" / "Brats18_HGG_00_1" / "Brats18_HGG_00_1_t2.nii.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-100]))
    refused(tmp_path, path.name, "cannot be read as NIfTI", "Fetch it again")


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>404 Not Found</html>", gzip.compress(b"nothing of the kind" * 40)],
    ids=["empty", "page", "another archive"],
)
def test_a_file_that_is_not_nifti(tmp_path: Path, content: bytes) -> None:
    write_2018(tmp_path, 2, 1)
    path = tmp_path / "HGG" / "Brats18_HGG_01_1" / "Brats18_HGG_01_1_t1.nii.gz"
    path.write_bytes(content)
    refused(tmp_path, path.name, "cannot be read as NIfTI", "another kind of file")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_voxel_that_is_no_number(tmp_path: Path, value: float) -> None:
    write_2018(tmp_path, 2, 1)
    voxels = scanned(0)[0][2].astype(np.float32)
    voxels[3:5, 4, 4] = value
    path = write_nifti(tmp_path / "LGG" / "Brats18_LGG_00_1" / "Brats18_LGG_00_1_t1.nii.gz", voxels)
    refused(tmp_path, path.name, "2 voxels", "NaN or infinite")


@pytest.mark.parametrize("ending", ["t2", "seg"])
def test_shapes_that_differ(tmp_path: Path, ending: str) -> None:
    write_2018(tmp_path, 2, 1)
    path = tmp_path / "HGG" / "Brats18_HGG_01_1" / f"Brats18_HGG_01_1_{ending}.nii.gz"
    write_nifti(path, scanned(0, (14, 12, 11))[1])
    refused(tmp_path, path.name, "(14, 12, 11)", "(14, 12, 10)", "Brats18_HGG_01_1_flair.nii.gz", "resample")


def test_affines_that_differ(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    path = tmp_path / "HGG" / "Brats18_HGG_01_1" / "Brats18_HGG_01_1_seg.nii.gz"
    write_nifti(path, scanned(0)[1], np.diag([1.0, 1.0, 2.0, 1.0]))
    refused(tmp_path, path.name, "affine", "2.0", "Brats18_HGG_01_1_flair.nii.gz")


def test_four_dimensions(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    path = tmp_path / "HGG" / "Brats18_HGG_00_1" / "Brats18_HGG_00_1_flair.nii.gz"
    write_nifti(path, np.ones((*SHAPE, 4), dtype=np.float32))
    refused(tmp_path, path.name, "(14, 12, 10, 4)", "three dimensions")


def test_a_scan_without_a_brain_or_without_contrast(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    case = tmp_path / "HGG" / "Brats18_HGG_00_1"
    write_nifti(case / "Brats18_HGG_00_1_t1.nii.gz", np.where(scanned(0)[0][0] > 0, 7, 0).astype(np.int16))
    refused(tmp_path, "Brats18_HGG_00_1_t1.nii.gz", "cannot be normalised", "all voxels of the brain are")
    for name in MODALITIES:
        write_nifti(case / f"Brats18_HGG_00_1_{name}.nii.gz", np.zeros(SHAPE, dtype=np.int16))
    refused(tmp_path, "Brats18_HGG_00_1", "no brain")


def test_a_file_that_goes_away(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    data = tasks.get("brats", tmp_path).train_data(size=8)
    shutil.rmtree(tmp_path / "HGG")
    with pytest.raises(DataError, match=r"Brats18_HGG_0._1_flair.nii.gz' cannot be read.*bring it back"):
        data.check()


def test_a_fold_that_few_cases_do_not_have(tmp_path: Path) -> None:
    write_2018(tmp_path, 2, 1)
    with pytest.raises(DataError, match=r"fold=2: 3 cases have folds 0 to 1 .*five folds need 10"):
        tasks.get("brats", tmp_path, fold=2)


def test_scaled_integers_are_read_as_the_header_says(tmp_path: Path) -> None:
    import nibabel

    stored = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    image = nibabel.Nifti1Image(stored, np.eye(4))
    image.header.set_slope_inter(0.5, -3)
    nibabel.save(image, tmp_path / "x.nii.gz")
    again = nibabel.load(tmp_path / "x.nii.gz")
    np.testing.assert_allclose(read_voxels(tmp_path / "x.nii.gz")[0], again.get_fdata())


def test_a_normalised_name_with_a_scanners_values(tmp_path: Path) -> None:
    images, labels = scanned(0)
    flair = write_nifti(tmp_path / "a" / "Flair_subtrMeanDivStd.nii.gz", images[0].astype(np.float32) * 1000)
    case = Case("a", "", {"flair": flair}, write_nifti(tmp_path / "a" / "OTMultiClass.nii.gz", labels))
    with pytest.raises(DataError, match=r"Flair_subtrMeanDivStd.nii.gz' says that it is normalised but holds .*Rename"):
        prepare(case)


def test_without_nibabel_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_2018(tmp_path, 1, 1)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(UnsupportedError, match=r"nibabel\. Install it with: pip install 'ranp\[medical\]'"):
        read(tmp_path)
