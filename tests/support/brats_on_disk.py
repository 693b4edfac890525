"""Small BraTS cases as NIfTI files, for tests that read them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MODALITIES = ("flair", "t1ce", "t1", "t2")
SHAPE = (14, 12, 10)


def write_nifti(path: Path, voxels: npt.NDArray[Any], affine: npt.NDArray[Any] | None = None) -> Path:
    """One file; its folder is made."""
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(voxels, np.diag([-1.0, -1.0, 1.0, 1.0]) if affine is None else affine)
    nibabel.save(image, path)
    return path


def scanned(seed: int, shape: tuple[int, int, int] = SHAPE) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Scanner values (4, ...) in a brain that leaves a margin of 2, 3, 1 voxels, and labels with 0, 1, 2, 4."""
    rng = np.random.default_rng(seed)
    brain = np.zeros(shape, dtype=bool)
    brain[2:-2, 3:-3, 1:-1] = True
    images = (rng.gamma(4, 60, (4, *shape)) * brain).astype(np.int16)
    labels = np.zeros(shape, dtype=np.uint8)
    labels[4:10, 4:8, 3:8] = 2
    labels[5:9, 5:7, 4:7] = 1
    labels[6:8, 5:7, 5:7] = 4
    return images, labels


def write_case(
    folder: Path, seed: int = 0, modalities: Iterable[str] = MODALITIES, shape: tuple[int, int, int] = SHAPE
) -> Path:
    """A case as BraTS 2018 names its files."""
    images, labels = scanned(seed, shape)
    for name, voxels in zip(MODALITIES, images, strict=True):
        if name in modalities:
            write_nifti(folder / f"{folder.name}_{name}.nii.gz", voxels)
    write_nifti(folder / f"{folder.name}_seg.nii.gz", labels)
    return folder


def write_2018(folder: Path, high: int, low: int) -> Path:
    """``HGG`` and ``LGG`` with so many cases each."""
    for grade, count in (("HGG", high), ("LGG", low)):
        for number in range(count):
            write_case(folder / grade / f"Brats18_{grade}_{number:02d}_1", seed=number + 100 * (grade == "LGG"))
    return folder
