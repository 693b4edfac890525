"""A slice of a brain with the tumour's regions over it: the slice where most of the tumour is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ranp.paper.tasks.brats import REGIONS
from ranp.paper.tasks.brats.cases import RealCases
from ranp.paper.tasks.brats.files import MODALITIES
from ranp.paper.tasks.brats.samples import Wholes
from ranp.paper.tasks.pictures import TRUTH, Seen
from ranp.reporting.drawing.values import Panel, Picture

__all__ = ["NAMES", "picture", "regions"]

NAMES = ("whole tumour (WT)", "tumour core (TC)", "enhancing tumour (ET)")
"""Each contains the next."""

_PERCENTILES = (1.0, 99.5)
_WRITTEN = {"flair": "FLAIR", "t1ce": "T1ce", "t1": "T1", "t2": "T2"}


def picture(seen: Seen) -> Picture:
    """The scan, the truth over it, and each network's prediction over it with its Dice in the whole volume."""
    modalities, case = _known(seen)
    shown = modalities.index("flair") if "flair" in modalities else 0
    truth = regions(seen.target)
    place = int((truth > 0).sum(axis=(0, 1)).argmax())
    scan = _brightness(seen.image[shown].numpy())[..., place]

    def panel(title: str, labels: npt.NDArray[np.int64], note: str) -> Panel:
        return Panel(title, "overlay", _laid(scan), _laid(labels[..., place]), NAMES, note=note)

    name = _WRITTEN.get(modalities[shown], modalities[shown]) if modalities else "Scan"
    panels = [Panel(name, "image", _laid(scan)), panel(TRUTH, truth, "")]
    for network, output in seen.outputs.items():
        note = f"Dice {100 * seen.figure(output):.1f} %"
        panels.append(panel(network, regions(output.argmax(dim=0)), note))
    return Picture(f"{case}, slice {place + 1} of {truth.shape[2]}", tuple(panels))


def regions(labels: Tensor) -> npt.NDArray[np.int64]:
    """How many of the nested regions a voxel is in: 0 none, 1 whole tumour only, 2 core too, 3 enhancing too."""
    inside = [torch.isin(labels, torch.tensor(members)) for members in REGIONS.values()]
    depth: npt.NDArray[np.int64] = torch.stack(inside).sum(dim=0).numpy()
    return depth


def _known(seen: Seen) -> tuple[tuple[str, ...], str]:
    """Names of the modalities, and of the case."""
    cases = seen.samples.cases if isinstance(seen.samples, Wholes) else None
    if isinstance(cases, RealCases):
        case = cases.cases[seen.index]
        return tuple(case.images), case.name
    return MODALITIES[: len(seen.image)], f"Brain {seen.index + 1}"


def _brightness(volume: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """From 0 to 1, between two percentiles of the brain, which is where the volume is not what it is around it."""
    brain = volume[volume != 0]
    if not len(brain):
        return np.zeros_like(volume)
    low, high = (float(value) for value in np.percentile(brain, _PERCENTILES))
    bright = np.clip((volume - low) / max(high - low, 1e-6), 0, 1) * 0.92 + 0.08
    return np.where(volume != 0, bright, 0).astype(np.float32)


def _laid(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A slice (x, y) as an image: rows from front to back."""
    upright: npt.NDArray[Any] = image.T[::-1]
    return upright
