"""The left view, its disparity, and what each network takes for it, with the error of every pixel that counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError
from ranp.paper.tasks.pictures import Seen
from ranp.paper.tasks.sceneflow.metrics import DISPARITIES
from ranp.paper.tasks.sceneflow.pairs import MEAN, STD
from ranp.reporting.drawing.values import Panel, Picture, Scale

__all__ = ["picture"]

_FAR = 3.0
"""Pixels of error: the coarser of the paper's two thresholds; all beyond has the last colour."""

Floats = npt.NDArray[np.float64]


def picture(seen: Seen) -> Picture:
    """Columns: the truth with the scene below it, then each network's disparity with its error below it.

    Padding is cut off. Pixels whose disparity is not known, or too large to count, have neither truth nor error.
    """
    disparity = seen.target if seen.target.dim() == 2 else seen.target[0]
    truth = disparity.double().numpy()
    counts = (truth >= 0) & (truth < DISPARITIES)
    if not counts.any():
        raise DataError(f"scene {seen.index} has no disparity from 0 to below {DISPARITIES}. Leave it out.")
    box = _box(counts)
    view = (seen.image.double().numpy().transpose(1, 2, 0) * STD + MEAN).clip(0, 1)
    scale = Scale("disparity (px)", 0.0, float(max(truth[counts].max(), 1.0)))
    errors = Scale("error (px)", 0.0, _FAR, error=True)
    known = np.where(counts, truth, np.nan)
    panels = [
        Panel("True disparity", "image", known[box], scale=scale),
        Panel("Left view", "image", view[box]),
    ]
    for name, output in seen.outputs.items():
        found = output.double().numpy()
        note = f"EPE {seen.figure(output):.2f} px, {100 * seen.figure(output, 'acc3'):.1f} % within {_FAR:g} px"
        panels.append(Panel(name, "image", found[box], scale=scale))
        panels.append(Panel(f"{name}: error", "image", np.abs(found - known)[box], scale=errors, note=note))
    return Picture(f"Scene {seen.index + 1}", tuple(panels), lines=2)


def _box(counts: npt.NDArray[np.bool_]) -> tuple[slice, slice]:
    """The rectangle outside of which no pixel counts."""
    rows, columns = np.flatnonzero(counts.any(axis=1)), np.flatnonzero(counts.any(axis=0))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
