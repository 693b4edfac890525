"""ShapeNet-Part in a folder, as it was published: the benchmark in its two forms, or the ICCV 2017 challenge.

::

    synsetoffset2category.txt  train_test_split/shuffled_{train,val,test}_file_list.json   (the benchmark, either form)
    <synset>/points/<id>.pts   <synset>/points_label/<id>.seg     shapenetcore_partanno_segmentation_benchmark_v0
    <synset>/<id>.txt                                             shapenetcore_partanno_segmentation_benchmark_v0_normal

    {train,val,test}_data/<synset>/<id>.pts   {train,val,test}_label/<synset>/<id>.seg           (the challenge)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from ranp.errors import DataError, UnsupportedError, unknown_name
from ranp.paper.tasks.reading import entries
from ranp.paper.tasks.shapenet.catalogue import NAMES
from ranp.paper.tasks.shapenet.files import PublishedShapes, Shape
from ranp.paper.tasks.shapenet.splits import Split, split_by_content, split_by_id, split_by_lists
from ranp.paper.tasks.task import Source

__all__ = ["SYNSETS", "open_folder"]

SYNSETS = (
    "02691156 02773838 02954340 02958343 03001627 03261776 03467517 03624134 "
    "03636649 03642806 03790512 03797390 03948459 04099429 04225987 04379243"
).split()
"""WordNet's numbers of the categories, in their order."""

_CATEGORIES = "synsetoffset2category.txt"
_CHALLENGE = ("train", "val")


def open_folder(folder: Path, *, allow_missing: bool, fold: int) -> Source:
    """The ShapeNet-Part data set in a folder.

    Args:
        folder: The benchmark or the challenge, see above.
        allow_missing: Take what is there of what was published; if the benchmark's lists are not there, split by id.
        fold: 0; there is one split.

    Raises:
        DataError: The folder does not look right, or shapes are missing.
        UnsupportedError: Another fold.
    """
    if fold:
        raise UnsupportedError(f"fold={fold}: ShapeNet has one split only. Leave fold at 0.")
    if any((folder / f"{part}_data").is_dir() for part in _CHALLENGE):
        split = split_by_content(_challenge(folder))
        title = "ShapeNet-Part of the ICCV 2017 challenge"
    elif (folder / _CATEGORIES).is_file():
        split, form = _benchmark(folder, allow_missing=allow_missing)
        title = f"ShapeNet-Part benchmark ({form})"
    else:
        raise DataError(
            f"{str(folder)!r} is not ShapeNet-Part: {_CATEGORIES!r} (the benchmark) or 'train_data' (the challenge) is "
            f"expected, {entries(folder)} found. Pass the folder that holds them."
        )
    summary = f"{title}, {split.summary}."
    if split.missing and not allow_missing:
        raise DataError(
            f"{str(folder)!r} is not complete, {split.missing} shapes are missing: {summary} "
            "Download the rest, or pass --allow-missing."
        )
    for name, shapes in (("train", split.train), ("validate", split.valid)):
        if not shapes:
            raise DataError(f"{str(folder)!r} has no shape to {name} on: {summary} Add shapes of that part.")
    return Source(partial(PublishedShapes, split.train, 0), partial(PublishedShapes, split.valid, 1), summary=summary)


