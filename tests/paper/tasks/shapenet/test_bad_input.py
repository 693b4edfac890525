"""ShapeNet-Part with something wrong: all damage is refused with file, value, what is allowed and a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ranp.errors import DataError, UnsupportedError
from ranp.paper import tasks
from ranp.paper.tasks.shapenet.catalogue import FIRST, NAMES, PARTS
from ranp.paper.tasks.shapenet.folder import SYNSETS
from tests.support.shapenet_releases import (
    SOURCE,
    Release,
    clouds,
    opened,
    write_categories,
    write_lists,
    write_pts,
    write_txt,
)


# Each changes a folder of eight shapes (shape00 is damaged) with lists, and says what the message must tell.
def _first(folder: Path, end: str) -> Path:
    return next(folder.rglob(f"shape00{end}"))


def _set_line(end: str, number: int, line: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = _first(folder, end)
        lines = path.read_text().splitlines()
        lines[number - 1] = line
        path.write_text("\n".join(lines) + "\n")

    return change


def _drop_line(end: str) -> Callable[[Path], object]:
    return lambda folder: (path := _first(folder, end)).write_text(path.read_text().split("\n", 1)[1])


def _write(end: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: _first(folder, end).write_bytes(content)


CATEGORY = SOURCE.category(0)
TOO_HIGH, TOP = PARTS[CATEGORY] + 1, FIRST[CATEGORY] + PARTS[CATEGORY]
RANGE = f"allowed are 1 to {PARTS[CATEGORY]}"
BAD_FILES: dict[str, tuple[Release, Callable[[Path], object], list[str]]] = {
    "fewer labels": (write_pts, _drop_line(".seg"), ["shape00.seg", "shape00.pts", "one label for each point"]),
    "fewer points": (write_pts, _drop_line(".pts"), ["shape00.seg", "shape00.pts", "one label for each point"]),
    "label 0": (write_pts, _set_line(".seg", 3, "0"), ["shape00.seg", "line 3", "label 0", NAMES[CATEGORY], RANGE]),
    "label too high": (write_pts, _set_line(".seg", 2, str(TOO_HIGH)), ["line 2", f"label {TOO_HIGH}", RANGE]),
    "label of another category": (
        write_txt,
        _set_line(".txt", 5, f"1 1 1 0 0 0 {TOP % 50}.0"),
        ["shape00.txt", "line 5", f"label {TOP % 50}", f"allowed are {FIRST[CATEGORY]} to {TOP - 1}"],
    ),
    "label between two": (write_pts, _set_line(".seg", 1, "1.5"), ["shape00.seg", "line 1", "label 1.5", RANGE]),
    "label beyond integers": (write_pts, _set_line(".seg", 1, "1e300"), ["line 1", "label 1e+300", RANGE]),
    "a word": (
        write_pts,
        _set_line(".pts", 4, "0.1 none 0.3"),
        ["shape00.pts", "line 4", "'0.1 none 0.3'", "3 finite"],
    ),
    "two columns": (write_pts, _set_line(".pts", 7, "0.1 0.2"), ["shape00.pts", "line 7", "'0.1 0.2'", "3 finite"]),
    "a blank line": (write_pts, _set_line(".seg", 2, ""), ["shape00.seg", "line 2", "''", "1 finite number."]),
    "NaN": (write_pts, _set_line(".pts", 1, "nan 0 0"), ["shape00.pts", "line 1", "'nan 0 0'", "3 finite numbers"]),
    "infinity": (write_txt, _set_line(".txt", 1, "0 0 inf 0 0 0 1"), ["shape00.txt", "line 1", "7 finite numbers"]),
    "empty": (write_pts, _write(".pts", b""), ["shape00.pts", "is empty", "3 numbers"]),
    "only blanks": (write_txt, _write(".txt", b"\n \n"), ["shape00.txt", "is empty", "7 numbers"]),
    "not text": (write_pts, _write(".seg", b"\x89PNG\xff\xfe"), ["shape00.seg", "not a text file"]),
    "other release": (
        write_txt,
        _set_line(".txt", 1, "0 0 1"),
        ["shape00.txt", "line 1", "'0 0 1'", "7 finite numbers"],
    ),
    "all at the origin": (
        write_pts,
        lambda folder: (
            _first(folder, ".pts").write_text("0 0 0\n0 0 0\n"),
            _first(folder, ".seg").write_text("1\n1\n"),
        ),
        ["shape00.pts", "0 0 0"],
    ),
    "gone meanwhile": (write_txt, None, ["shape00.txt", "cannot read"]),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_named_before_training_and_when_met(tmp_path: Path, kind: str) -> None:
    write, damage, told = BAD_FILES[kind]
    shapes = clouds(8)
    write(tmp_path, shapes)
    write_lists(tmp_path, train=shapes[:4], test=shapes[4:])
    if damage is not None:
        damage(tmp_path)
    task = opened(tmp_path)
    if damage is None:
        _first(tmp_path, ".txt").unlink()
    data = task.train_data(16)
    for use in (data.check, lambda: data[0]):
        with pytest.raises(DataError) as caught:
            use()
        for words in (*told, "Restore the file"):
            assert words in str(caught.value)
    task.valid_data(16).check()


def _replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text().replace(old, new, 1))


def _lists(train: object, test: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        for part, entries in (("train", train), ("test", test)):
            path = folder / "train_test_split" / f"shuffled_{part}_file_list.json"
            path.unlink() if entries is None else path.write_text(json.dumps(entries))

    return change


def _per_part(folder: Path) -> None:
    labels = folder / SYNSETS[CATEGORY] / "points_label"
    for path in list(labels.glob("*.seg")):
        path.rename((labels / "wing").with_suffix(".tmp"))
    (labels / "wing").mkdir()
    (labels / "wing.tmp").rename(labels / "wing" / "shape00.seg")


SHAPE = f"shape_data/{SYNSETS[CATEGORY]}/shape00"
NAMED = "synsetoffset2category.txt"
BAD_FOLDERS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "labels missing": (lambda folder: _first(folder, ".seg").unlink(), ["shape00.seg", "missing", "Restore it"]),
    "labels by part": (_per_part, ["points_label", "wing", "for each part", "benchmark_v0"]),
    "unknown synset": (lambda folder: (folder / "01234567").mkdir(), ["01234567", "no known category", SYNSETS[15]]),
    "unknown category": (_replace(NAMED, "Lamp", "Lump"), [NAMED, "line 9", "'Lump'", "did you mean 'Lamp'"]),
    "missing category": (_replace(NAMED, f"Mug {SYNSETS[11]}\n", ""), [NAMED, "lacks Mug", "all 16"]),
    "synset twice": (
        _replace(NAMED, SYNSETS[15], SYNSETS[14]),
        [NAMED, "line 16", f"'Table {SYNSETS[14]}'", "repeats"],
    ),
    "no synset": (_replace(NAMED, SYNSETS[1], "bag"), [NAMED, "line 2", "'Bag bag'", "8 digits"]),
    "no list of tests": (_lists([SHAPE], None), ["shuffled_test_file_list.json", "missing", "Restore both"]),
    "shape in both lists": (_lists([SHAPE], [SHAPE]), [SHAPE.removeprefix("shape_data/"), "both lists", "Restore"]),
    "shape twice": (_lists([SHAPE, SHAPE], [SHAPE]), ["shuffled_train_file_list.json", SHAPE, "twice"]),
    "entry not a path": (_lists([SHAPE], ["shape01"]), ["shuffled_test_file_list.json", "'shape01'", "<synset>/<id>"]),
    "entry of no category": (_lists([SHAPE], ["shape_data/01234567/a"]), ["_test_file", "shape_data/01234567/a"]),
    "list not a list": (_lists({}, [SHAPE]), ["shuffled_train_file_list.json", "not a list"]),
    "list torn": (
        lambda folder: (folder / "train_test_split" / "shuffled_test_file_list.json").write_text('["shape_'),
        ["shuffled_test_file_list.json", "not JSON", "Restore the list"],
    ),
    "two releases in one": (lambda folder: write_txt(folder, clouds(1)), ["points/<id>.pts", "both of them"]),
}


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_a_bad_folder_is_refused_whatever_is_allowed(tmp_path: Path, kind: str) -> None:
    damage, told = BAD_FOLDERS[kind]
    shapes = clouds(8)
    write_pts(tmp_path, shapes)
    write_lists(tmp_path, train=shapes[:4], test=shapes[4:])
    opened(tmp_path)
    damage(tmp_path)
    for allow_missing in (False, True):
        with pytest.raises(DataError) as caught:
            opened(tmp_path, allow_missing=allow_missing)
        for words in told:
            assert words in str(caught.value)


def test_another_folder_is_refused_with_what_is_there(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=r"synsetoffset2category.txt.*train_data.*a, b, c, d, e and 2 more"):
        opened(tmp_path)
    write_categories(tmp_path)
    with pytest.raises(DataError, match=r"<synset>/<id>.txt.*neither is, but a, .* there"):
        opened(tmp_path)
    with pytest.raises(DataError, match=r"is not a folder\. Pass the folder of the shapenet data set"):
        opened(tmp_path / "absent")
    with pytest.raises(UnsupportedError, match="fold=1: ShapeNet has one split"):
        tasks.get("shapenet", tmp_path, fold=1)
