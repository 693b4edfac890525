"""ShapeNet-Part as published: what was written is read, and each split is the one it claims to be."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ranp.errors import DataError
from ranp.paper.tasks.shapenet.catalogue import FIRST, NAMES, PARTS
from ranp.paper.tasks.shapenet.folder import SYNSETS
from ranp.paper.tasks.task import Samples
from tests.support.real_data import real_data
from tests.support.shapenet_releases import Release, clouds, opened, write_lists, write_pair, write_pts, write_txt

EMPTY = 255


def slow_voxels(points: np.ndarray, labels: np.ndarray, size: int) -> dict[tuple[int, ...], int]:
    """The paper's voxels, point by point."""
    farthest = max(math.sqrt(float(p @ p)) for p in points)
    votes: dict[tuple[int, ...], Counter[int]] = {}
    for point, label in zip(points.tolist(), labels.tolist(), strict=True):
        where = tuple(min(size - 1, math.floor(p / farthest * size / 2 + size / 2)) for p in point)
        votes.setdefault(where, Counter())[label] += 1
    return {
        where: min(label for label, votes_of in count.items() if votes_of == max(count.values()))
        for where, count in votes.items()
    }


def voxels(target: torch.Tensor) -> dict[tuple[int, ...], int]:
    return {tuple(where): int(target[tuple(where)]) for where in (target != EMPTY).nonzero().tolist()}


def ids(data: Samples) -> list[str]:
    return [shape.points.stem for shape in data.shapes]  # type: ignore[attr-defined]


@pytest.mark.parametrize("write", [write_pts, write_txt])
@pytest.mark.parametrize("size", [8, 17])
def test_what_was_written_is_read(tmp_path: Path, write: Release, size: int) -> None:
    shapes = clouds(20)
    write(tmp_path, shapes)
    write_lists(tmp_path, train=shapes[3:], val=[], test=shapes[:3])
    task = opened(tmp_path)
    assert task.source.summary.endswith("17 of 17 shapes to train on, 3 of 3 to validate on.")
    for data, wanted in ((task.train_data(size), shapes[3:]), (task.valid_data(size), shapes[:3])):
        told: list[tuple[int, int]] = []
        data.check(lambda done, total, told=told: told.append((done, total)))
        assert told == [(n + 1, len(wanted)) for n in range(len(wanted))]
        assert ids(data) == [name for _, name, _, _ in wanted]
        for index, (_, _, points, labels) in enumerate(wanted):
            volume, target = data[index]
            assert voxels(target) == slow_voxels(points, labels, size)
            assert (volume.shape, volume.dtype, target.dtype) == ((1, size, size, size), torch.float32, torch.int64)
            assert torch.equal(volume[0] == 1, target != EMPTY)


def test_the_releases_agree(tmp_path: Path) -> None:
    shapes = clouds(6)
    targets = []
    for name, write in (("pts", write_pts), ("txt", write_txt)):
        write(tmp_path / name, shapes)
        data = opened(tmp_path / name, allow_missing=True).train_data(16)
        targets.append({stem: data[index][1] for index, stem in enumerate(ids(data))})
    assert targets[0].keys() == targets[1].keys()
    assert all(torch.equal(targets[0][stem], targets[1][stem]) for stem in targets[0])


def test_the_challenge_is_split_as_the_paper_did(tmp_path: Path) -> None:
    shapes = clouds(32)
    for number, cloud in enumerate(shapes):
        part, synset = ("train", "val", "test")[number % 3], SYNSETS[cloud[0]]
        pair = [
            tmp_path / f"{part}_{kind}" / synset / f"{cloud[1]}.{end}"
            for kind, end in (("data", "pts"), ("label", "seg"))
        ]
        write_pair(pair[0], pair[1], cloud)
    with pytest.raises(DataError, match=r"13985 shapes are missing.*22 of 14007 shapes.*--allow-missing"):
        opened(tmp_path)
    task = opened(tmp_path, allow_missing=True)
    pooled = [*tmp_path.glob("train_data/*/*.pts"), *tmp_path.glob("val_data/*/*.pts")]
    lower = {path.stem for path in pooled if hashlib.md5(path.read_bytes()).hexdigest()[0] in "01234567"}
    assert set(ids(task.train_data(16))) == lower
    assert set(ids(task.valid_data(16))) == {path.stem for path in pooled} - lower
    assert 0 < len(lower) < 22
    index = ids(task.valid_data(16)).index(min({path.stem for path in pooled} - lower))
    _, _, points, labels = shapes[int(ids(task.valid_data(16))[index][5:])]
    assert voxels(task.valid_data(16)[index][1]) == slow_voxels(points, labels, 16)


def test_missing_shapes_are_counted_and_allowed(tmp_path: Path) -> None:
    shapes = clouds(20)
    write_pts(tmp_path, shapes[:12])
    write_lists(tmp_path, train=shapes[4:], test=shapes[:4])
    with pytest.raises(DataError, match=r"8 shapes are missing.* 8 of 16 shapes to train on.*pass --allow-missing"):
        opened(tmp_path)
    task = opened(tmp_path, allow_missing=True)
    assert "8 of 16 shapes to train on, 4 of 4 to validate on" in task.source.summary
    assert (len(task.train_data(16)), len(task.valid_data(16))) == (8, 4)


