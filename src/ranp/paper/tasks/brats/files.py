"""BraTS as published: which folders are cases, which file of a case is what, and the voxels of one file.

A case is a folder of NIfTI files, one per modality and one with the labels. What a file is stands in its name:
``<case>_flair.nii.gz``, ``<case>_t1ce.nii.gz``, ``<case>_seg.nii.gz`` since 2018, or ``Flair_subtrMeanDivStd.nii.gz``,
``T1c_...``, ``OTMultiClass.nii.gz``, ``brainmask.nii.gz`` in copies of 2015. Capitals do not matter. Cases lie in
``HGG`` and ``LGG``, which are their grades, or side by side.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError
from ranp.paper.tasks.reading import entries, optional

__all__ = ["MODALITIES", "Case", "Floats", "find_cases", "read_voxels", "same_space"]

Floats = npt.NDArray[np.float32]

MODALITIES = ("flair", "t1ce", "t1", "t2")
"""In the order of the network's channels."""

_GRADES = ("HGG", "LGG")
_ENDINGS = (".nii", ".nii.gz")
_ROLES: Mapping[str, str] = {
    **{modality: modality for modality in MODALITIES},
    "t1c": "t1ce",
    "t1gd": "t1ce",
    "seg": "labels",
    "segm": "labels",  # BraTS 2020 has one case whose labels are called so
    "otmulticlass": "labels",
    "brainmask": "mask",
}
_NEWER = frozenset(("t1n", "t2f", "t2w"))
_APART = 1e-2  # millimetres by which two files of a case may disagree on where a voxel is


