"""The page's templates, and the values they are filled with, tables included; what comes from a file is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ranp.errors import StorageError
from ranp.files import atomic
from ranp.reporting import format as written
from ranp.reporting.looks import look_of, method_name
from ranp.reporting.table import Column, Group, Table


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for plotly, and what stands for it where it cannot be seen.

    Attributes:
        key: Names it on the page.
        figure: ``{"data": [...], "layout": {...}}``, plain JSON; a colour may be a variable of the style sheet.
        caption: What it shows.
        summary: The same in words, for those who do not see it.
        table: Its figures, if they stand beside it.
    """

    key: str
    figure: dict[str, Any]
    caption: str
    summary: str
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """A drawing inside the page; as an image it can run no code and load nothing.

    Attributes:
        data: Bytes of a PNG or an SVG file.
        kind: ``"png"`` or ``"svg"``.
        words: What it shows, for those who do not see it.
        caption: Below it.
    """

    data: bytes
    kind: str
    words: str
    caption: str

    @property
    def address(self) -> str:
        """The data themselves as an address."""
        kind = {"png": "png", "svg": "svg+xml"}[self.kind]
        return f"data:image/{kind};base64,{base64.b64encode(self.data).decode('ascii')}"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page.

    Attributes:
        key: Its anchor.
        title: Its heading.
        body: What ``render`` made, with headings from ``h3`` on.
        charts: Figures that the body has places for.
        data: What the script needs besides, by name.
        link: What the list of contents calls it; default its heading.
    """

    key: str
    title: str
    body: Markup
    charts: tuple[Chart, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    link: str = ""


def render(template: str, **values: Any) -> Markup:
    """A template of the page, filled in; a value that is missing is an error."""
    return Markup(_environment().get_template(template).render(values))


def verbatim(name: str) -> Markup:
    """A file beside the templates as it is: the style sheet, the script, what charts share."""
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0].replace("\r\n", "\n"))


def dotted(name: object) -> Markup:
    """A name that may be broken after dots, slashes and underscores where a line is short."""
    safe = escape(name)
    for sign in "./_":
        safe = safe.replace(sign, Markup(f"{sign}<wbr>"))
    return safe


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ranp.page", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "ensure_ascii": False}
    environment.filters["dotted"] = dotted
    environment.globals.update({name: getattr(written, name) for name in written.__all__})
    environment.globals.update(look_of=look_of, method_name=method_name)
    return environment


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
