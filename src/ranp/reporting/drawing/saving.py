"""Figures as files: the same bytes whenever the same figure is saved, whole or not at all, and small."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranp.errors import UnsupportedError
from ranp.files import atomic
from ranp.reporting.drawing.compaction import compacted
from ranp.reporting.drawing.style import DOTS, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "rendered", "save"]

# No date and no release of matplotlib, so that a file changes only with its figure.
FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"dpi": 100, "metadata": {"Date": None, "Creator": None}},
    ".pdf": {"dpi": DOTS, "metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    ".png": {"dpi": DOTS, "metadata": {"Software": None}},
}
"""What can be written, by suffix."""


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure as ``.svg``, ``.pdf`` or ``.png``, by the suffix of the path.

    Raises:
        UnsupportedError: Another suffix.
        StorageError: The file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UnsupportedError(
            f"{str(path)!r}: a figure is written as {', '.join(FORMATS)}, not as {suffix!r}. Name such a file."
        )
    atomic.write_atomic(path, rendered(figure, suffix))


def rendered(figure: Figure, suffix: str = ".svg") -> bytes:
    """The bytes that ``save`` writes."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format=suffix[1:], **FORMATS[suffix])
    if suffix != ".svg":
        return buffer.getvalue()
    return compacted(buffer.getvalue().decode("utf-8")).encode("utf-8")
