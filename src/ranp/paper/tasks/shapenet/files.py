"""One published shape: its points and labels out of the text files that ShapeNet-Part keeps them in.

Two forms: ``.pts`` (x y z) beside ``.seg`` (a part of the category, from 1), and ``.txt`` (x y z, a normal that is not
used, a label from 0 to 49). Whatever does not look right is refused with file, line, value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ranp.errors import DataError
from ranp.paper.tasks.reading import look_at_all, read_text
from ranp.paper.tasks.shapenet.catalogue import FIRST, NAMES, PARTS
from ranp.paper.tasks.shapenet.scans import Scans
from ranp.paper.tasks.shapenet.solids import Labels, Points
from ranp.paper.tasks.task import available
from ranp.progress import Progress

__all__ = ["PublishedShapes", "Shape", "read_shape"]

_REMEDY = "Restore the file from the published archive."
_ORDER = 2  # purpose of the generator that picks shapes


@dataclass(frozen=True, slots=True)
class Shape:
    """Where a shape is.

    Attributes:
        category: Number of its category, in ``NAMES``.
        points: The ``.pts`` file, or the ``.txt`` file.
        labels: The ``.seg`` file; None where the labels stand beside the points.
    """

    category: int
    points: Path
    labels: Path | None = None


class PublishedShapes(Scans):
    """Shapes of the published data set, read when they are asked for.

    Args:
        shapes: Where they are.
        split: 0 to train, 1 to validate.
        size: Edge length S of the grid, at least 8.
        count: Number of shapes, drawn by seed from all there are, and never more than that; None for all.
        seed: Same seed, same shapes.

    Raises:
        DataError: A size, a count or a seed out of range.
    """

    def __init__(
        self, shapes: Sequence[Shape], split: int, size: int = 64, count: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(size, available(count, len(shapes), "shapes"), seed)
        order = np.arange(len(shapes))
        if self.count < len(shapes):  # lists may be sorted by category
            order = np.random.default_rng((seed, split, _ORDER)).permutation(len(shapes))
        self.shapes = tuple(shapes[index] for index in order[: self.count])

    def scan(self, index: int) -> tuple[Points, Labels]:
        """Points of one shape, divided by their largest norm, and their labels.

        Raises:
            DataError: A file is not what it should be.
        """
        return read_shape(self.shapes[index])

    def check(self, progress: Progress | None = None) -> None:
        """Reads every shape once.

        Raises:
            DataError: A file is not what it should be.
        """
        look_at_all(self.shapes, read_shape, progress)


def read_shape(shape: Shape) -> tuple[Points, Labels]:
    """Points (N, 3), divided by their largest norm and not centred, and labels (N,), 0 to 49 over all categories.

    Raises:
        DataError: A file is missing, empty or no text, a line is no row of numbers, there are fewer labels than points
            or more, or a label is not one of the category's.
    """
    if shape.labels is None:
        table = _read_table(shape.points, 7)
        points, lowest, column, named = table[:, :3], FIRST[shape.category], table[:, 6], shape.points
    else:
        points, lowest, named = _read_table(shape.points, 3), 1, shape.labels
        column = _read_table(named, 1)[:, 0]
        if len(points) != len(column):
            raise DataError(
                f"{str(named)!r} has {len(column)} labels, and {str(shape.points)!r} has {len(points)} points; "
                f"there must be one label for each point. {_REMEDY}"
            )
    wrong = (column != np.floor(column)) | (column < lowest) | (column >= lowest + PARTS[shape.category])
    if wrong.any():
        line = int(wrong.argmax())
        raise DataError(
            f"{str(named)!r}, line {line + 1}: label {column[line]:g} is no part of {NAMES[shape.category]}; allowed "
            f"are {lowest} to {lowest + PARTS[shape.category] - 1}. {_REMEDY}"
        )
    farthest = float(np.linalg.norm(points, axis=1).max())
    if not farthest:
        raise DataError(f"{str(shape.points)!r}: all points are 0 0 0, so that they have no shape. {_REMEDY}")
    return points / farthest, column.astype(np.int64) - lowest + FIRST[shape.category]


def _read_table(path: Path, columns: int) -> Points:
    """Rows of finite numbers, one for each line."""
    lines = read_text(path, _REMEDY).rstrip().splitlines()
    if not lines:
        raise DataError(f"{str(path)!r} is empty; {columns} number{'s'[: columns - 1]} a line are expected. {_REMEDY}")
    try:
        table: Points = np.loadtxt(lines, dtype=np.float64, comments=None, ndmin=2)
        good = table.shape == (len(lines), columns) and bool(np.isfinite(table).all())
    except ValueError:
        good = False
    if not good:
        number, line = next((n, line) for n, line in enumerate(lines, start=1) if not _is_row(line, columns))
        raise DataError(
            f"{str(path)!r}, line {number}: {line[:60]!r} is not {columns} finite number{'s'[: columns - 1]}. {_REMEDY}"
        )
    return table


def _is_row(line: str, columns: int) -> bool:
    try:
        row = np.loadtxt([line], dtype=np.float64, comments=None, ndmin=2) if line.strip() else np.empty((1, 0))
    except ValueError:
        return False
    return row.shape == (1, columns) and bool(np.isfinite(row).all())