@dataclass(frozen=True, slots=True)
class Case:
    """One patient's scans.

    Attributes:
        name: Of its folder.
        grade: ``"HGG"``, ``"LGG"``, or nothing where the folder does not say.
        images: A file for each modality, in the order of ``MODALITIES``.
        labels: The file of the labels.
        mask: The file of the brain mask, if there is one.
    """

    name: str
    grade: str
    images: Mapping[str, Path]
    labels: Path
    mask: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them."""
        return (*self.images.values(), self.labels, *((self.mask,) if self.mask else ()))


def find_cases(folder: Path, *, allow_missing: bool = False) -> tuple[list[Case], int]:
    """The cases in a folder, sorted by grade and name, all with the same modalities; and how many were left out.

    Args:
        folder: Holds ``HGG`` and ``LGG`` with a folder for each case, or the folders of the cases themselves.
        allow_missing: Leave out cases that lack the labels, or a modality that others have.

    Raises:
        DataError: There are no cases, or one of them is not complete.
    """
    graded = {entry.name.upper(): entry for entry in _folders(folder) if entry.name.upper() in _GRADES}
    homes = graded or {"": folder}
    found = [(grade, home, _roles(home)) for grade, top in sorted(homes.items()) for home in _folders(top)]
    if not graded:
        found = [(grade, home, roles) for grade, home, roles in found if roles or _looks_like_case(home)]
    present = {role for _, _, roles in found for role in roles}
    modalities = tuple(name for name in MODALITIES if name in present)
    if not modalities or "labels" not in present:
        raise DataError(_nothing(folder, graded))
    cases: list[Case] = []
    for grade, home, roles in found:
        missing = [role for role in (*modalities, "labels") if role not in roles]
        if missing and not allow_missing:
            raise DataError(
                f"case {str(home)!r} lacks {', '.join(missing)}: every case needs labels (<case>_seg.nii.gz) and the "
                f"modalities that the others have ({', '.join(modalities)}). It has: {entries(home)}. "
                "Complete it, or pass --allow-missing to leave it out."
            )
        if not missing:
            images = {name: roles[name] for name in modalities}
            cases.append(Case(home.name, grade, images, roles["labels"], roles.get("mask")))
    return cases, len(found) - len(cases)


def read_voxels(path: Path) -> tuple[Floats, npt.NDArray[np.float64]]:
    """The voxels of a NIfTI file, scaled as its header says, and the affine that tells where they are.

    Raises:
        UnsupportedError: nibabel is not installed.
        DataError: The file is missing, torn, not NIfTI, not of three dimensions, or holds NaN.
    """
    nibabel = optional("nibabel", "BraTS files are read by nibabel", "medical")
    try:
        image: Any = nibabel.load(path)
        voxels: Floats = np.asarray(image.dataobj, dtype=np.float32)
    except (OSError, EOFError, ValueError, zlib.error, nibabel.filebasedimages.ImageFileError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{str(path)!r} cannot be read as NIfTI ({reason}): torn, or another kind of file. Fetch it again."
        ) from error
    if voxels.ndim != 3:
        raise DataError(f"{str(path)!r} has shape {voxels.shape}; one volume of three dimensions is needed.")
    wrong = int(np.count_nonzero(~np.isfinite(voxels)))
    if wrong:
        raise DataError(
            f"{str(path)!r} has {wrong} voxels that are NaN or infinite; allowed are finite numbers. Mend it."
        )
    return voxels, np.asarray(image.affine, dtype=np.float64)


def same_space(
    first: Path,
    this: tuple[Floats, npt.NDArray[np.float64]],
    second: Path,
    that: tuple[Floats, npt.NDArray[np.float64]],
) -> None:
    """Refuses two files of a case whose voxels are not at the same places.

    Raises:
        DataError: The shapes or the affines differ.
    """
    if this[0].shape != that[0].shape:
        raise DataError(
            f"{str(second)!r} has shape {that[0].shape}, but {first.name!r} of the same case has {this[0].shape}. "
            "All files of a case need one shape: resample it, or leave the case out."
        )
    if not np.allclose(this[1], that[1], rtol=0, atol=_APART):
        raise DataError(
            f"{str(second)!r} has affine {that[1][:3].round(3).tolist()}, but {first.name!r} of the same case has "
            f"{this[1][:3].round(3).tolist()}. All files of a case need one affine: resample it, or leave the case out."
        )


def _roles(home: Path) -> dict[str, Path]:
    """What each NIfTI file of a case is; files that are none of it are left alone."""
    roles: dict[str, Path] = {}
    for path in sorted(home.iterdir()):
        if not path.is_file() or not path.name.lower().endswith(_ENDINGS):
            continue
        words = re.split(r"[^a-z0-9]+", path.name.lower().removeprefix(home.name.lower()))
        if _NEWER.intersection(words):
            raise DataError(
                f"{str(path)!r} is named as since BraTS 2023, where label 3 is what was 4 before. "
                "Name the files <case>_flair, _t1ce, _t1, _t2, _seg, and change label 3 to 4."
            )
        for role in {_ROLES[word] for word in words if word in _ROLES}:
            if role in roles:
                raise DataError(
                    f"case {str(home)!r} has two files for {role}: {roles[role].name!r} and {path.name!r}. Keep one."
                )
            roles[role] = path
    return roles


def _looks_like_case(home: Path) -> bool:
    """A folder beside the cases is one of them if it holds NIfTI files, or nothing at all."""
    names = [entry.name.lower() for entry in home.iterdir()]
    return not names or any(name.endswith(_ENDINGS) for name in names)


def _nothing(folder: Path, graded: Mapping[str, Path]) -> str:
    inside = next((home for top in graded.values() for home in _folders(top)), folder)
    return (
        f"--data {str(folder)!r} does not look like BraTS: expected HGG/<case>/<case>_flair.nii.gz (and _t1ce, _t1, "
        "_t2, _seg), the same below LGG, or folders of such cases side by side. Found in "
        f"{str(inside)!r}: {entries(inside)}. Pass the folder that holds HGG and LGG, or the cases."
    )


def _folders(top: Path) -> list[Path]:
    return [entry for entry in sorted(top.iterdir()) if entry.is_dir() and not entry.name.startswith((".", "__"))]