def _benchmark(folder: Path, *, allow_missing: bool) -> tuple[Split, str]:
    """Split and form of the benchmark."""
    categories = _read_categories(folder / _CATEGORIES)
    homes = _homes(folder, categories)
    paired = [home for home in homes if (home / "points").is_dir()]
    single = [home for home in homes if any(home.glob("*.txt"))]
    if bool(paired) == bool(single):
        what = "both of them are" if paired else f"neither is, but {entries(homes[0]) if homes else entries(folder)}"
        raise DataError(
            f"{str(folder)!r}: '<synset>/points/<id>.pts' or '<synset>/<id>.txt' is expected; {what} there. Pass the "
            "folder of one release of ShapeNet-Part."
        )
    found: dict[tuple[str, str], Shape] = {}
    for home in paired or single:
        category = categories[home.name]
        if paired:
            shapes = _pairs(home / "points", home / "points_label", category)
        else:
            shapes = [Shape(category, path) for path in sorted(home.glob("*.txt"))]
        found.update({(home.name, shape.points.stem): shape for shape in shapes})
    form = ".pts and .seg" if paired else ".txt"
    split = split_by_lists(folder, found, categories)
    if split is None and not allow_missing:
        raise DataError(
            f"{str(folder)!r} has no 'train_test_split/shuffled_train_file_list.json', which says what trains; "
            f"there are {entries(folder)}. Restore it, or pass --allow-missing to split the {len(found)} shapes by id."
        )
    return split or split_by_id(found), form


def _challenge(folder: Path) -> Iterable[Shape]:
    """The challenge's training and validation shapes."""
    categories = {synset: category for category, synset in enumerate(SYNSETS)}
    for part in _CHALLENGE:
        data = folder / f"{part}_data"
        for home in _homes(data, categories) if data.is_dir() else ():
            yield from _pairs(home, folder / f"{part}_label" / home.name, categories[home.name])


def _pairs(points: Path, labels: Path, category: int) -> list[Shape]:
    """Shapes whose points and labels lie in two folders.

    Raises:
        DataError: Points without labels.
    """
    names = sorted(path.stem for path in points.glob("*.pts"))
    labelled = {path.stem for path in labels.glob("*.seg")}
    unlabelled = [name for name in names if name not in labelled]
    if unlabelled and not labelled and labels.is_dir() and any(entry.is_dir() for entry in labels.iterdir()):
        raise DataError(
            f"{str(labels)!r} has folders ({entries(labels)}) where '<id>.seg' is expected: this release has a label "
            "file for each part of a shape. Pass shapenetcore_partanno_segmentation_benchmark_v0, which has one in all."
        )
    if unlabelled:
        more = f", nor of {len(unlabelled) - 1} more" if len(unlabelled) > 1 else ""
        raise DataError(
            f"{str(labels / unlabelled[0]) + '.seg'!r} is missing, the labels of {unlabelled[0]}.pts{more}. "
            "Restore it from the published archive."
        )
    return [Shape(category, points / f"{name}.pts", labels / f"{name}.seg") for name in names]


def _homes(folder: Path, categories: Mapping[str, int]) -> list[Path]:
    """The categories' folders that are there, in order.

    Raises:
        DataError: A folder of a category that is not known.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir() and re.fullmatch(r"\d{8}", entry.name) and entry.name not in categories:
            raise DataError(
                f"{entry.path!r} is a folder of no known category; allowed are {', '.join(categories)}. "
                "Move it elsewhere."
            )
    return [folder / synset for synset in categories if (folder / synset).is_dir()]


def _read_categories(path: Path) -> dict[str, int]:
    """Number of the category by synset, from lines of a name and a synset.

    Raises:
        DataError: A line is not such a line, or the categories are not the sixteen of ShapeNet-Part.
    """
    synsets: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        words = line.split()
        where = f"{str(path)!r}, line {number}"
        if len(words) != 2 or not re.fullmatch(r"\d{8}", words[1]):
            raise DataError(f"{where}: {line[:60]!r} is not a name and a synset of 8 digits, 'Airplane 02691156'.")
        if words[0] not in NAMES:
            raise DataError(f"{where}: {unknown_name('category', words[0], NAMES)}")
        if words[0] in synsets or words[1] in synsets.values():
            raise DataError(f"{where}: {line.strip()!r} repeats a category or a synset. Remove the line.")
        synsets[words[0]] = words[1]
    missing = [name for name in NAMES if name not in synsets]
    if missing:
        raise DataError(
            f"{str(path)!r} lacks {', '.join(missing)}; all {len(NAMES)} categories are needed. Restore the file."
        )
    return {synsets[name]: category for category, name in enumerate(NAMES)}
