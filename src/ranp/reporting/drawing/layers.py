"""An axis of layers: names where they fit, numbers where they do not; and which channels of a layer are drawn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ranp.reporting.drawing.style import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST", "name_layers", "named", "room_for", "short_names", "thinned"]

Floats = npt.NDArray[np.float64]

MOST = 200
"""Channels of a layer that are drawn one by one."""

_LONGEST = 24
_STEM = 4  # letters that a part of a name keeps at least
_PITCH = 6.6  # points from one rotated name to the next
_LETTER = 0.044  # inches of height of a rotated letter
_MARGIN = 0.6  # inches of a figure's width beside its panels


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
