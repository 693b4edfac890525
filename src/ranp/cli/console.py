"""The terminal: results on stdout, progress on stderr, whole lines where nobody is looking."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import TaskID

_FILE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe, where rich would cut at 80."""


def printable(text: str, *, lines: bool = True) -> str:
    r"""The text with all that could steer a terminal or hide in it written out: ESC becomes ``\x1b``.

    >>> print(printable("conv\x1b[2J"))
    conv\x1b[2J

    Args:
        text: What names and files say.
        lines: Leave line breaks as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def say(text: str, *, err: bool = False) -> None:
    """Writes a line to stdout, or to stderr; nothing in it steers the terminal."""
    typer.echo(printable(text), err=err)


def show_json(value: Any) -> None:
    """Writes one JSON value to stdout."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    typer.echo("".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text))


def _escape(character: str) -> str:
    """A character as JSON can say it; ``json.dumps`` leaves DEL as it is."""
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", left: int = 1) -> None:
    """Writes a table to stdout, the first ``left`` columns flush left.

    Args:
        header: Names of the columns.
        rows: Cells of each row.
        title: A line above it.
        left: How many columns hold words rather than figures.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # What stands in a table comes from files and names: it is shown as it is, never read as markup.
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False, markup=False, emoji=False)
    if title:
        console.print(printable(title, lines=False), style="bold", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(
            printable(name, lines=False), justify="left" if index < left else "right", no_wrap=index >= left
        )
    for row in rows:
        table.add_row(*(printable(cell, lines=False) for cell in row))
    console.print(table)


@contextmanager
def progress_bars(
    *, quiet: bool = False, lines: Collection[str] = ()
) -> Iterator[Callable[[str, int, int | None, str], None]]:
    """Draws bars on stderr, one for each label, with the time that is left.

    Where stderr goes to a file or a pipe, each label is one line when all is done, and none after an error: then the
    error is all there is to read.

    The value is a function of ``(label, done, total or None, remark)``.

    Args:
        quiet: Draw nothing.
        lines: Labels that are written as whole lines at once: they stay, also where nobody is looking.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[remark]}", markup=False),
    )
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
    watched = console.is_terminal and not quiet
    last: dict[str, str] = {}
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=console) if watched else nullcontext() as progress:

        def move(label: str, done: int, total: int | None, remark: str = "") -> None:
            name, words = printable(label, lines=False), printable(remark, lines=False)
            line = f"{name} {done}" + (f" of {total}" if total else "") + (f": {words}" if words else "")
            if label in lines:
                if not quiet:
                    console.print(line)
            elif progress is None:
                last[label] = line
            else:
                if label not in bars:
                    bars[label] = progress.add_task(name, total=total, remark=words)
                progress.update(bars[label], completed=done, total=total, remark=words)

        yield move
    for line in () if quiet else last.values():
        console.print(line)


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """One bar: the value is a function of ``(done, total or None)``."""
    with progress_bars(quiet=quiet) as move:
        yield lambda done, total: move(label, done, total, "")
