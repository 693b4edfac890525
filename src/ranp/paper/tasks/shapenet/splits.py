"""Which published shapes train and which validate.

The benchmark's lists name 12137 shapes to train on, 1870 to validate and 2874 to test, 16881 in all; here the first
train and the last validate. The paper has another split: 12137 + 1870 = 14007 = 6955 + 7052. Its authors pool training
and validation shapes of the ICCV 2017 challenge, and train on those whose ``.pts`` file has an MD5 sum that begins with
0 to 7. That rule is applied here to the challenge's files, the only ones for which it is known to be the paper's: it
depends on every byte of a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ranp.errors import DataError
from ranp.paper.tasks.reading import read_text
from ranp.paper.tasks.shapenet.files import Shape

__all__ = ["PUBLISHED", "Split", "split_by_content", "split_by_id", "split_by_lists"]

PUBLISHED: Mapping[str, int] = {"train": 12137, "val": 1870, "test": 2874}
"""Shapes of each part, in the benchmark's lists and in the challenge."""

Found = Mapping[tuple[str, str], Shape]
"""The shapes that are there, by synset and id."""

_LISTS = "train_test_split"


@dataclass(frozen=True, slots=True)
class Split:
    """Which shapes train and which validate.

    Attributes:
        train: Shapes to train on.
        valid: Shapes to validate on.
        summary: What is there of what was published.
        missing: How many of those that were published are not there.
    """

    train: tuple[Shape, ...]
    valid: tuple[Shape, ...]
    summary: str
    missing: int = 0


def split_by_lists(folder: Path, found: Found, synsets: Container[str]) -> Split | None:
    """The benchmark's split: its training list trains, its test list validates; None if there are no lists.

    Raises:
        DataError: There is one list without the other, a list cannot be read, names a shape twice or one of no
            category.
    """
    paths = [folder / _LISTS / f"shuffled_{part}_file_list.json" for part in ("train", "test")]
    absent = [path for path in paths if not path.is_file()]
    if len(absent) == len(paths):
        return None
    if absent:
        raise DataError(f"{str(absent[0])!r} is missing, the other list is there. Restore both, or remove both.")
    lists = [_read_list(path, synsets) for path in paths]
    both = set(lists[0]) & set(lists[1])
    if both:
        raise DataError(
            f"{'/'.join(min(both))!r} (one of {len(both)}) is in both lists of {str(folder / _LISTS)!r}; no shape may "
            "train and validate. Restore the lists from the published archive."
        )
    train, valid = (tuple(found[key] for key in keys if key in found) for keys in lists)
    summary = (
        f"official lists: {len(train)} of {len(lists[0])} shapes to train on, "
        f"{len(valid)} of {len(lists[1])} to validate on"
    )
    return Split(train, valid, summary, sum(map(len, lists)) - len(train) - len(valid))


def split_by_content(found: Iterable[Shape]) -> Split:
    """The paper's split: shapes whose points' file has an MD5 sum that begins with 0 to 7 train, the others validate.

    Raises:
        DataError: A file cannot be read.
    """
    parts: tuple[list[Shape], list[Shape]] = ([], [])
    for shape in found:
        try:
            content = shape.points.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {str(shape.points)!r}: {error.strerror}. Restore the file.") from error
        parts[_digest(content)[0] >= "8"].append(shape)
    total, published = sum(map(len, parts)), PUBLISHED["train"] + PUBLISHED["val"]
    summary = (
        f"the paper's split by MD5: {total} of {published} shapes, {len(parts[0])} to train on, "
        f"{len(parts[1])} to validate on"
    )
    return Split(tuple(parts[0]), tuple(parts[1]), summary, max(published - total, 0))


def split_by_id(found: Found) -> Split:
    """A split for shapes without lists: of each category, the half whose ids have the lower MD5 sums validates.

    Where no category has two shapes, all shapes are halved together, or there would be nothing to validate on.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for synset, name in found:
        groups.setdefault(synset, []).append((synset, name))
    alone = all(len(group) == 1 for group in groups.values())
    train: list[Shape] = []
    valid: list[Shape] = []
    for group in [list(found)] if alone else groups.values():
        order = sorted(group, key=lambda key: _digest("/".join(key).encode()))
        half = len(order) // 2
        valid += [found[key] for key in order[:half]]
        train += [found[key] for key in order[half:]]
    published = sum(PUBLISHED.values())
    within = "over all categories" if alone else "within each category"
    summary = (
        f"no official lists: {len(found)} of {published} shapes, halved {within} by the MD5 sums of their ids, "
        f"{len(train)} to train on, {len(valid)} to validate on"
    )
    return Split(tuple(train), tuple(valid), summary, published - len(found))


def _read_list(path: Path, synsets: Container[str]) -> Sequence[tuple[str, str]]:
    """Synset and id of each entry ``shape_data/<synset>/<id>``."""
    remedy = "Restore the list from the published archive."
    try:
        entries = json.loads(read_text(path, remedy))
    except ValueError as error:
        raise DataError(f"{str(path)!r} is not JSON: {error}. {remedy}") from error
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{str(path)!r} is not a list of 'shape_data/<synset>/<id>'. {remedy}")
    keys: dict[tuple[str, str], None] = {}
    for entry in entries:
        parts = entry.split("/") if isinstance(entry, str) else []
        if len(parts) != 3 or not all(parts) or parts[1] not in synsets:
            raise DataError(
                f"{str(path)!r} has the entry {entry!r}; 'shape_data/<synset>/<id>' with a category's synset is "
                f"expected. {remedy}"
            )
        if (parts[1], parts[2]) in keys:
            raise DataError(f"{str(path)!r} has {entry!r} twice. {remedy}")
        keys[parts[1], parts[2]] = None
    return tuple(keys)


def _digest(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
