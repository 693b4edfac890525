"""The page's templates, and the values they are filled with. The engine escapes whatever comes from a file."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ranp.paper.experiments.table import Table
from ranp.reporting import format as written
from ranp.reporting.looks import look_of, method_name

__all__ = ["Chart", "Image", "Section", "render", "verbatim"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for plotly, and what stands for it where it cannot be seen.

    Attributes:
        key: Names it on the page.
        figure: ``{"data": [...], "layout": {...}}``, plain JSON; a colour may be a variable of the style sheet.
        caption: What it shows.
        summary: The same in words, for those who do not see it.
        table: Its figures, if they are told beside it.
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
