"""The terminal: results on stdout, progress on stderr, whole lines where nobody is looking."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

import typer

from ranp.progress import Pace, duration, silent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from ranp.reporting.table import Table

EVERY = 5.0
"""Seconds between two lines of progress where stderr is no terminal."""

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


def show_tables(*tables: Table) -> None:
    """Writes tables to stdout, group by group, and below them what the reader must mind."""
    for table in tables:
        for group in table.groups:
            show_table([column.name for column in table.columns], group.rows, title=group.title or table.title)
    for note in (note for table in tables for note in table.notes):
        say(f"- {note}")


@contextmanager
def progress_bars(
    doing: str, *, quiet: bool = False, lines: Collection[str] = ()
) -> Iterator[Callable[[str, int, int | None, str], None]]:
    """Draws bars on stderr, one for each label, with the time that is left.

    Where stderr goes to a file or a pipe, a line is written every few seconds, and the last of each label: what takes
    no longer than that and fails leaves nothing to read but the error.

    The value is a function of ``(label, done, total or None, remark)``.

    Args:
        doing: What is going on, told while no label is.
        quiet: Draw nothing.
        lines: Labels that are written as whole lines at once: they stay, also where nobody is looking.
    """
    from rich.console import Console

    console = Console(file=sys.stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)
    if quiet:
        yield silent
        return
    begun, whole = time.monotonic(), dict[str, Pace]()
    with (_bars if console.is_terminal else _written)(console, printable(doing, lines=False)) as show:

        def move(label: str, done: int, total: int | None, remark: str = "") -> None:
            name, words = printable(label, lines=False), printable(remark, lines=False)
            if label not in lines:
                show(name, done, total, words)
                return
            now, pace = time.monotonic(), whole.setdefault(label, Pace(begun))
            pace.move(now, done, total)
            console.print(pace.line(name, now, words))

        yield move


@contextmanager
def _bars(console: Console, doing: str) -> Iterator[Callable[[str, int, int | None, str], None]]:
    """Bars for somebody who looks."""
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
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task(doing, total=None, remark="")

        def show(name: str, done: int, total: int | None, words: str) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total, remark=words)
            progress.update(bars[name], completed=done, total=total, remark=words)

        yield show
        progress.update(whole, completed=1, total=1)


@contextmanager
def _written(console: Console, doing: str) -> Iterator[Callable[[str, int, int | None, str], None]]:
    """Lines for somebody who reads them later: what moved in the last seconds, or what goes on where nothing did."""
    begun, paces, remarks, lock, over = time.monotonic(), dict[str, Pace](), dict[str, str](), Lock(), Event()

    def show(name: str, done: int, total: int | None, words: str) -> None:
        with lock:
            paces.setdefault(name, Pace()).move(time.monotonic(), done, total)
            paces[name] = paces.pop(name)  # the latest comes last
            remarks[name] = words

    def write(*, last: bool = False) -> None:
        with lock:
            now = time.monotonic()
            lines = [paces[name].line(name, now, words) for name, words in remarks.items()]
            remarks.clear()
            busy = next((name for name in reversed(paces) if not paces[name].is_over), None)
            if not lines and not last:
                so_far = f"{doing}, {duration(now - begun)} so far"
                lines = [so_far if busy is None else paces[busy].line(busy, now)]
        with suppress(OSError):  # nobody reads any more
            for line in lines:
                console.print(line)

    def keep_writing() -> None:
        while not over.wait(EVERY):
            write()

    thread = Thread(target=keep_writing, daemon=True)
    thread.start()
    try:
        yield show
    except BaseException:
        over.set()
        thread.join()
        raise
    over.set()
    thread.join()
    write(last=True)


@contextmanager
def progress_bar(
    label: str, doing: str, *, total: int | None = None, quiet: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """One bar: the value is a function of ``(done, total or None)``.

    Args:
        label: What is counted.
        doing: See ``progress_bars``.
        total: How many there are, where what counts them does not know.
        quiet: Draw nothing.
    """
    with progress_bars(doing, quiet=quiet) as move:
        yield lambda done, known: move(label, done, known or total, "")
