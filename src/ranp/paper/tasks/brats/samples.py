"""Cases as samples: random crops to train on, whole volumes to validate on. Real and procedural cases alike."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ranp.paper.tasks.brats.preprocessing import Volume
from ranp.paper.tasks.reading import check_samples
from ranp.paper.tasks.task import Sample, Samples
from ranp.progress import Progress

__all__ = ["Cases", "Crops", "Wholes", "crop"]

_CENTRED = 2 / 3
"""Share of the crops that lie around a voxel of a tumour: the paper says "with some foreground", not how often."""

_TRAIN, _CROPPING = 0, 7  # of the generators; procedural cases use smaller purposes


class Cases(Protocol):
    """Volumes by number."""

    def __len__(self) -> int: ...

    def volume(self, number: int) -> Volume:
        """A case."""
        ...

    def check(self, progress: Progress | None = None) -> None:
        """Looks at every case."""
        ...


class _OfCases(Samples):
    def __init__(self, cases: Cases, size: int, count: int | None, seed: int) -> None:
        check_samples(size, 8, "tumours vanish in crops of less than 8 voxels", count, seed, "sample")
        self.cases, self.size, self.seed = cases, size, seed
        self.count = len(cases) if count is None else count

    def check(self, progress: Progress | None = None) -> None:
        """Reads every case."""
        self.cases.check(progress)


class Crops(_OfCases):
    """Random crops (C, S, S, S) float32 with labels (S, S, S) int64; another one on every visit.

    Sample ``i`` is from case ``i % cases``, so an epoch may have more crops than there are cases.

    Args:
        cases: Where to crop.
        size: Edge length S; a volume that is smaller is padded with zeros.
        count: Number of samples; None for one of each case.
        seed: Same seed, same crops.

    Raises:
        DataError: A size, a count or a seed out of range.
    """

    varies = True

    def __init__(self, cases: Cases, size: int = 128, count: int | None = None, seed: int = 0) -> None:
        super().__init__(cases, size, count, seed)

    def draw(self, index: int, visit: int = 0) -> Sample:
        """A crop; with probability 2/3 around a random voxel of a tumour, else anywhere in the volume."""
        volume = self.cases.volume(index % len(self.cases))
        rng = np.random.default_rng((self.seed, _TRAIN, _CROPPING, index, visit))
        return _tensors(*crop(volume, _corner(volume.labels, self.size, rng), self.size))


class Wholes(_OfCases):
    """Whole volumes (C, D, H, W) float32 with labels (D, H, W) int64, as large as each brain is.

    Args:
        cases: What to validate on.
        size: Not used: a volume is as large as it is, ``predict`` goes through it in windows.
        count: The first so many of them at most; None for all.
        seed: Not used: the cases are what they are.

    Raises:
        DataError: A count or a seed out of range.
    """

    def __init__(self, cases: Cases, size: int = 128, count: int | None = None, seed: int = 0) -> None:
        super().__init__(cases, size, count, seed)
        self.count = min(self.count, len(cases))

    def draw(self, index: int, visit: int = 0) -> Sample:
        """A volume, the same on every visit."""
        volume = self.cases.volume(index)
        return _tensors(volume.image, volume.labels)


def crop(
    volume: Volume, corner: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.uint8]]:
    """A cube of a volume; what lies outside of the volume is 0.

    Args:
        volume: Of any shape.
        corner: Of the cube, may be negative.
        size: Edge of the cube.
    """
    shape = np.array(volume.labels.shape)
    low, high = np.maximum(corner, 0), np.minimum(corner + size, shape)
    from_ = tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True))
    to = tuple(slice(int(a), int(b)) for a, b in zip(low - corner, high - corner, strict=True))
    image = np.zeros((len(volume.image), size, size, size), dtype=np.float16)
    labels = np.zeros((size, size, size), dtype=np.uint8)
    for source, target in zip((*volume.image, volume.labels), (*image, labels), strict=True):
        target[to] = source[from_]
    return image, labels


def _corner(labels: npt.NDArray[np.uint8], size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Where a crop begins: inside the volume, or such that a volume which is too small lies in its middle."""
    shape = np.array(labels.shape)
    centred, place = rng.random() < _CENTRED, rng.random(3)
    tumour = np.flatnonzero(labels) if centred else np.empty(0, dtype=np.int64)
    if len(tumour):
        voxel = np.array(np.unravel_index(tumour[rng.integers(len(tumour))], labels.shape))
        corner = voxel - size // 2 + np.floor((place - 0.5) * (size // 2)).astype(np.int64)
    else:
        corner = np.floor(place * np.maximum(shape - size + 1, 1)).astype(np.int64)
    inside: npt.NDArray[np.int64] = np.clip(corner, 0, np.maximum(shape - size, 0))
    return np.where(shape < size, -((size - shape) // 2), inside)


def _tensors(image: npt.NDArray[np.float16], labels: npt.NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(image.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