@pytest.mark.parametrize("spared", ["train", "test"])
def test_a_part_that_is_wholly_missing_is_refused(tmp_path: Path, spared: str) -> None:
    shapes = clouds(8)
    write_txt(tmp_path, shapes[:4])
    write_lists(tmp_path, **{spared: shapes[:4], ({"train", "test"} - {spared}).pop(): shapes[4:]})
    word = "validate" if spared == "train" else "train"
    with pytest.raises(DataError, match=rf"no shape to {word} on: .*0 of 4.*Add shapes of that part"):
        opened(tmp_path, allow_missing=True)


def test_without_lists_each_category_is_halved_by_id(tmp_path: Path) -> None:
    shapes = clouds(32)[:31]  # two of each category, but for one
    write_pts(tmp_path, shapes)
    with pytest.raises(
        DataError, match=r"no 'train_test_split/shuffled_train_file_list.json'.*02691156.*the 31 shapes"
    ):
        opened(tmp_path)
    task = opened(tmp_path, allow_missing=True)
    assert "31 of 16881 shapes, halved within each category" in task.source.summary
    train, valid = task.train_data(16), task.valid_data(16)
    assert sorted(ids(train) + ids(valid)) == sorted(name for _, name, _, _ in shapes)
    categories = Counter(shape.category for shape in valid.shapes)  # type: ignore[attr-defined]
    assert set(categories.values()) == {1}
    assert len(categories) == 15
    assert ids(opened(tmp_path, allow_missing=True).valid_data(16)) == ids(valid)


def test_one_shape_alone_cannot_be_split(tmp_path: Path) -> None:
    write_txt(tmp_path, clouds(1))
    with pytest.raises(DataError, match=r"no shape to validate on: .*1 of 16881"):
        opened(tmp_path, allow_missing=True)


def test_a_few_of_many_are_drawn_by_seed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shapes = clouds(24)
    write_txt(tmp_path, shapes)
    write_lists(tmp_path, train=shapes[:20], test=shapes[20:])
    task = opened(tmp_path)
    few = ids(task.train_data(16, count=6, seed=1))
    assert len(set(few)) == 6
    assert few == ids(task.train_data(16, count=6, seed=1)) != ids(task.train_data(16, count=6, seed=2))
    assert not set(few) & set(ids(task.valid_data(16)))
    with caplog.at_level(logging.WARNING):
        assert len(task.valid_data(16, count=9)) == 4
    assert "9 shapes were asked for" in caplog.text
    assert not task.train_data(16).varies
    with pytest.raises(DataError, match="size=4"):
        task.train_data(4)


def sample(folder: Path) -> Iterator[tuple[int, list[list[float]], list[int]]]:
    """The real shapes by way of Python alone: category, points and labels."""
    for line in (folder / "synsetoffset2category.txt").read_text().splitlines():
        name, synset = line.split()
        for path in sorted((folder / synset / "points").glob("*.pts")) if (folder / synset).is_dir() else ():
            points = [[float(word) for word in row.split()] for row in path.read_text().splitlines()]
            seg = folder / synset / "points_label" / f"{path.stem}.seg"
            yield NAMES.index(name), points, [int(row) for row in seg.read_text().split()]


def test_the_real_shapes() -> None:
    folder = real_data("shapenetpart")
    task = opened(folder, allow_missing=True)
    parts = task.train_data(64), task.valid_data(64)
    assert sum(map(len, parts)) == 12
    assert min(map(len, parts)) == 6
    assert "12 of 16881 shapes, halved over all categories" in task.source.summary
    with pytest.raises(DataError, match=re.escape(str(folder))):
        opened(folder)
    found = {}
    for data in parts:
        data.check()
        for index in range(len(data)):
            points, _ = data.scan(index)  # type: ignore[attr-defined]
            assert np.linalg.norm(points, axis=1).max() == pytest.approx(1, abs=1e-12)
            volume, target = data[index]
            found[data.shapes[index].category] = target  # type: ignore[attr-defined]
            assert volume.sum() == (target != EMPTY).sum()
    wanted = list(sample(folder))
    assert len(wanted) == len(found) == 12
    for category, points, labels in wanted:
        farthest = max(math.hypot(*point) for point in points)
        cells = {tuple(min(63, math.floor(x / farthest * 32 + 32)) for x in point) for point in points}
        target = found[category]
        assert {tuple(where) for where in (target != EMPTY).nonzero().tolist()} == cells
        inside = target[target != EMPTY]
        assert FIRST[category] <= int(inside.min()) <= int(inside.max()) < FIRST[category] + PARTS[category]
        assert set(inside.tolist()) <= {label - 1 + FIRST[category] for label in labels}
        majority = slow_voxels(np.array(points), np.array(labels) - 1 + FIRST[category], 64)
        assert voxels(target) == majority
