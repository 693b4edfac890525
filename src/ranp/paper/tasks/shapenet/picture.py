"""Parts of an object as coloured voxels, in the paper's two views; empty space stays empty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ranp.paper.tasks.pictures import TRUTH, Seen
from ranp.paper.tasks.shapenet.catalogue import FIRST, NAMES, PARTS
from ranp.paper.tasks.shapenet.files import PublishedShapes
from ranp.paper.tasks.shapenet.solids import EMPTY
from ranp.reporting.drawing.values import Panel, Picture

__all__ = ["VIEWS", "picture"]

VIEWS = ((30.0, -45.0), (30.0, 45.0))
"""Elevation and azimuth, as in the paper."""

_Y_UP: Sequence[int] = (2, 0, 1)  # ShapeNet's y points up, the pictures' z does


def picture(seen: Seen) -> Picture:
    """Truth and predictions; parts count from 0 within the object's category, whose parts alone can be predicted."""
    occupied = seen.target != EMPTY
    category = _category(int(seen.target[occupied][0]))
    first, count = FIRST[category], PARTS[category]
    upright = isinstance(seen.samples, PublishedShapes)
    panels = [Panel(TRUTH, "voxels", _turned(torch.where(occupied, seen.target - first, -1), upright), views=VIEWS)]
    for name, output in seen.outputs.items():
        found = torch.where(occupied, output[first : first + count].argmax(dim=0), -1)
        note = f"mIoU {100 * seen.figure(output):.1f} %"
        panels.append(Panel(name, "voxels", _turned(found, upright), views=VIEWS, note=note))
    return Picture(NAMES[category], tuple(panels))


def _category(label: int) -> int:
    return max(category for category, first in enumerate(FIRST) if first <= label)


def _turned(labels: Tensor, y_up: bool) -> npt.NDArray[np.int64]:
    grid: npt.NDArray[np.int64] = labels.numpy().astype(np.int64)
    return grid.transpose(_Y_UP) if y_up else grid
