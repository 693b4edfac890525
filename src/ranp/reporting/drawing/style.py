"""How figures look: two widths, one small font; ``ranp.reporting.looks`` has the colours of the methods.

Matplotlib's settings are one dictionary for the whole process; they are changed inside of ``styled`` only, by one
thread at a time, and are what they were afterwards. Nothing here needs pyplot or a display.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranp.errors import DataError, UnsupportedError
from ranp.reporting.looks import title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DOTS", "ONE_COLUMN", "TWO_COLUMNS", "add_legend", "blank", "finished", "plain", "styled", "title_of"]

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
"""Inches."""

DOTS = 200
"""Pixels an inch of a PNG, at which texts are measured too."""

_LOCK = threading.RLock()


def title_of(name: str) -> str:
    """How a method is written in a figure: as the paper writes it, or as it is."""
    return plain(title(name))


def plain(text: str) -> str:
    """The text as it is: a dollar in a name begins no formula, and a line break no second line."""
    return " ".join(str(text).split()).replace("$", r"\$")


@contextmanager
def styled() -> Iterator[None]:
    """Within, figures are drawn in the style of this module; afterwards all settings are as they were.

    Raises:
        UnsupportedError: Matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as missing:
        raise UnsupportedError('figures are drawn by matplotlib: pip install "ranp[report]".') from missing
    with _LOCK, mpl.rc_context():
        mpl.rcdefaults()  # the user's own settings, backend apart, must not change a figure
        settings: Any = mpl.rcParams
        settings.update(_settings())
        yield


@lru_cache
def _settings() -> Any:
    import matplotlib as mpl

    return mpl.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)


def blank(width: float, height: float, *, arranged: bool = True) -> Figure:
    """A white figure of that many inches; ``arranged`` lets matplotlib make room for labels. Call within ``styled``.

    Raises:
        DataError: A width that no page has.
    """
    from matplotlib.figure import Figure

    if not 2.0 <= width <= 40.0:
        raise DataError(
            f"width={width}: a figure is 2 to 40 inches wide; {ONE_COLUMN} is one column, {TWO_COLUMNS} two."
        )
    return Figure(figsize=(width, height), dpi=DOTS, layout="constrained" if arranged else None)


def finished(figure: Figure) -> Figure:
    """The figure with every place settled, so that it is the same however often it is drawn."""
    for _ in range(2):  # what the first pass makes room for moves what the second one measures
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend above all panels, in as many columns as fit, so that it never covers what it explains."""
    for columns in range(len(handles), 0, -1):
        # Rows are filled one after the other, as they are read; matplotlib fills columns.
        rows = -(-len(handles) // columns)
        order = [row * columns + column for column in range(columns) for row in range(rows)]
        order = [place for place in order if place < len(handles)]
        legend = figure.legend(
            [handles[place] for place in order],
            [labels[place] for place in order],
            loc="outside upper center",
            ncols=columns,
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width * 0.98:
            return
        legend.remove()
