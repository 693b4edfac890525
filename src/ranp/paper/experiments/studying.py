"""What the figures share: studies of the networks of cells, the lines of a network, titles above drawings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.deciding import OURS, scores_of
from ranp.paper.experiments.experiment import Line, Results, Wanted
from ranp.paper.experiments.running import Place
from ranp.paper.training.network import make_full
from ranp.paper.training.team import Team
from ranp.reporting import looks
from ranp.reporting.study import Study, study
from ranp.tracing import trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Drawing", "by_network", "studied", "titled"]

Drawing = tuple[str, str, "Figure"]
"""The end of the name of a drawing's file, the end of its title, both behind the network; and the drawing."""

_INCHES = 0.24
"""Of a title above a drawing."""


def studied(cell: Cell, place: Place, compare: Sequence[str] = (), points: int = 2) -> Study:
    """The study of a cell's full network under RANP-f: scores from the shelf, sweeps of what it is compared with too.

    Args:
        cell: Of a method that scores as RANP-f does.
        place: Where its scores are.
        compare: Methods to sweep besides.
        points: Sparsities up to the largest feasible one.
    """
    setting = cell.setting(Team())
    full, strength = make_full(setting.task, setting.recipe), setting.task.strength
    found = trace(full, setting.example)
    raw = scores_of(cell, full, setting, place.shelf, found)
    return study(
        full,
        setting.example,
        raw,
        method=OURS,
        strength=strength,
        compare=compare,
        points=points,
        trace=found,
        convention="paper",
    )


def titled(figure: Figure, title: str) -> Figure:
    """The figure with a line above everything that it shows, which stays where it was and as large as it was."""
    from ranp.reporting.drawing.style import plain, styled

    with styled():
        height = figure.get_figheight()
        share = height / (height + _INCHES)
        for axes in figure.axes:
            box = axes.get_position(original=True)
            axes.set_position((box.x0, box.y0 * share, box.width, box.height * share))
        for text in figure.texts:
            text.set_y(text.get_position()[1] * share)
        for legend in figure.legends:
            legend.set_bbox_to_anchor((0, 0, 1, share), transform=figure.transFigure)
        figure.set_figheight(height + _INCHES)
        figure.text(0.01, 1 - 0.05 / (height + _INCHES), plain(title), ha="left", va="top", fontsize=8.5)
    return figure


def by_network(
    stem: str, draw: Callable[[Wanted, list[Line], Results], Iterable[Drawing]], *, trained: bool = False
) -> Callable[[Wanted, Sequence[Line], Results], dict[str, Figure]]:
    """The drawings of an experiment, network by network.

    Args:
        stem: How the names of their files begin.
        draw: Makes those of a network of its lines.
        trained: There are none where nothing is trained.
    """

    def figures(wanted: Wanted, lines: Sequence[Line], results: Results) -> dict[str, Figure]:
        found = {}
        for network, own in itertools.groupby(lines, key=lambda line: line.network):
            for end, title, figure in () if trained and wanted.resources_only else draw(wanted, list(own), results):
                found[f"{stem}-{network}{end}"] = titled(figure, looks.NETWORKS[network] + title)
        return found

    return figures
