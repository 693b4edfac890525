"""Pieces of HTML from plain values. Whatever comes from a file is escaped here and nowhere else."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ranp.files import atomic

__all__ = ["Chart", "Section", "details", "drawing", "image", "name", "note", "picture", "table", "text"]

_TAG = re.compile("<[^>]*>")
_BORDERS = {"solid": "solid", "dot": "dotted"}
_NAME = 30
"""Characters of a cell that stays on one line."""
_CLASS = {True: ' class="words"', False: ""}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for plotly, and what stands for it where it cannot be seen.

    Attributes:
        key: Names it on the page.
        figure: ``{"data": [...], "layout": {...}}``, plain JSON; a colour may be a variable of the style sheet.
        caption: What it shows.
        summary: The same in words, for those who do not see it.
        data: HTML of a table with its figures; may be empty.
    """

    key: str
    figure: dict[str, Any]
    caption: str
    summary: str
    data: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page.

    Attributes:
        key: Its anchor.
        title: Its heading.
        link: What the list of contents calls it; default its heading.
        body: HTML, with headings from ``h3`` on.
        charts: Figures that the body has places for.
        data: What the script needs besides, by name.
    """

    key: str
    title: str
    body: str
    charts: tuple[Chart, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    link: str = ""


def text(value: object) -> str:
    """Text that comes from a file or a user, safe between tags and in attributes; long names may break at dots."""
    return html.escape(str(value), quote=True)


def name(value: object) -> str:
    """A dotted name that may be broken after its dots where a line is short."""
    return text(value).replace(".", ".<wbr>").replace("/", "/<wbr>").replace("_", "_<wbr>")


def note(words: str) -> str:
    """A remark that something is missing, and why."""
    return f'<p class="note">{text(words)}</p>'


def details(title: str, body: str) -> str:
    """Something that is folded away until it is asked for."""
    return f"<details><summary>{text(title)}</summary>{body}</details>"


def drawing(chart: Chart) -> str:
    """The place of a chart, with caption and the figures behind it."""
    data = details("The figures of this chart", chart.data) if chart.data else ""
    return (
        f'<figure class="chart">{_legend(chart)}<div class="plot" id="chart-{text(chart.key)}" role="img" '
        f'aria-label="{text(chart.summary)}"></div><figcaption>{text(chart.caption)}</figcaption>{data}</figure>'
    )


def _legend(chart: Chart) -> str:
    """The names of lines and marks above a chart that has too many for a legend of its own; else nothing."""
    if chart.figure["layout"].get("showlegend", True):
        return ""
    named = [trace for trace in chart.figure["data"] if trace.get("showlegend", True)]
    entries = []
    for trace in named:  # their names are safe already: plotly reads tags in them
        line, mark = trace.get("line"), f'<i style="background:{trace["marker"]["color"]}"></i>'
        if line:
            style = f"border-top-style:{_BORDERS.get(line['dash'], 'dashed')};border-top-color:{line['color']}"
            mark = f'<i class="line" style="{style}"></i>'
        entries.append(f"<li>{mark}{trace['name']}</li>")
    return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


def image(path: Path, words: str, caption: str = "") -> str:
    """A drawing from a file, inside the page; as an image it can run no code and load nothing."""
    kind = {".svg": "svg+xml", ".png": "png"}[path.suffix]
    return picture(atomic.read_bytes(path), kind, words, caption)


def picture(data: bytes, kind: str, words: str, caption: str = "") -> str:
    """A drawing as bytes, inside the page."""
    told = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    shown = f'<img src="{source}" alt="{text(words)}">'
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{text(words)}">{shown}</div>'
    return f'<figure class="paper">{box}{told}</figure>'


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str,
    left: Sequence[bool] | int = 1,
    groups: Sequence[tuple[str, Sequence[Sequence[str]]]] = (),
    sortable: bool = False,
    shown: bool = True,
    long: bool = False,
) -> str:
    """A table in a box that scrolls by itself; the first cell of a row is its heading.

    Args:
        columns: Names, plain text.
        rows: Cells, HTML.
        caption: What it shows.
        left: Which columns hold words; a number says how many of the first.
        groups: Rows under headings of their own, instead of ``rows``.
        sortable: A click on a column's name sorts by it.
        shown: Whether the caption is seen, or only heard.
        long: Whether it has so many rows that its box scrolls up and down too.
    """
    words = [index < left for index in range(len(columns))] if isinstance(left, int) else list(left)
    head = "".join(_heading(column, words[index], sortable) for index, column in enumerate(columns))
    bodies = []
    for title, members in groups or (("", list(rows)),):
        above = (
            f'<tr class="group"><th scope="rowgroup" colspan="{len(columns)}">{text(title)}</th></tr>' if title else ""
        )
        lines = [above, *(_row(row, words) for row in members)]
        bodies.append(f"<tbody>{''.join(lines)}</tbody>")
    hidden = "" if shown else ' class="unseen"'
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="{"scroll long" if long else "scroll"}" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table{kind}><caption{hidden}>{text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>{''.join(bodies)}</table></div>"
    )


def _heading(column: str, words: bool, sortable: bool) -> str:
    kind = _CLASS[words]
    if not sortable:
        return f'<th scope="col"{kind}>{text(column)}</th>'
    return f'<th scope="col"{kind} aria-sort="none"><button type="button">{text(column)}</button></th>'


def _row(row: Sequence[str], words: Sequence[bool]) -> str:
    cells = [
        f'<th scope="row"{_CLASS[words[0]]}>{cell}</th>' if not index else f"<td{_kind(cell, words[index])}>{cell}</td>"
        for index, cell in enumerate(row)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _kind(cell: str, words: bool) -> str:
    """Sentences may be broken into lines, names and figures may not."""
    return ' class="words prose"' if words and len(_TAG.sub("", cell)) > _NAME else _CLASS[words]
