"""Writes ShapeNet-Part in the forms it was published in, from procedural shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ranp.paper import tasks
from ranp.paper.tasks.shapenet.catalogue import FIRST, NAMES
from ranp.paper.tasks.shapenet.folder import SYNSETS
from ranp.paper.tasks.shapenet.procedural import ProceduralShapes
from ranp.paper.tasks.task import Task

SOURCE = ProceduralShapes("train", size=16, count=32, seed=5)
Cloud = tuple[int, str, np.ndarray, np.ndarray]
Release = Callable[[Path, Sequence[Cloud]], None]


def clouds(count: int) -> list[Cloud]:
    """Category, id, points and labels from 0 to 49 of made-up shapes, not yet divided by their norm."""
    made = []
    for index in range(count):
        points, labels = SOURCE.scan(index)
        keep = slice(None, None, 9)  # few points make quick files
        made.append((SOURCE.category(index), f"shape{index:02d}", points[keep] * (0.25 + index), labels[keep]))
    return made


def write_lines(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))


def write_pair(points: Path, labels: Path, cloud: Cloud) -> None:
    category, _, xyz, parts = cloud
    write_lines(points, xyz.tolist())
    write_lines(labels, [[label - FIRST[category] + 1] for label in parts.tolist()])


def write_pts(folder: Path, shapes: Sequence[Cloud]) -> None:
    for cloud in shapes:
        home = folder / SYNSETS[cloud[0]]
        write_pair(home / "points" / f"{cloud[1]}.pts", home / "points_label" / f"{cloud[1]}.seg", cloud)
    write_categories(folder)


def write_txt(folder: Path, shapes: Sequence[Cloud]) -> None:
    for category, name, xyz, labels in shapes:
        rows = [[*p, 0.0, -1.0, 0.5, f"{label:.6f}"] for p, label in zip(xyz.tolist(), labels.tolist(), strict=True)]
        write_lines(folder / SYNSETS[category] / f"{name}.txt", rows)
    write_categories(folder)


def write_categories(folder: Path) -> None:
    write_lines(folder / "synsetoffset2category.txt", list(zip(NAMES, SYNSETS, strict=True)))


def write_lists(folder: Path, **parts: Sequence[Cloud]) -> None:
    (folder / "train_test_split").mkdir()
    for part, shapes in parts.items():
        names = [f"shape_data/{SYNSETS[category]}/{name}" for category, name, _, _ in shapes]
        (folder / "train_test_split" / f"shuffled_{part}_file_list.json").write_text(json.dumps(names))


def opened(folder: Path, *, allow_missing: bool = False) -> Task:
    return tasks.get("shapenet", folder, allow_missing=allow_missing)
