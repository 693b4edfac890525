"""A reader of LaTeX tables: the source of a paper in, a grid of plain cells out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


def without_comments(source: str) -> str:
    return re.sub(r"(?<!\\)%.*", "", source)


@dataclass(frozen=True)
class Cell:
    text: str
    mark: str = ""
    columns: int = 1
    rows: int = 1


def tabular(source: str, label: str) -> str:
    """What stands between the braces of the table's column specification and its end."""
    tables = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source, re.S)
    (table,) = (table for table in tables if f"\\label{{tb:{label}}}" in table)
    (body,) = re.findall(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", table, re.S)
    return body


def argument(text: str, start: int) -> tuple[str, int]:
    """What stands in the braces that open at or after ``start``, and where they end."""
    start = text.index("{", start)
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return text[start + 1 : at], at + 1
    raise AssertionError(f"an open brace in {text!r}")


def split(text: str, separator: str) -> list[str]:
    """Parts of a text at separators outside of all braces."""
    parts, depth, at, begin = [], 0, 0, 0
    while at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth and text.startswith(separator, at):
            parts.append(text[begin:at])
            at = begin = at + len(separator)
        else:
            at += 1
    return [*parts, text[begin:]]


def expand(text: str, macro: str, count: int, keep: str) -> str:
    """The text with ``\\macro{..}{..}`` replaced by ``keep``, in which ``{0}`` is the first argument."""
    while found := re.search(rf"\\{macro}(?![a-zA-Z])(\[\w*\])?", text):
        at, given = found.end(), []
        for _ in range(count):
            one, at = argument(text, at)
            given.append(one)
        text = text[: found.start()] + keep.format(*given) + text[at:]
    return text


def plain(text: str) -> str:
    """LaTeX as it reads."""
    for macro, count, keep in (
        ("accerror", 2, "{0}±{1}"),
        ("hspace", 1, ""),
        ("rotatebox", 2, ""),
        ("multirow", 3, "{2}"),
        *((macro, 1, "{0}") for macro in ("textbf", "textit", "sunderline", "underline", "Ext", "myblue")),
        ("makecell", 1, "{0}"),
        *((macro, 1, "") for macro in ("cite", "ref", "label")),
    ):
        text = expand(text, macro, count, keep)
    for old, new in (
        (r"$\pm$", "±"),
        (r"$\downarrow$", ""),
        (r"$\uparrow$", ""),
        (r"${\sim}$", "~"),
        (r"\times", "x"),
        ("\\\\", " "),
        (r"\%", "%"),
        (r"\ie", "i.e."),
    ):
        text = text.replace(old, new)
    text = re.sub(r"\$\\sim([^$]*)\$", r"~\1", text)
    return re.sub(r"\s+", " ", re.sub(r"[{}$]", "", text)).strip()


def cell(text: str) -> Cell:
    columns = rows = 1
    if r"\multicolumn" in text:
        columns = int(argument(text, text.index(r"\multicolumn"))[0])
        text = expand(text, "multicolumn", 3, "{2}")
    if r"\multirow" in text:
        rows = int(argument(text, text.index(r"\multirow"))[0])
    mark = "best" if r"\textbf" in text else "second" if "underline" in text else ""
    return Cell(plain(text), mark, columns, rows)


def lines(body: str) -> list[list[Cell]]:
    """The cells as they are written, without rules between lines."""
    body = re.sub(r"\\(hline|cline\{[^}]*\})", "", body)
    return [[cell(text) for text in split(line, "&")] for line in split(body, r"\\") if line.strip()]


def grid(body: str) -> list[list[Cell]]:
    """The cells in their columns: one that spans columns stands in the first, one that spans rows stands in each."""
    table: list[list[Cell]] = []
    below: dict[tuple[int, int], Cell] = {}
    for index, line in enumerate(lines(body)):
        cells: list[Cell] = []
        for one in line:
            column = len(cells)
            if one.rows > 1:
                below.update({(index + n, column): one for n in range(1, one.rows)})
            cells += [below.get((index, column), one) if not one.text else one, *[Cell("")] * (one.columns - 1)]
        table.append(cells)
    return table


def texts(line: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(cell.text for cell in line)


def filled(line: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(text for text in texts(line) if text)
