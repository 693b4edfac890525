"""Tables that lie on disk: those of a reproduction, and the comparison of a demonstration, as one kind of value."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranp.errors import StorageError
from ranp.files import atomic
from ranp.page.wording import method_name, sentence, share
from ranp.paper.comparison import HEADER
from ranp.paper.timing import median_ratio
from ranp.reporting.figures import MB

__all__ = ["Group", "Table", "comparison_table", "table_from"]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under a heading of their own, which may be empty."""

    title: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with what its reader must know.

    Attributes:
        name: Of the file, without its ending.
        title: Above it.
        caption: Below the title, what it shows.
        columns: Names.
        left: Which of the columns hold words, flush left.
        groups: The rows.
        notes: What must be known to judge the figures.
        figures: Drawings that belong to it, files beside it.
        command: What makes it again; empty if it does not say.
    """

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    left: tuple[bool, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    figures: tuple[Path, ...] = ()
    command: str = ""


def table_from(path: Path, value: Mapping[str, Any]) -> Table:
    """The table that a ``ranp-table`` file holds.

    Raises:
        StorageError: An entry is missing or of the wrong kind, a row is too short or too long, or a drawing is missing.
    """
    try:
        columns = tuple(str(column["name"]) for column in value["columns"])
        groups = tuple(
            Group(str(group.get("title") or ""), tuple(tuple(map(str, row)) for row in group["rows"]))
            for group in value["groups"]
        )
        table = Table(
            name=path.stem,
            title=str(value["title"]),
            caption=str(value.get("caption") or ""),
            columns=columns,
            left=tuple(bool(column.get("left")) for column in value["columns"]),
            groups=groups,
            notes=tuple(map(str, value.get("notes") or ())),
            figures=tuple(_beside(path, name, said) for name, said in (value.get("figures") or {}).items()),
            command=str(value.get("command") or ""),
        )
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StorageError(f"{str(path)!r} is not a valid table: {reason}. Make it again.") from error
    for group in groups:
        for number, row in enumerate(group.rows, 1):
            if len(row) != len(columns):
                raise StorageError(
                    f"{str(path)!r}: row {number} of {group.title!r} has {len(row)} cells, not {len(columns)}. "
                    "Make it again."
                )
    return table


def _beside(path: Path, name: str, said: str) -> Path:
    """A drawing beside its table; a name that leads elsewhere is refused, and a drawing that is not as it was."""
    found = path.parent / name
    if Path(name).name != name or found.suffix not in (".svg", ".png"):
        raise StorageError(f"{str(path)!r} names the drawing {name!r}. Name an SVG or PNG file that lies beside it.")
    if not found.is_file():
        raise StorageError(f"{str(path)!r} names the drawing {name!r}, which is not there. Make the table again.")
    if atomic.checksum(atomic.read_bytes(found)) != said:
        raise StorageError(f"{str(found)!r} was changed since it was written. Restore a copy, or make the table again.")
    return found


def comparison_table(path: Path, value: Mapping[str, Any]) -> Table:
    """The comparison of a demonstration as a table, guessing and the ratios of step times included.

    Raises:
        StorageError: An entry is missing or of the wrong kind.
    """
    try:
        contenders, guess = value["contenders"], value["guess"]
        first = contenders[0]["seconds"]
        rows = [
            (
                str(one["name"]),
                share(one["removed"]),
                f"{one['params']:,}",
                f"{one['flops'] / 1e6:,.1f}",
                f"{one['memory'] * MB:,.2f}",
                f"{statistics.median(one['seconds']):.3f}",
                f"{median_ratio(one['seconds'], first):.2f}",
                share(one["accuracy"]),
                share(one["miou"]),
            )
            for one in contenders
        ]
        rows.append(("(guessing)", "", "", "", "", "", "", share(guess["accuracy"]), share(guess["miou"])))
        notes = tuple(map(str, value["notes"]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, statistics.StatisticsError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StorageError(f"{str(path)!r} is not a valid comparison: {reason}. Make it again.") from error
    left = (True, *(False for _ in HEADER[1:]))
    caption = (
        "Networks trained alike, measured side by side. The last row is what always answering the most frequent part "
        "of an object's category is worth."
    )
    names = [method_name(row[0]) for row in rows[:-1]]
    title = f"{', '.join(names[:-1])} and {names[-1]}, trained alike"
    return Table(path.stem, sentence(title), caption, HEADER, left, (Group("", tuple(rows)),), notes)
