"""Tables of the page, and those that lie on disk: of a reproduction, and the comparison of a demonstration."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ranp.errors import StorageError
from ranp.files import atomic
from ranp.paper.comparison import HEADER
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.timing import median_ratio
from ranp.reporting.format import MIB, sentence, share
from ranp.reporting.looks import method_name

__all__ = ["Group", "Table", "comparison_table", "table_from", "table_of"]


def table_of(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]] = (), *, left: Sequence[int] = (0,), **more: Any
) -> Table:
    """A table of one group, unless ``groups`` are given; the columns of ``left`` hold words."""
    heads = tuple(Column(name, index in left) for index, name in enumerate(columns))
    values = {"name": "", "title": "", "groups": (Group("", tuple(map(tuple, rows))),), **more}
    return Table(columns=heads, caption=caption, **values)


def table_from(path: Path, value: Mapping[str, Any]) -> Table:
    """The table that a ``ranp-table`` file holds; its figures are whole paths.

    Raises:
        StorageError: An entry is missing or of the wrong kind, a row is too short or too long, or a drawing is missing.
    """
    try:
        columns = tuple(Column(str(column["name"]), bool(column.get("left"))) for column in value["columns"])
        groups = tuple(
            Group(str(group.get("title") or ""), tuple(tuple(map(str, row)) for row in group["rows"]))
            for group in value["groups"]
        )
        for group in groups:
            for number, row in enumerate(group.rows, 1):
                if len(row) != len(columns):
                    raise StorageError(
                        f"{str(path)!r}: row {number} of {group.title!r} has {len(row)} cells, not {len(columns)}. "
                        "Make it again."
                    )
        title = str(value["title"])
        return Table(
            name=path.stem,
            title=title,
            caption=str(value.get("caption") or title),
            columns=columns,
            groups=groups,
            notes=tuple(map(str, value.get("notes") or ())),
            figures=tuple(_beside(path, name, said) for name, said in (value.get("figures") or {}).items()),
            command=str(value.get("command") or ""),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _invalid(path, "table", error) from error


def _invalid(path: Path, what: str, error: Exception) -> StorageError:
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return StorageError(f"{str(path)!r} is not a valid {what}: {reason}. Make it again.")


def _beside(path: Path, name: str, said: str) -> str:
    """A drawing beside its table; a name that leads elsewhere is refused, and a drawing that is not as it was."""
    found = path.parent / name
    if Path(name).name != name or found.suffix not in (".svg", ".png"):
        raise StorageError(f"{str(path)!r} names the drawing {name!r}. Name an SVG or PNG file that lies beside it.")
    if not found.is_file():
        raise StorageError(f"{str(path)!r} names the drawing {name!r}, which is not there. Make the table again.")
    if atomic.checksum(atomic.read_bytes(found)) != said:
        raise StorageError(f"{str(found)!r} was changed since it was written. Restore a copy, or make the table again.")
    return str(found)


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
                f"{one['memory'] * MIB:,.2f}",
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
        raise _invalid(path, "comparison", error) from error
    caption = (
        "Networks trained alike, measured side by side. The last row is what always answering the most frequent part "
        "of an object's category is worth."
    )
    names = [method_name(row[0]) for row in rows[:-1]]
    title = sentence(f"{', '.join(names[:-1])} and {names[-1]}, trained alike")
    return table_of(caption, HEADER, rows, name=path.stem, title=title, notes=notes)
