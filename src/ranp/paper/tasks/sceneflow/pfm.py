"""Reads PFM, the format of SceneFlow's disparities: a short text header, then float32 rows from the bottom up."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError

_HEADER = re.compile(
    rb"(?P<kind>P[fF])\s+(?P<width>\d{1,6})\s+(?P<height>\d{1,6})\s+"
    rb"(?P<scale>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[ \t\r]*\n"
)
_LONGEST = 128


def read_pfm(path: Path) -> npt.NDArray[np.float32]:
    """The values of a PFM file, (H, W) with the top row first; of three channels the first.

    The sign of the header's scale tells the byte order, negative for little-endian; its size is not applied, as no
    reader of these data sets does.

    Raises:
        DataError: It cannot be read, its header is not one of PFM, or it is shorter or longer than the header says.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. Restore it.") from error
    header = _HEADER.match(content[:_LONGEST])
    if header is None:
        raise DataError(
            f"{path} begins with {content[:16]!r}; a PFM file begins with 'Pf' (or 'PF'), width, height and scale, "
            "each line ended. Restore it."
        )
    width, height, scale = int(header["width"]), int(header["height"]), float(header["scale"])
    if not (width and height and scale):
        raise DataError(f"{path} says {width} x {height} values at scale {scale:g}; none of them can be 0. Restore it.")
    channels = 3 if header["kind"] == b"PF" else 1
    wanted, there = 4 * channels * width * height, len(content) - header.end()
    if there != wanted:
        raise DataError(
            f"{path} has {there} bytes of values, but {width} x {height} x {channels} float32 are {wanted}: "
            f"the file is {'torn' if there < wanted else 'not what its header says'}. Copy it again."
        )
    values = np.frombuffer(content, "<f4" if scale < 0 else ">f4", offset=header.end())
    upright = values.reshape(height, width, channels)[::-1, :, 0]
    return np.ascontiguousarray(upright, dtype=np.float32)
