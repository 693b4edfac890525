"""How figures look: two widths, one small font, short units and names at the axes.

Matplotlib's settings are one dictionary for the whole process; they are changed inside of ``styled`` only, by one
thread at a time, and are what they were afterwards. Nothing here needs pyplot or a display. The colours of the methods
are in ``ranp.reporting.looks``.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError, UnsupportedError
from ranp.reporting.looks import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
"""Inches."""

DOTS = 200
"""Pixels an inch of a PNG, at which texts are measured too."""

_LOCK = threading.RLock()
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Floats = npt.NDArray[np.float64]
MOST = 200
"""Channels of a layer that are drawn one by one."""
_LONGEST = 24
_STEM = 4  # letters that a part of a name keeps at least
_PITCH = 6.6  # points from one rotated name to the next
_LETTER = 0.044  # inches of height of a rotated letter
_MARGIN = 0.6  # inches of a figure's width beside its panels


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
        raise UnsupportedError(
            "figures are drawn by matplotlib. Install it with: pip install 'ranp[report]'."
        ) from missing
    with _LOCK, mpl.rc_context():
        mpl.rcdefaults()  # the user's own settings, backend apart, must not change a figure
        settings: Any = mpl.rcParams
        settings.update(_settings())
        yield


@lru_cache
def _settings() -> Any:
    import matplotlib as mpl

    return mpl.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)


@contextmanager
def drawn(width: float, height: float, *, arranged: bool = True) -> Iterator[Figure]:
    """A white figure of that many inches to draw on in this style, with every place settled at the end.

    So it is the same however often it is rendered. ``arranged`` lets matplotlib make room for labels.

    Raises:
        DataError: A width that no page has.
        UnsupportedError: Matplotlib is not installed.
    """
    with styled():
        from matplotlib.figure import Figure

        if not 2.0 <= width <= 40.0:
            raise DataError(
                f"width={width}: a figure is 2 to 40 inches wide; {ONE_COLUMN} is one column, {TWO_COLUMNS} two."
            )
        figure = Figure(figsize=(width, height), dpi=DOTS, layout="constrained" if arranged else None)
        yield figure
        for _ in range(2):  # what the first pass makes room for moves what the second one measures
            figure.draw_without_rendering()
        figure.set_layout_engine("none")


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


def power(value: float) -> str:
    """A power of ten as text; others are not labelled.

    >>> power(1e-4), power(2e-4)
    ('10⁻⁴', '')
    """
    exponent = math.log10(value) if value > 0 else math.nan
    if not math.isfinite(exponent) or abs(exponent - round(exponent)) > 1e-9:
        return ""
    return f"10{str(round(exponent)).translate(_RAISED)}"


def powers(axis: Axis) -> None:
    """Labels a logarithmic axis with at most five powers of ten; a range within one decade with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    if low > 0 and math.floor(math.log10(high)) - math.ceil(math.log10(low)) < 1:
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}"))
    else:
        axis.set_major_locator(LogLocator(base=10, numticks=5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axis.set_minor_locator(NullLocator())


def percent(axis: Axis) -> None:
    """Labels shares in per cent."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))


def thinned(values: npt.ArrayLike) -> Floats:
    """The values, or ``MOST`` of them if there are more: evenly spaced in rank, the lowest and the highest included."""
    given = np.asarray(values, dtype=np.float64)
    if len(given) <= MOST:
        return given
    spaced: Floats = np.sort(given)[np.linspace(0, len(given) - 1, MOST).round().astype(np.int64)]
    return spaced


def short_names(names: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """Names without the last part where the rest tells them apart.

    Where they are too long, the first parts go that all of them share, and parts are cut short. Different names stay
    different: where shortening would make two alike, all have their number before them.

    >>> short_names(["stem.conv", "blocks.0.conv", "blocks.1.conv", "head.0", "head.3"])
    ['stem', 'blocks.0', 'blocks.1', 'head.0', 'head.3']
    """
    heads = [name.rpartition(".")[0] or name for name in names]
    once = Counter([*heads, *names])
    bare = [head if once[head] == 1 else name for head, name in zip(heads, names, strict=True)]
    while max(map(len, bare), default=0) > longest and len({_first(name) for name in bare}) == 1 and _first(bare[0]):
        bare = [name.partition(".")[2] for name in bare]
    short = [_shorter(name, longest) for name in bare]
    if len(set(short)) < len(set(names)):
        short = [f"{number} {_shorter(name, longest - 4)}" for number, name in enumerate(bare, 1)]
    return short


def _first(name: str) -> str:
    """The first part of a name that has more than one, else nothing."""
    return name.partition(".")[0] if "." in name else ""


def _shorter(name: str, longest: int) -> str:
    """The longest parts of the name lose their ends, but for a number there; then the whole its middle."""
    parts = name.split(".")
    while len(".".join(parts)) > longest and max(map(len, parts)) > 2 * _STEM:
        place = max(range(len(parts)), key=lambda place: len(parts[place]))
        number = re.search(r"\d{0,3}$", parts[place])
        parts[place] = f"{parts[place][:_STEM]}…{number[0] if number else ''}"
    name = ".".join(parts)
    if len(name) <= longest:
        return name
    end = (longest - 1) * 3 // 5
    return f"{name[: longest - 1 - end]}…{name[-end:]}"


def named(count: int, width: float) -> bool:
    """Whether so many names stand side by side below a figure of that width; else layers have numbers."""
    return (width - _MARGIN) * 72 / count >= _PITCH


def room_for(names: Sequence[str], width: float) -> float:
    """Inches that ``name_layers`` needs below the panels."""
    if not named(len(names), width):
        return 0.3
    return 0.1 + max(map(len, short_names(names))) * _LETTER


def name_layers(axes: Axes, names: Sequence[str], width: float) -> None:
    """Marks the layers 1 to n along the lowest panel of a figure of that many inches."""
    from matplotlib.ticker import MaxNLocator

    count = len(names)
    axes.set_xlim(0.3, count + 0.7)
    if not named(count, width):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, steps=[1, 2, 5, 10], min_n_ticks=1))
        axes.set_xlabel("layer, in the order of the forward pass")
        return
    axes.set_xticks(range(1, count + 1), [plain(name) for name in short_names(names)], rotation=90, fontsize=5.0)
    axes.tick_params(axis="x", length=0, pad=2.5, labelcolor="#333333")
