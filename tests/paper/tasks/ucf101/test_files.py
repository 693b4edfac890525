"""The official lists as they are, and everything that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranp.errors import DataError
from ranp.paper.tasks.ucf101.files import read_split
from tests.support.real_data import real_data

CLASSES = [f"Act{number:03}" for number in range(1, 102)]


def video(label: int, group: int, clip: int = 1) -> str:
    name = CLASSES[label - 1]
    return f"{name}/v_{name}_g{group:02}_c{clip:02}.avi"


TRAIN = [f"{video(1, 8)} 1", f"{video(2, 9)} 2", f"{video(101, 10)} 101"]
VALID = [video(1, 1), video(101, 2)]


def data_set(root: Path, lists: str = "ucfTrainTestlist", videos: str = "UCF-101", end: str = "\r\n") -> Path:
    """A whole data set of five videos of one byte each: nothing here looks into them."""
    folder = root / lists
    folder.mkdir(parents=True)
    index = [f"{number} {name}" for number, name in enumerate(CLASSES, 1)]
    for name, lines in (("classInd", index), ("trainlist01", TRAIN), ("testlist01", VALID)):
        (folder / f"{name}.txt").write_text(end.join(lines) + end, newline="")
    for line in (*TRAIN, *VALID):
        path = root / videos / line.split()[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return root


def lists(root: Path) -> Path:
    return root / "ucfTrainTestlist"


def rewrite(path: Path, number: int, line: str) -> None:
    """Writes another line in place of line ``number``."""
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join(lines) + "\n")


def refused(root: Path, *, allow_missing: bool = False, fold: int = 0) -> str:
    with pytest.raises(DataError) as caught:
        read_split(root, allow_missing=allow_missing, fold=fold)
    return str(caught.value)


@pytest.mark.parametrize("home", ["ucfTrainTestlist", "UCF101TrainTestSplits-RecognitionTask/ucfTrainTestlist", "."])
@pytest.mark.parametrize("videos", ["UCF-101", "."])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_published_layouts_are_read(tmp_path: Path, home: str, videos: str, end: str) -> None:
    split = read_split(data_set(tmp_path / "data", home, videos, end), allow_missing=False, fold=0)
    assert [entry.label for entry in split.train] == [0, 1, 100]
    assert [entry.name for entry in split.valid] == VALID
    assert all(entry.path.read_bytes() == b"x" for entry in (*split.train, *split.valid))
    assert split.summary == "UCF101 split 1: 3 training and 2 validation videos"


def test_a_folder_of_frames_stands_for_its_video(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    path = root / "UCF-101" / VALID[0]
    path.unlink()
    path.with_suffix("").mkdir()
    assert read_split(root, allow_missing=False, fold=0).valid[0].path == path.with_suffix("")


def test_folds_are_the_official_splits(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    (lists(root) / "trainlist03.txt").write_text("\n".join(f"{name} {name[3:6].lstrip('0')}" for name in VALID))
    (lists(root) / "testlist03.txt").write_text("\n".join(line.split()[0] for line in TRAIN))
    split = read_split(root, allow_missing=False, fold=2)
    assert (split.number, len(split.train), len(split.valid)) == (3, 2, 3)
    message = refused(root, fold=1)
    for part in ("fold=1", "trainlist02.txt", "trainlist01.txt, trainlist03.txt", "set another fold"):
        assert part in message
    assert "fold=3: UCF101 has splits 1 to 3; set fold to 0, 1 or 2." in refused(root, fold=3)


def test_the_real_lists_have_their_official_counts() -> None:
    root = real_data("ucf101")
    split = read_split(root, allow_missing=True, fold=0)
    assert (split.train_listed, split.valid_listed) == (9537, 3783)
    assert [entry.path.name for entry in split.train] == [
        "v_SoccerJuggling_g23_c01.avi",
        "v_SoccerJuggling_g24_c01.avi",
    ]
    assert {entry.label for entry in split.train} == {83}, "the index says 84, from 1"
    assert not split.valid
    assert split.summary == (
        "UCF101 split 1: 2 of 9537 training and 0 of 3783 validation videos; 13318 videos are missing"
    )
    message = refused(root)
    assert "13318 of 13320 videos of the lists are not in" in message
    assert "the first is ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi" in message
    assert "pass --allow-missing to use the 2 that are there" in message


def test_missing_videos_are_counted(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    (root / "UCF-101" / VALID[1]).unlink()
    message = refused(root)
    assert "1 of 5 videos of the lists are not in" in message
    assert VALID[1] in message
    split = read_split(root, allow_missing=True, fold=0)
    assert split.summary.endswith("3 training and 1 of 2 validation videos; 1 videos are missing")


def test_lists_without_any_video_are_refused(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    for path in (root / "UCF-101").rglob("*.avi"):
        path.unlink()
    message = refused(root, allow_missing=True)
    for part in ("none of the 5 videos", video(1, 8), "found Act001, Act002, Act101", "UCF101.rar"):
        assert part in message


def test_another_folder_is_refused_with_what_it_has(tmp_path: Path) -> None:
    for name in ("HGG", "LGG", "survival.csv"):
        (tmp_path / name).mkdir()
    message = refused(tmp_path)
    for part in (str(tmp_path), "classInd.txt", "found HGG, LGG, survival.csv", "UCF101TrainTestSplits"):
        assert part in message


def test_an_empty_file_is_named_even_if_files_may_be_missing(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    path = root / "UCF-101" / VALID[0]
    path.write_bytes(b"")
    assert f"{path} is empty" in refused(root, allow_missing=True)


@pytest.mark.parametrize(
    ("number", "line", "expected"),
    [
        (3, "4 Act003", "expected '3 ClassName', numbers from 1 to 101 in order"),
        (3, "3 Act001", "no name twice"),
        (5, "five Act005", "expected '5 ClassName'"),
        (5, "5", "expected '5 ClassName'"),
    ],
)
def test_a_wrong_class_index_is_named(tmp_path: Path, number: int, line: str, expected: str) -> None:
    root = data_set(tmp_path)
    rewrite(lists(root) / "classInd.txt", number, line)
    message = refused(root)
    assert f"classInd.txt, line {number}: {line!r}" in message
    assert expected in message


def test_a_class_index_that_is_cut_short_is_counted(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    path = lists(root) / "classInd.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:50]))
    assert "has 50 classes; UCF101 has 101" in refused(root)


@pytest.mark.parametrize(
    ("name", "number", "line", "expected"),
    [
        ("trainlist01", 2, video(2, 9), "label' with a label from 1 to 101"),
        ("trainlist01", 2, f"{video(2, 9)} two", "label' with a label from 1 to 101"),
        ("trainlist01", 2, f"{video(2, 9)} 2 2", "label' with a label from 1 to 101"),
        (
            "trainlist01",
            2,
            f"{video(2, 9)} 3",
            "label 3 contradicts the folder: classInd.txt gives 'Act002' the la",
        ),
        ("trainlist01", 2, f"{video(2, 9)} 102", "label 102 contradicts the folder"),
        ("trainlist01", 2, f"{video(1, 8)} 1", "named twice"),
        ("trainlist01", 2, "Act002/v_Act003_g01_c01.avi 2", "a video of 'Act003' stands in the folder of 'Act002'"),
        ("trainlist01", 2, "Jump/v_Jump_g01_c01.avi 2", "no class 'Jump'"),
        ("trainlist01", 2, "../v_Act002_g01_c01.avi 2", "no class '..'"),
        ("testlist01", 1, "Act001/clip.avi", "expected 'Class/v_Class_g01_c01.avi'"),
        ("testlist01", 1, f"{video(1, 1)} 1", "expected 'Class/v_Class_g01_c01.avi'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, name: str, number: int, line: str, expected: str) -> None:
    root = data_set(tmp_path)
    rewrite(lists(root) / f"{name}.txt", number, line)
    message = refused(root)
    assert f"{name}.txt, line {number}: {line!r}" in message
    assert expected in message
    assert "Restore the official list" in message


def test_a_video_to_train_and_to_validate_on_is_refused(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    rewrite(lists(root) / "testlist01.txt", 1, video(2, 9))
    message = refused(root)
    assert f"{video(2, 9)} is in trainlist01.txt and in testlist01.txt" in message


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00binary"])
def test_a_list_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    root = data_set(tmp_path)
    (lists(root) / "testlist01.txt").write_bytes(content)
    message = refused(root)
    assert "testlist01.txt" in message
    assert ("names no video" if not content else "is not a text file") in message
