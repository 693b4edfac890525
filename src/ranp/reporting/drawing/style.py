"""How figures look: two widths, one small font, the colours of Okabe and Ito, and the same colour for a method always.

Matplotlib's settings are one dictionary for the whole process; they are changed inside of ``styled`` only, by one
thread at a time, and are what they were afterwards. Nothing here needs pyplot or a display.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranp.errors import DataError, UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "DOTS",
    "GREY",
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "Look",
    "add_legend",
    "blank",
    "finished",
    "looks",
    "plain",
    "styled",
    "title_of",
]

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
"""Inches."""

DOTS = 200
"""Pixels an inch of a PNG, at which texts are measured too."""

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = COLOURS = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
"""Okabe and Ito's, which people with any colour vision tell apart."""

GREY, PALE = "#777777", "#E4E4E4"

_LOCK = threading.RLock()
_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    # Text in SVG stays text. A reader without DejaVu takes one of the others, all of which are narrower, so that labels
    # which do not touch here do not touch there.
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "text.hinting": "none",  # so that a text is as wide at any resolution
    "svg.fonttype": "none",
    "svg.hashsalt": "ranp",
    "pdf.fonttype": 42,
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.0,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.2,
    "legend.borderpad": 0.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#333333",
    "axes.labelcolor": "#111111",
    "axes.facecolor": "white",
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "axes.grid": False,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "image.interpolation": "none",
    "image.composite_image": False,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a line or a marker is drawn."""

    colour: str
    marker: str
    dashes: str | tuple[float, tuple[float, ...]] = "-"


_TITLES = {
    "full": "Full",
    "ranp-f": "RANP-f",
    "ranp-m": "RANP-m",
    "weighted": "Weighted NP",
    "vanilla": "Vanilla NP",
    "layerwise": "Layer-wise NP",
    "random": "Random NP",
    "snip": "SNIP NP",
}
_KNOWN = {written.lower(): name for name, title in _TITLES.items() for written in (name, title, title.split()[0])}
_DASHED, _DOTTED, _BROKEN = (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2))
_LOOKS = {
    "full": Look(BLACK, "*", _DASHED),
    "ranp-f": Look(VERMILLION, "o"),
    "ranp-m": Look(ORANGE, "s"),
    "weighted": Look(SKY, "^"),
    "vanilla": Look(BLUE, "v"),
    "layerwise": Look(GREEN, "D"),
    "random": Look(PURPLE, "P"),
    "snip": Look(GREY, "X"),
}
_SPARE = tuple(
    Look(colour, marker, dashes)
    for dashes in ("-", _DASHED, _DOTTED, _BROKEN)
    for colour, marker in zip((VERMILLION, BLUE, GREEN, PURPLE, ORANGE, SKY, BLACK), "ovDPs^X", strict=True)
)


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name: a known method has its own, whatever stands beside it; others take what is left.

    A method is known by its name, by what the paper calls it, and with something after a comma or a bracket: of several
    such names the first one has the method's look.
    """
    chosen: dict[str, Look] = {}
    for name in names:
        known = _LOOKS.get(_KNOWN.get(re.split(r"\s*[,(]", name)[0].lower(), ""))
        if known is not None and known not in chosen.values():
            chosen[name] = known
    used = {one.colour for one in chosen.values()}
    spares = iter([spare for spare in _SPARE if spare.colour not in used or spare.dashes != "-"])
    return {name: chosen[name] if name in chosen else next(spares, _SPARE[-1]) for name in names}


def title_of(name: str) -> str:
    """How a method is written in a figure: as the paper writes it, or as it is."""
    return plain(_TITLES.get(name.lower(), name))


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
        settings.update(_SETTINGS)
        yield


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
