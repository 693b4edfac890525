"""What the readers of published data sets share: what lies in a folder, text files, packages that may be missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ranp.errors import DataError, UnsupportedError
from ranp.progress import Progress

_Item = TypeVar("_Item")


def entries(folder: Path) -> str:
    """Some of what lies in a folder, for a message."""
    return some(sorted(entry.name for entry in folder.iterdir()))


def some(names: Iterable[str], most: int = 5) -> str:
    """Some of many names, for a message.

    >>> some(["a", "b"]), some("abcdefg"), some([])
    ('a, b', 'a, b, c, d, e and 2 more', 'nothing')
    """
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more if every else "nothing"


def read_text(path: Path, remedy: str) -> str:
    """The text of a file in UTF-8.

    Raises:
        DataError: It cannot be read, or is not text; ``remedy`` says what to do.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}. {remedy}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not a text file (byte {error.start}). {remedy}") from error


def optional(module: str, use: str, extra: str) -> Any:
    """A module of a package that need not be installed.

    Raises:
        UnsupportedError: It is not; ``use`` says what it is for, ``extra`` installs it.
    """
    try:
        importlib.import_module(module.partition(".")[0])  # a part of it may have been imported before it was blocked
        return importlib.import_module(module)
    except ImportError as missing:
        raise UnsupportedError(f"{use}. Install it with: pip install 'ranp[{extra}]'.") from missing


def check_samples(size: int, least: int, why: str, count: int | None, seed: int, one: str) -> None:
    """Refuses what no data set can be made of.

    Args:
        size: Edge of a sample.
        least: That it must have.
        why: What happens to smaller ones, for the message.
        count: Samples; None for all.
        seed: Of what is drawn.
        one: What a sample is called.

    Raises:
        DataError: One of them is out of range.
    """
    if size < least:
        raise DataError(f"size={size}: {why}; pass {least} or more.")
    if (count is not None and count < 1) or seed < 0:
        raise DataError(f"count={count}, seed={seed}: pass at least one {one} and a seed that is not negative.")


def look_at_all(items: Collection[_Item], look: Callable[[_Item], object], progress: Progress | None) -> None:
    """Looks at one item after the other, and says how many are done."""
    for done, item in enumerate(items, 1):
        look(item)
        if progress is not None:
            progress(done, len(items))
