"""Figures in columns: as text for a terminal, as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Grid", "html"]

LONG = 30
"""A notebook folds what has more rows."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells in columns.

    >>> print(Grid([("layer", "params"), None, ("head", "10")], left=[0]))
    layer  params
    -----  ------
    head       10

    Attributes:
        lines: Rows of equally many cells, the head first; None draws a rule.
        left: Which columns hold words, flush left.
    """

    lines: Sequence[tuple[str, ...] | None]
    left: Collection[int]

    def __str__(self) -> str:
        rows = [line for line in self.lines if line is not None]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        drawn = []
        for line in self.lines:
            cells = enumerate(zip(line or ("-" * width for width in widths), widths, strict=True))
            drawn.append("  ".join(c.ljust(w) if i in self.left else c.rjust(w) for i, (c, w) in cells).rstrip())
        return "\n".join(drawn)

    def _html(self) -> str:
        head, *body = (line for line in self.lines if line is not None)
        table = f"<table><thead>{self._row(head, 'th')}</thead><tbody>"
        table += "".join(self._row(row, "td") for row in body) + "</tbody></table>"
        table = f'<div style="overflow-x: auto">{table}</div>'
        return f"<details><summary>{len(body)} rows</summary>{table}</details>" if len(body) > LONG else table

    def _row(self, cells: tuple[str, ...], tag: str) -> str:
        row = "<tr>"
        for at, cell in enumerate(cells):
            style = "text-align: left" if at in self.left else "text-align: right; white-space: nowrap"
            row += f'<{tag} style="{style}">{escape(cell)}</{tag}>'
        return row + "</tr>"


def html(parts: Iterable[str | Grid]) -> str:
    """Paragraphs and tables as Jupyter shows them. No colours are set: they are the reader's, light or dark."""
    shown = (
        part._html() if isinstance(part, Grid) else f'<p style="white-space: pre-wrap">{escape(part)}</p>'
        for part in parts
    )
    return f"<div>{''.join(shown)}</div>"
