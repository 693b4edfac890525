"""A scan as a network sees it: the brain, clipped and z-scored, and nothing around it.

As the paper does: the brain is where any modality is above 0; inside it each modality is clipped to its .2 and 99.8
percentiles, then its mean is taken off and it is divided by its standard deviation; outside of it everything is 0.
Files that were normalised by whoever published them stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError
from ranp.paper.tasks.brats.files import Case, Floats, read_voxels, same_space

VERSION = 1
"""Of what this module computes; a cache entry of another one is not used."""

LABELS: Mapping[int, str] = {0: "background", 1: "necrosis", 2: "edema", 3: "non-enhancing", 4: "enhancing"}
"""2015 has all of them; since 2017 label 1 is necrosis and non-enhancing tumour, and there is no 3."""

_PERCENTILES = (0.2, 99.8)
_SAYS_NORMALISED = "subtrmeandivstd"
_LARGEST = 6e4  # of float16, which volumes are kept in

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Volume:
    """A case, ready to crop.

    Attributes:
        image: (C, D, H, W) float16: half the room, and finer than any scanner's noise once it is z-scored.
        labels: (D, H, W) uint8.
    """

    image: npt.NDArray[np.float16]
    labels: npt.NDArray[np.uint8]

    @property
    def bytes(self) -> int:
        """Room it takes."""
        return self.image.nbytes + self.labels.nbytes


def prepare(case: Case) -> Volume:
    """Reads and normalises a case, and cuts it to the box around brain and labels.

    The brain mask is the case's file where there is one (above .5), else where any modality is above 0; for modalities
    that are normalised already, where they differ from what they are in the corner of the volume.

    Raises:
        DataError: A file is torn, does not fit the others, or holds values or labels that cannot be.
    """
    first, *others = case.images.values()
    read = {first: read_voxels(first)}
    for path in (*others, case.labels, *((case.mask,) if case.mask else ())):
        read[path] = read_voxels(path)
        same_space(first, read[first], path, read[path])
    labels = _labels(case.labels, read[case.labels][0])
    volumes = {path: read[path][0] for path in case.images.values()}
    done = {path for path, voxels in volumes.items() if _is_normalised(path, voxels)}
    if case.mask:
        brain = read[case.mask][0] > 0.5
    else:
        brain = np.any([v != v[0, 0, 0] if path in done else v > 0 for path, v in volumes.items()], axis=0)
    if not brain.any():
        raise DataError(f"case {case.name!r}: {str(case.mask or first)!r} has no brain, no voxel above 0. Mend it.")
    box = bounds(brain | (labels > 0))
    brain = brain[box]
    image = np.stack([_inside(p, v[box], brain, p in done) for p, v in volumes.items()])
    return Volume(image.astype(np.float16), labels[box].copy())


def normalise(voxels: Floats, brain: Mask) -> Floats:
    """Clips to the percentiles inside the brain, z-scores with mean and standard deviation there; 0 outside.

    Raises:
        DataError: All voxels of the brain have one value.
    """
    values = voxels[brain]
    low, high = np.percentile(values, _PERCENTILES)
    values = np.clip(values, low, high)
    spread = float(values.std(dtype=np.float64))
    if not spread:
        raise DataError(f"all voxels of the brain are {values[0]:g}")
    result: Floats = np.zeros_like(voxels)
    result[brain] = (values - values.mean(dtype=np.float64)) / spread
    return result


def bounds(mask: Mask) -> tuple[slice, slice, slice]:
    """The smallest box that holds all of a mask that is not empty."""
    spans = []
    for axis in range(3):
        there = np.flatnonzero(mask.any(axis=tuple(other for other in range(3) if other != axis)))
        spans.append(slice(int(there[0]), int(there[-1]) + 1))
    return spans[0], spans[1], spans[2]


def _labels(path: Path, voxels: Floats) -> npt.NDArray[np.uint8]:
    wrong = voxels[~np.isin(voxels, list(LABELS))]
    if len(wrong):
        allowed = ", ".join(f"{label} {name}" for label, name in LABELS.items())
        raise DataError(f"{str(path)!r} has label {wrong[0]:g}; allowed are {allowed}. Mend it, or leave the case out.")
    return voxels.astype(np.uint8)


def _is_normalised(path: Path, voxels: Floats) -> bool:
    """Whether a file needs no normalising: its name says so, or its values do.

    They do if, apart from the value in the volume's corner, which is the background, their mean is about 0 and their
    spread about 1: a scanner's values are whole numbers that are almost never below 0, in the hundreds.
    """
    if _SAYS_NORMALISED in path.name.lower():
        return True
    if voxels.min() >= 0:
        return False
    values = voxels[voxels != voxels[0, 0, 0]]
    return bool(abs(values.mean(dtype=np.float64)) < 0.5 and 0.5 < values.std(dtype=np.float64) < 2)


def _inside(path: Path, voxels: Floats, brain: Mask, done: bool) -> Floats:
    if done:
        kept: Floats = np.where(brain, voxels, np.float32(0))
        if np.abs(kept).max() > _LARGEST:
            raise DataError(
                f"{str(path)!r} says that it is normalised but holds {kept.flat[np.abs(kept).argmax()]:g}; "
                "values of a few units are expected. Rename it if it is not normalised."
            )
        return kept
    try:
        return normalise(voxels, brain)
    except DataError as error:
        raise DataError(f"{str(path)!r} cannot be normalised: {error}. Mend it, or leave the case out.") from error
