"""Stereo pairs in files: images to normalised tensors, disparity and occlusion to a target, crops of all four alike."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ranp.errors import DataError
from ranp.paper.tasks.reading import look_at_all, optional
from ranp.paper.tasks.sceneflow.metrics import UNKNOWN
from ranp.paper.tasks.sceneflow.pfm import read_pfm
from ranp.paper.tasks.task import Sample, Samples
from ranp.progress import Progress

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""ImageNet's mean colour and deviation."""
_MULTIPLE = 16  # the network halves an image four times
_TORN = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error)  # what Pillow answers to torn files
_MODES = ("1", "L", "P", "RGB", "RGBA")


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of one pair.

    Attributes:
        left: Left view.
        right: Right view.
        disparity: PFM, of the left view.
        occlusion: Which points of the left view the right one does not see: an image, not 0 where occluded; or None.
    """

    left: Path
    right: Path
    disparity: Path
    occlusion: Path | None = None


class FilePairs(Samples):
    """Pairs read from files when they are drawn.

    Training samples are crops, ``size`` high and twice as wide, other ones on every visit. Otherwise a sample is the
    whole picture, padded at the top and at the right, as PSMNet pads, to multiples of 16; padding has ImageNet's mean
    colour and no known disparity, so it never counts.

    Args:
        pairs: The files.
        crop: Height of crops; None for whole pictures.
        seed: Same seed, same crops.
    """

    def __init__(self, pairs: Sequence[Pair], crop: int | None, seed: int) -> None:
        self.pairs, self.crop, self.seed = tuple(pairs), crop, seed
        self.varies, self.count = crop is not None, len(self.pairs)

    def draw(self, index: int, visit: int = 0) -> Sample:
        """Both views, and the left one's disparity and occlusion.

        Raises:
            DataError: A file is missing, torn, of another size than its pair, or smaller than a crop.
        """
        pair = self.pairs[index]
        target = _read_target(pair)
        views = [_read_view(path, target.shape[1:]) for path in (pair.left, pair.right)]
        if self.crop is None:
            left, right = (normalised(view / 255.0) for view in views)
            return (_padded(left, 0.0), _padded(right, 0.0)), _padded(torch.from_numpy(target), UNKNOWN)
        rows, columns = self._window(pair, target.shape[1:], index, visit)
        left, right = (normalised(view[rows, columns] / 255.0) for view in views)
        return (left, right), torch.from_numpy(target[:, rows, columns].copy())

    def check(self, progress: Progress | None = None) -> None:
        """Reads every disparity and every mask, and the sizes of all images."""
        look_at_all(self.pairs, self._look, progress)

    def _look(self, pair: Pair) -> None:
        size = _read_target(pair).shape[1:]
        for path in (pair.left, pair.right):
            with _open_image(path) as image:
                _compare(path, (image.height, image.width), size)
        if self.crop is not None:
            self._window(pair, size, 0, 0)

    def _window(self, pair: Pair, size: tuple[int, ...], index: int, visit: int) -> tuple[slice, slice]:
        """The rows and columns of a crop: the same of both views, of disparity and of occlusion."""
        if self.crop is None:
            return slice(None), slice(None)
        height, width = self.crop, 2 * self.crop
        if height > size[0] or width > size[1]:
            raise DataError(
                f"{pair.left} is {size[0]} x {size[1]}, too small for crops of {height} x {width}; "
                f"pass a size of at most {min(size[0], size[1] // 2)}."
            )
        rng = np.random.default_rng((self.seed, 0, 0, index, visit))
        top, left = (int(rng.integers(0, room + 1)) for room in (size[0] - height, size[1] - width))
        return slice(top, top + height), slice(left, left + width)


def normalised(view: npt.NDArray[Any]) -> Tensor:
    """An image (H, W, 3) of values from 0 to 1 as (3, H, W) float32 with ImageNet's mean and deviation taken out."""
    values = ((view - MEAN) / STD).astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def _padded(tensor: Tensor, value: float) -> Tensor:
    """The tensor with rows above and columns at the right, so that both are multiples of 16."""
    up, right = (-extent % _MULTIPLE for extent in tensor.shape[-2:])
    padded: Tensor = torch.nn.functional.pad(tensor, (0, right, up, 0), value=value)
    return padded


def _read_target(pair: Pair) -> npt.NDArray[np.float32]:
    """(2, H, W): disparity, -1 where unknown, and occlusion: 1, 0, or -1 if there is no mask."""
    disparity = np.abs(read_pfm(pair.disparity))  # some releases write the left view's below 0
    known = np.isfinite(disparity) & (disparity > 0)
    if not known.any():
        raise DataError(
            f"{pair.disparity} has no finite disparity other than 0 in {disparity.shape[0]} x {disparity.shape[1]} "
            "values. Restore it, or take the pair out."
        )
    target = np.full((2, *disparity.shape), UNKNOWN, dtype=np.float32)
    np.copyto(target[0], disparity, where=known)
    if pair.occlusion is not None:
        with _open_image(pair.occlusion) as image:
            mask = _decoded(pair.occlusion, image, "L")
        _compare(pair.occlusion, mask.shape, disparity.shape)
        levels = np.unique(mask)
        if len(levels[levels > 0]) > 1:
            raise DataError(
                f"{pair.occlusion} has the values {', '.join(map(str, levels[:5]))}{', ...' * (len(levels) > 5)}; "
                "an occlusion mask has 0 where visible and one other value where occluded. Restore it."
            )
        target[1] = mask > 0
    return target


def _read_view(path: Path, size: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """(H, W, 3), without alpha."""
    with _open_image(path) as image:
        view = _decoded(path, image, "RGB")
    _compare(path, view.shape[:2], size)
    return view


def _open_image(path: Path) -> Any:
    """The image, of which only the header has been read."""
    pillow = optional("PIL.Image", "SceneFlow's images are read by Pillow", "stereo")
    try:
        image = pillow.open(path)
    except (*_TORN, pillow.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as an image: {error}. Restore it.") from error
    if image.mode not in _MODES:
        mode = image.mode
        image.close()
        raise DataError(f"{path} has mode {mode!r}; allowed are {', '.join(_MODES)}, 8 bits a channel. Convert it.")
    return image


def _decoded(path: Path, image: Any, mode: str) -> npt.NDArray[np.uint8]:
    try:
        return np.asarray(image.convert(mode))
    except _TORN as error:
        raise DataError(f"{path} is torn: {error}. Copy it again.") from error


def _compare(path: Path, got: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if tuple(got) != tuple(wanted):
        raise DataError(
            f"{path} is {got[0]} x {got[1]}, but its disparity is {wanted[0]} x {wanted[1]}; "
            "they must be of one size. Restore the pair, or take it out."
        )
