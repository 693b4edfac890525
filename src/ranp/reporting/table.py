"""A table of results: Markdown for people, CSV for programs, LaTeX for papers, JSON for the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranp.files import atomic

__all__ = ["Column", "Group", "Table"]

KIND, VERSION = "ranp-table", 2
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"\dag{}",
    "·": r"$\cdot$",
    "→": r"$\rightarrow$",
    "λ": r"$\lambda$",
    "³": r"$^3$",
    "\u00d7": r"$\times$",
    "<": r"$<$",
    ">": r"$>$",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its head.
        left: It holds words, flush left.
        text: Makes its entry of a line of an experiment.
    """

    name: str
    left: bool = False
    text: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together, such as those of one network."""

    title: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with what the reader must know to judge it.

    Attributes:
        name: Of its files.
        title: One line above it.
        columns: What they hold.
        groups: The rows.
        caption: What it is and how it was made.
        notes: What to mind.
        records: The same as numbers, one plain mapping per row of the CSV file.
        figures: Names of drawings that belong to it.
        command: What makes it again.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    caption: str = ""
    notes: tuple[str, ...] = ()
    records: tuple[dict[str, Any], ...] = ()
    figures: tuple[str, ...] = ()
    command: str = ""

    def __post_init__(self) -> None:
        for group in self.groups:
            for row in group.rows:
                if len(row) != len(self.columns):
                    raise ValueError(f"{self.name}: a row of {len(row)} cells in a table of {len(self.columns)}: {row}")

    def to_markdown(self) -> str:
        """With a heading, a row for the title of each group, and the notes below."""
        lines = [f"## {self.title}", ""]
        if self.caption:
            lines += [self.caption, ""]
        if self.command:
            lines += [f"    {self.command}", ""]
        for group in self.groups:
            if group.title:
                lines += [f"**{group.title}**", ""]
            lines.append(_row(column.name for column in self.columns))
            lines.append(_row("---" if column.left else "---:" for column in self.columns))
            lines += [_row(cell.replace("|", "\\|") for cell in row) for row in group.rows]
            lines.append("")
        lines += [f"- {note}" for note in self.notes]
        lines += ["", *(f"![{Path(name).stem}]({name})" for name in self.figures)] if self.figures else []
        return "\n".join(lines).rstrip() + "\n"

    def to_csv(self) -> str:
        """One line per record, numbers in full; the cells themselves where there are no records."""
        records: Sequence[dict[str, Any]] = self.records or [
            {"group": group.title, **dict(zip((column.name for column in self.columns), row, strict=True))}
            for group in self.groups
            for row in group.rows
        ]
        names = list(dict.fromkeys(name for record in records for name in record))
        out = io.StringIO()
        writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return out.getvalue()

    def to_latex(self) -> str:
        """A ``table*`` with ``booktabs``; notes stand in the caption."""
        spec = "".join("l" if column.left else "r" for column in self.columns)
        head = " & ".join(_latex(column.name) for column in self.columns)
        body: list[str] = []
        for group in self.groups:
            body.append(r"\midrule")
            if group.title:
                body.append(rf"\multicolumn{{{len(self.columns)}}}{{l}}{{\textbf{{{_latex(group.title)}}}}} \\")
            body += [" & ".join(map(_latex, row)) + r" \\" for row in group.rows]
        caption = " ".join(_latex(text) for text in (f"{self.title}.", self.caption, *self.notes) if text)
        return "\n".join(
            [
                r"% needs \usepackage{booktabs}",
                r"\begin{table*}[t]",
                r"\centering",
                rf"\caption{{{caption}}}",
                rf"\label{{tb:{self.name}}}",
                rf"\begin{{tabular}}{{{spec}}}",
                r"\toprule",
                head + r" \\",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table*}",
                "",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The table as plain values, ready for JSON, without its drawings."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "columns": [{"name": column.name, "left": column.left} for column in self.columns],
            "groups": [{"title": group.title, "rows": [list(row) for row in group.rows]} for group in self.groups],
            "notes": list(self.notes),
            "command": self.command,
        }

    def write(self, folder: Path) -> list[Path]:
        """Writes it in every form; its drawings must be there already.

        Raises:
            StorageError: The folder cannot be written to, or a drawing cannot be read.
        """
        forms = {".md": self.to_markdown(), ".csv": self.to_csv(), ".tex": self.to_latex()}
        paths = [folder / f"{self.name}{suffix}" for suffix in forms]
        for path, text in zip(paths, forms.values(), strict=True):
            atomic.write_atomic(path, text.encode())
        figures = {name: atomic.checksum(atomic.read_bytes(folder / name)) for name in self.figures}
        value = {**self.to_dict(), "figures": figures}
        atomic.write_json(folder / f"{self.name}.json", value, kind=KIND, version=VERSION)
        return [*paths, folder / f"{self.name}.json"]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
