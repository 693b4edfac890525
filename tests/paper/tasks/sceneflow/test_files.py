"""SceneFlow in files: every layout of the releases, small, and everything that can be wrong with one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from ranp.errors import DataError
from ranp.paper.tasks import get
from ranp.paper.tasks.sceneflow.files import open_folder
from ranp.paper.tasks.sceneflow.pairs import FilePairs

Image = pytest.importorskip("PIL.Image")

HEIGHT, WIDTH = 36, 70


def coded(number: int, side: int) -> np.ndarray:
    """An image that tells of each pixel the row, the column, and whose it is."""
    image = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    image[..., 0], image[..., 1], image[..., 2] = np.arange(HEIGHT)[:, None], np.arange(WIDTH), 2 * number + side
    return image


def disparity_of(number: int) -> np.ndarray:
    return (np.arange(HEIGHT)[:, None] + np.arange(WIDTH) / 100 + 1 + number).astype(np.float32)


def write_image(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **({"lossless": True} if path.suffix == ".webp" else {}))


def write_pfm(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f"Pf\n{values.shape[1]} {values.shape[0]}\n-1\n".encode()
    path.write_bytes(header + values[::-1].astype("<f4").tobytes())


def write_pair(root: Path, left: str, disparity: str, number: int = 0, occlusion: str = "") -> None:
    write_image(root / left, coded(number, 0))
    write_image(root / left.replace("left", "right"), coded(number, 1))
    write_pfm(root / disparity, disparity_of(number))
    if occlusion:
        write_image(
            root / occlusion, np.where(np.arange(WIDTH) < 9, 255, 0).astype(np.uint8) * np.ones((HEIGHT, 1), "u1")
        )


LAYOUTS = {
    "frames_cleanpass/TRAIN/A/0000/left/0006.png": (
        "disparity/TRAIN/A/0000/left/0006.pfm",
        "train",
        "FlyingThings3D 1",
    ),
    "frames_cleanpass/TEST/C/0149/left/0015.png": ("disparity/TEST/C/0149/left/0015.pfm", "valid", "FlyingThings3D 1"),
    "frames_finalpass_webp/TRAIN/B/0001/left/0006.webp": ("disparity/TRAIN/B/0001/left/0006.pfm", "train", "Flying"),
    "FlyingThings3D/frames_finalpass/TRAIN/A/0000/left/0006.png": (
        "FlyingThings3D/disparity/TRAIN/A/0000/left/0006.pfm",
        "train",
        "FlyingThings3D 1 of 22390",
    ),
    "flyingthings3d__frames_cleanpass/TEST/A/0000/left/0006.png": (
        "flyingthings3d__disparity/TEST/A/0000/left/0006.pfm",
        "valid",
        "FlyingThings3D 1 of 4370",
    ),
    "flyingthings3d__frames_cleanpass/frames_cleanpass/TRAIN/A/0000/left/0006.png": (
        "flyingthings3d__disparity/disparity/TRAIN/A/0000/left/0006.pfm",
        "train",
        "FlyingThings3D 1 of 22390",
    ),
    "frames_cleanpass/funnyworld_x2/left/0001.png": (
        "disparity/funnyworld_x2/left/0001.pfm",
        "train",
        "Monkaa 1 of 8664",
    ),
    "monkaa_frames_cleanpass/eating_x2/left/0001.png": (
        "monkaa_disparity/eating_x2/left/0001.pfm",
        "train",
        "Monkaa 1",
    ),
    "frames_cleanpass/TRAIN/eating_x2/left/0001.png": (
        "frames_disparity/TRAIN/eating_x2/left/0001.pfm",
        "train",
        "Monkaa",
    ),
    "frames_cleanpass/15mm_focallength/scene_forwards/fast/left/0001.png": (
        "disparity/15mm_focallength/scene_forwards/fast/left/0001.pfm",
        "train",
        "Driving 1 of 4400",
    ),
    "Sampler/Driving/RGB_cleanpass/left/0400.png": ("Sampler/Driving/disparity/left/0400.pfm", "train", "Driving 1"),
    "train/image_clean/left/0000000.png": ("train/disparity/left/0000000.pfm", "train", "subset 1 of 21818"),
    "sub/val/image_clean/left/0000004.png": ("sub/val/disparity/left/0000004.pfm", "valid", "subset 1 of 4248"),
    "RGB_cleanpass/left/A-1.png": ("disparity/left/A-1.pfm", "train", "others 1"),
}


@pytest.mark.parametrize("left", LAYOUTS)
def test_every_layout_is_one_rule(tmp_path, left):
    disparity, part, words = LAYOUTS[left]
    write_pair(tmp_path, left, disparity)
    source = open_folder(tmp_path, allow_missing=True, fold=0)
    assert words in source.summary
    data = source.train_data(16) if part == "train" else source.valid_data(16)
    assert [(pair.left, pair.disparity) for pair in data.pairs] == [(tmp_path / left, tmp_path / disparity)]
    assert data.pairs[0].right == tmp_path / left.replace("left", "right")
    with pytest.raises(DataError, match="no pair to " + ("validate" if part == "train" else "train")):
        (source.valid_data if part == "train" else source.train_data)(16)


@pytest.mark.parametrize("masks", ["disparity_occlusions", "occlusion"])
def test_masks_are_found_and_not_taken_for_images(tmp_path, masks):
    write_pair(tmp_path, "train/image_clean/left/1.png", "train/disparity/left/1.pfm", 0, f"train/{masks}/left/1.png")
    source = open_folder(tmp_path, allow_missing=True, fold=0)
    assert "with an occlusion mask: 1" in source.summary
    _, target = source.train_data(32)[0]
    columns = (((target[0] % 1) * 100).round().long()) % 100  # the column is in the disparity's fraction
    assert torch.equal(target[1], (columns < 9).float())


def test_collections_lie_side_by_side(tmp_path):
    write_pair(tmp_path, "frames_cleanpass/TRAIN/A/0000/left/0006.png", "frames_disparity/TRAIN/A/0000/left/0006.pfm")
    write_pair(tmp_path, "frames_cleanpass/TEST/A/0000/left/0006.png", "frames_disparity/TEST/A/0000/left/0006.pfm")
    write_pair(tmp_path, "monkaa_frames_cleanpass/a_x2/left/0001.png", "monkaa_disparity/a_x2/left/0001.pfm")
    scene = "35mm_focallength/scene_backwards/slow/left/0001"
    write_pair(tmp_path, f"driving_frames_cleanpass/{scene}.png", f"driving_disparity/{scene}.pfm")
    source = open_folder(tmp_path, allow_missing=True, fold=0)
    assert (len(source.train_data(16)), len(source.valid_data(16))) == (3, 1)
    assert "train on: 3 (Driving 1 of 4400, FlyingThings3D 1 of 22390, Monkaa 1 of 8664)" in source.summary
    assert source.options == {"disparities": 192}


def test_clean_pass_goes_before_final_pass_and_png_before_webp(tmp_path):
    for name in ("frames_cleanpass", "frames_finalpass"):
        write_pair(tmp_path, f"{name}/a_x2/left/0001.png", "disparity/a_x2/left/0001.pfm")
    write_image(tmp_path / "frames_cleanpass/a_x2/left/0001.webp", coded(5, 0))
    data = open_folder(tmp_path, allow_missing=True, fold=0).train_data(16)
    assert [pair.left for pair in data.pairs] == [tmp_path / "frames_cleanpass/a_x2/left/0001.png"]


def test_subset_is_left_out_beside_the_whole(tmp_path):
    write_pair(tmp_path, "frames_cleanpass/TRAIN/A/0000/left/0006.png", "disparity/TRAIN/A/0000/left/0006.pfm")
    write_pair(tmp_path, "train/image_clean/left/0000000.png", "train/disparity/left/0000000.pfm")
    source = open_folder(tmp_path, allow_missing=True, fold=0)
    assert len(source.train_data(16)) == 1
    assert "subset" not in source.summary


def sample_pack(root: Path, count: int) -> Path:
    for number in range(count):
        write_pair(root, f"RGB_cleanpass/left/{number:02}.png", f"disparity/left/{number:02}.pfm", number)
    return root


@pytest.mark.parametrize(("count", "held_out"), [(2, ["01"]), (4, ["03"]), (11, ["09", "10"])])
def test_without_a_split_the_last_fifth_validates(tmp_path, count, held_out):
    source = open_folder(sample_pack(tmp_path, count), allow_missing=True, fold=0)
    trained = [pair.left.stem for pair in source.train_data(16).pairs]
    assert [pair.left.stem for pair in source.valid_data(16).pairs] == held_out
    assert sorted(trained + held_out) == [f"{number:02}" for number in range(count)]
    assert f"without an official split: {count}" in source.summary


def test_fewer_than_all_are_spread_and_more_than_all_are_all(tmp_path):
    source = open_folder(sample_pack(tmp_path, 10), allow_missing=True, fold=0)
    assert [pair.left.stem for pair in source.train_data(16, count=4).pairs] == ["00", "02", "04", "06"]
    assert len(source.train_data(16, count=500)) == 8


def test_crops_take_the_same_window_of_everything(tmp_path):
    data = open_folder(sample_pack(tmp_path, 3), allow_missing=True, fold=0).train_data(16, seed=3)
    assert data.varies
    corners = set()
    for index in range(2):
        for visit in range(12):
            (left, right), target = data.draw(index, visit)
            views = [unnormalised(view) for view in (left, right)]
            assert left.shape == right.shape == (3, 16, 32)
            assert left.dtype == target.dtype == torch.float32
            rows, columns = views[0][0], views[0][1]
            for side, view in enumerate(views):
                assert torch.equal(view[:2], views[0][:2])
                assert (view[2] == 2 * index + side).all()
            torch.testing.assert_close(target[0], rows + columns / 100 + 1 + index)
            assert (target[1] == -1).all()
            assert torch.equal(rows, rows[0, 0] + torch.arange(16.0)[:, None].expand(16, 32))
            assert torch.equal(columns, columns[0, 0] + torch.arange(32.0).expand(16, 32))
            corners.add((int(rows[0, 0]), int(columns[0, 0])))
    assert len(corners) > 12
    assert max(row for row, _ in corners) > 10
    assert max(column for _, column in corners) > 19


def unnormalised(view: torch.Tensor) -> torch.Tensor:
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((view * deviation[:, None, None] + mean[:, None, None]) * 255).round()


def test_a_sample_depends_on_seed_index_and_visit_alone(tmp_path):
    source = open_folder(sample_pack(tmp_path, 5), allow_missing=True, fold=0)
    one, two = source.train_data(16, seed=1), source.train_data(16, seed=1)
    two.draw(0, 0)
    assert torch.equal(one.draw(2, 5)[1], two.draw(2, 5)[1])
    others = [one.draw(2, 6), one.draw(1, 5), source.train_data(16, seed=2).draw(2, 5)]
    assert not any(torch.equal(one.draw(2, 5)[1], other[1]) for other in others)


def test_whole_pictures_are_padded_above_and_at_the_right(tmp_path):
    data = open_folder(sample_pack(tmp_path, 2), allow_missing=True, fold=0).valid_data(16)
    assert not data.varies
    (left, right), target = data[0]
    assert left.shape == right.shape == (3, 48, 80)
    assert target.shape == (2, 48, 80)
    torch.testing.assert_close(target[0, 12:, :70], torch.from_numpy(disparity_of(1)))
    assert torch.equal(unnormalised(left[:, 12:, :70]).byte(), torch.from_numpy(coded(1, 0)).permute(2, 0, 1))
    padding = torch.ones(48, 80, dtype=torch.bool)
    padding[12:, :70] = False
    assert (target[:, padding] == -1).all()
    assert (left[:, padding] == 0).all()
    assert (right[:, padding] == 0).all()


def test_negative_disparities_are_turned_and_unknown_ones_are_minus_one(tmp_path):
    sample_pack(tmp_path, 2)
    values = -disparity_of(1)
    values[0, :4] = np.nan, np.inf, -np.inf, 0.0
    write_pfm(tmp_path / "disparity/left/01.pfm", values)
    _, target = open_folder(tmp_path, allow_missing=True, fold=0).valid_data(16)[0]
    read = target[0, 12:, :70]
    assert (read[0, :4] == -1).all()
    torch.testing.assert_close(read[1:], torch.from_numpy(disparity_of(1)[1:]))


def test_alpha_is_dropped(tmp_path):
    sample_pack(tmp_path, 2)
    clear = np.concatenate((coded(1, 0), np.zeros((HEIGHT, WIDTH, 1), np.uint8)), axis=2)
    write_image(tmp_path / "RGB_cleanpass/left/01.png", clear)
    (left, _), _ = open_folder(tmp_path, allow_missing=True, fold=0).valid_data(16)[0]
    assert torch.equal(unnormalised(left[:, 12:, :70]).byte(), torch.from_numpy(coded(1, 0)).permute(2, 0, 1))


def test_check_reports_progress_over_all_pairs(tmp_path):
    seen: list[tuple[int, int]] = []
    data = open_folder(sample_pack(tmp_path, 4), allow_missing=True, fold=0).train_data(16)
    data.check(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-400] if path.suffix == ".pfm" else path.read_bytes()[:-60])


SPOILED = {
    "a torn disparity": (lambda root: torn(root / "disparity/left/01.pfm"), ["01.pfm", "9680 bytes", "10080", "torn"]),
    "a disparity of another size": (
        lambda root: write_pfm(root / "disparity/left/01.pfm", np.ones((10, 20))),
        ["01.png", f"{HEIGHT} x {WIDTH}", "10 x 20"],
    ),
    "a disparity that is all unknown": (
        lambda root: write_pfm(root / "disparity/left/01.pfm", np.full((HEIGHT, WIDTH), np.nan)),
        ["01.pfm", "no finite disparity", f"{HEIGHT} x {WIDTH}"],
    ),
    "a disparity that is something else": (
        lambda root: (root / "disparity/left/01.pfm").write_text("depth"),
        ["01.pfm", "b'depth'", "'Pf'"],
    ),
    "a right view of another size": (
        lambda root: write_image(root / "RGB_cleanpass/right/01.png", coded(0, 0)[:20]),
        ["right/01.png", f"20 x {WIDTH}", f"{HEIGHT} x {WIDTH}"],
    ),
    "an image that is none": (
        lambda root: (root / "RGB_cleanpass/left/01.png").write_bytes(b"<html>"),
        ["left/01.png", "cannot be read as an image"],
    ),
    "an image of 16 bits": (
        lambda root: write_image(root / "RGB_cleanpass/left/01.png", np.zeros((HEIGHT, WIDTH), np.uint16)),
        ["left/01.png", "'I;16'", "RGB, RGBA"],
    ),
    "a mask of many values": (
        lambda root: write_image(root / "occlusion/left/01.png", coded(0, 0)[..., 0]),
        ["occlusion/left/01.png", "0, 1, 2, 3, 4, ...", "0 where visible"],
    ),
    "a mask of another size": (
        lambda root: write_image(root / "occlusion/left/01.png", np.zeros((8, 9), np.uint8)),
        ["occlusion/left/01.png", "8 x 9", f"{HEIGHT} x {WIDTH}"],
    ),
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("when", ["check", "draw"])
def test_a_spoiled_file_is_named_before_training_and_when_met(tmp_path, how, when):
    spoil, words = SPOILED[how]
    spoil(sample_pack(tmp_path, 3))
    data = open_folder(tmp_path, allow_missing=True, fold=0).train_data(16)
    data.draw(0)
    with pytest.raises(DataError) as caught:
        data.check() if when == "check" else data.draw(1)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert re.search(r"(Restore|Copy|Convert)\b[^.]*\.$", str(caught.value)), str(caught.value)


def test_a_torn_image_is_named_when_met(tmp_path):
    torn(sample_pack(tmp_path, 2) / "RGB_cleanpass/right/00.png")
    with pytest.raises(DataError, match=r"right.00\.png is torn: .*Copy it again"):
        open_folder(tmp_path, allow_missing=True, fold=0).train_data(16)[0]


@pytest.mark.parametrize("when", ["check", "draw"])
def test_a_crop_that_does_not_fit_is_refused(tmp_path, when):
    data = open_folder(sample_pack(tmp_path, 2), allow_missing=True, fold=0).train_data(36)
    with pytest.raises(DataError, match=rf"00\.png is {HEIGHT} x {WIDTH}, too small for crops of 36 x 72.*at most 35"):
        data.check() if when == "check" else data.draw(0)
    assert open_folder(tmp_path, allow_missing=True, fold=0).train_data(35).draw(0)[1].shape == (2, 35, 70)


def test_a_partial_data_set_is_refused_with_counts_unless_allowed(tmp_path):
    write_pair(tmp_path, "frames_cleanpass/TRAIN/A/0000/left/0006.png", "disparity/TRAIN/A/0000/left/0006.pfm")
    write_image(tmp_path / "frames_cleanpass/TRAIN/A/0000/left/0007.png", coded(0, 0))
    with pytest.raises(DataError) as caught:
        get("sceneflow", tmp_path)
    for words in (
        "FlyingThings3D has 1 of 22390 pairs to train on",
        "FlyingThings3D has 0 of 4370 pairs to validate on",
        "lack a file: 1, such as 'frames_cleanpass/TRAIN/A/0000/left/0007.png' "
        "its 'frames_cleanpass/TRAIN/A/0000/right/0007.png'",
        "--allow-missing",
    ):
        assert words in str(caught.value)
    summary = get("sceneflow", tmp_path, allow_missing=True).source.summary
    assert "FlyingThings3D 1 of 22390" in summary
    assert "left views that lack a file: 1" in summary
    assert "no Monkaa, no Driving" in summary


def test_a_complete_collection_is_taken_without_allowance(tmp_path, monkeypatch):
    monkeypatch.setattr("ranp.paper.tasks.sceneflow.files._OFFICIAL", {("Monkaa", "train"): 1})
    write_pair(tmp_path, "frames_cleanpass/a_x2/left/0001.png", "disparity/a_x2/left/0001.pfm")
    source = open_folder(tmp_path, allow_missing=False, fold=0)
    assert len(source.train_data(16)) == 1
    with pytest.raises(DataError, match="no pair to validate on: TEST of FlyingThings3D"):
        source.valid_data(16)


def test_no_split_is_refused_unless_allowed(tmp_path):
    with pytest.raises(
        DataError, match=r"no TRAIN or TEST folder: 2, such as 'RGB_cleanpass/left/00\.png'.*last fifth"
    ):
        get("sceneflow", sample_pack(tmp_path, 2))


def test_a_folder_of_something_else_is_refused_with_what_is_there(tmp_path):
    (tmp_path / "HGG").mkdir()
    (tmp_path / "readme.txt").write_text("")
    with pytest.raises(DataError, match=r"expected frames_cleanpass/.*/left/\*\.png.*found HGG, readme\.txt\."):
        get("sceneflow", tmp_path, allow_missing=True)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="found nothing"):
        get("sceneflow", tmp_path, allow_missing=True)


def test_images_without_disparity_are_refused_with_what_is_missing(tmp_path):
    for side in ("left", "right"):
        write_image(tmp_path / f"RGB_cleanpass/{side}/1.png", coded(0, 0))
    with pytest.raises(DataError, match=r"found 'RGB_cleanpass/left/1\.png', which lacks 'disparity/left/1\.pfm'"):
        get("sceneflow", tmp_path, allow_missing=True)


def test_a_fold_is_refused(tmp_path):
    with pytest.raises(DataError, match="fold=2: SceneFlow has one split"):
        get("sceneflow", sample_pack(tmp_path, 2), allow_missing=True, fold=2)


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (1, -1)])
def test_counts_and_seeds_out_of_range_are_refused(tmp_path, count, seed):
    source = open_folder(sample_pack(tmp_path, 2), allow_missing=True, fold=0)
    with pytest.raises(DataError, match=rf"count={count}, seed={seed}"):
        source.train_data(16, count=count, seed=seed)


def test_folders_that_are_linked_in_a_circle_end(tmp_path):
    sample_pack(tmp_path, 2)
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    source = open_folder(tmp_path, allow_missing=True, fold=0)
    assert isinstance(source.train_data(16), FilePairs)
    assert len(source.train_data(16)) + len(source.valid_data(16)) == 2


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    from ranp.errors import UnsupportedError

    data = open_folder(sample_pack(tmp_path, 2), allow_missing=True, fold=0).train_data(16)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'ranp\[stereo\]'"):
        data.draw(0)
