"""From a video to a clip: the frames of an ``.avi`` file or of a folder, cropped, resized, less the mean colour.

Frame ``i`` is the ``i``-th that decoding gives, whether the decoder started at the beginning or at a key frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ranp.errors import DataError
from ranp.paper.tasks.reading import optional

__all__ = [
    "CLIPS",
    "FRAMES",
    "MEAN",
    "Crop",
    "Reel",
    "centre",
    "corner",
    "cut",
    "inspect",
    "less_mean",
    "open_reel",
    "read_clip",
    "starts",
]

FRAMES = 16
"""Frames of a clip."""

CLIPS = 3
"""Clips of a video that validation looks at."""

MEAN = (114.77, 107.74, 99.48)
"""What is subtracted from red, green and blue, which go from 0 to 255."""

_SCALES = tuple(0.8409**power for power in range(5))
_PICTURES = (".jpg", ".jpeg", ".png")
_AGAIN = "Download it again, or remove it and pass --allow-missing."
_DROPPED = 0.1  # of the frames that a header promises, this share may be empty chunks, which repeat a frame


class Reel(Protocol):
    """An open video.

    Attributes:
        length: How many frames it has, at least 1.
    """

    length: int

    def read(self, start: int, stop: int) -> list[Tensor]:
        """Frames from ``start`` up to ``stop``, (3, H, W) uint8; moved to the front if a video ends before its time."""
        ...


@contextmanager
def open_reel(path: Path) -> Iterator[Reel]:
    """Opens a video, or a folder of its frames, for one thread.

    Raises:
        DataError: It has no frames, or is torn.
        UnsupportedError: PyAV is not there.
    """
    if path.is_dir():
        yield _Pictures(path)
        return
    with _opened(path) as container:
        yield _Stream(path, container)


def inspect(path: Path) -> None:
    """Looks whether a video has the frames that it promises, without decoding them.

    Raises:
        DataError: It has no frames, or is torn.
    """
    if path.is_dir():
        _Pictures(path)
        return
    with _opened(path) as container:
        reel = _Stream(path, container)
        container.seek(0)
        packets = sum(1 for packet in container.demux(video=0) if packet.size)
        reel.check(packets)


class _Stream:
    """A video file."""

    def __init__(self, path: Path, container: Any) -> None:
        if not container.streams.video:
            raise DataError(f"{path} has no video in it. {_AGAIN}")
        self._path, self._container = path, container
        self._stream = container.streams.video[0]
        self._stream.codec_context.thread_count = 1
        self.length: int = self._stream.frames
        if not self.length:  # the header does not say
            self.length = sum(1 for _ in self._decode(None))
        if not self.length:
            raise DataError(f"{path} has no frames. {_AGAIN}")

    def read(self, start: int, stop: int) -> list[Tensor]:
        frames = self._sought(start, stop)
        return self._counted(start, stop) if frames is None else frames

    def check(self, count: int) -> None:
        """Refuses far fewer frames than the header promises."""
        if count < self.length * (1 - _DROPPED):
            raise DataError(f"{self._path} is torn: it has {count} of the {self.length} frames it promises. {_AGAIN}")

    def _decode(self, offset: int | None) -> Iterator[Any]:
        """Frames from the last key frame at or before a time stamp on, or from the beginning."""
        with _naming(self._path):
            self._container.seek(0 if offset is None else offset, stream=self._stream)
            yield from self._container.decode(self._stream)

    def _sought(self, start: int, stop: int) -> list[Tensor] | None:
        """The frames by their time stamps; None where these do not count frames, so that only counting is sure."""
        stream = self._stream
        if not stream.average_rate or not stream.time_base or stream.codec_context.has_b_frames:
            return None
        step = 1 / (stream.average_rate * stream.time_base)
        first = stream.start_time or 0
        if step.denominator != 1 or start == 0:
            return None
        frames: list[Tensor] = []
        expected: Fraction | None = None
        for frame in self._decode(int(first + start * step)):
            place = None if frame.pts is None else Fraction(frame.pts - first) / step
            if place is None or place.denominator != 1 or place > start + len(frames):
                return None
            if expected is not None and place != expected:
                return None
            expected = place + 1
            if place >= start:
                frames.append(_pixels(frame))
            if len(frames) == stop - start:
                return frames
        return None

    def _counted(self, start: int, stop: int) -> list[Tensor]:
        frames: list[Tensor] = []
        count = 0
        for frame in self._decode(None):
            if count >= start:
                frames.append(_pixels(frame))
            count += 1
            if count == stop:
                return frames
        self.check(count)
        return self._counted(max(start - (stop - count), 0), count)


class _Pictures:
    """A folder of frames: its pictures in the order of the numbers in their names."""

    def __init__(self, path: Path) -> None:
        pictures = (entry for entry in path.iterdir() if entry.suffix.lower() in _PICTURES)
        self._pictures = sorted(pictures, key=lambda entry: _natural(entry.name))
        self.length = len(self._pictures)
        if not self.length:
            raise DataError(f"{path} has no frames: expected {', '.join(_PICTURES)} files. {_AGAIN}")

    def read(self, start: int, stop: int) -> list[Tensor]:
        frames = []
        for picture in self._pictures[start:stop]:
            with _opened(picture) as container, _naming(picture):
                frame = next(container.decode(video=0), None)
                if frame is None:
                    raise DataError(f"{picture} has no picture in it. {_AGAIN}")
                frames.append(_pixels(frame))
            if frames[-1].shape != frames[0].shape:
                sizes = (f"{pixels.shape[2]}x{pixels.shape[1]}" for pixels in (frames[-1], frames[0]))
                raise DataError(f"{picture} is {' but the frames before it are '.join(sizes)}. {_AGAIN}")
        return frames


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts frame2 before frame10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    av = optional("av", "videos are read by PyAV", "video")
    with _naming(path):
        container = av.open(str(path))
    with container:
        yield container


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file in an error of the decoder."""
    import av

    try:
        yield
    except (av.error.FFmpegError, OSError) as error:
        raise DataError(f"{path} cannot be decoded ({error}). {_AGAIN}") from error


def _pixels(frame: Any) -> Tensor:
    """(3, H, W) uint8, a view of (H, W, 3)."""
    return torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)


def read_clip(reel: Reel, start: int) -> list[Tensor]:
    """Consecutive frames of a video, from the first of them again where it is too short."""
    frames = reel.read(start, min(start + FRAMES, reel.length))
    return [frames[step % len(frames)] for step in range(FRAMES)]


def starts(length: int, clips: int) -> list[int]:
    """Where clips begin that are spread evenly: the first at the beginning, the last ends with the video."""
    last = max(length - FRAMES, 0)
    return [round(last * clip / (clips - 1)) for clip in range(clips)]


@dataclass(frozen=True, slots=True)
class Crop:
    """A square of a frame.

    Attributes:
        top: First row.
        left: First column.
        side: Edge length.
        flip: Whether right and left are exchanged.
    """

    top: int
    left: int
    side: int
    flip: bool = False


def centre(height: int, width: int) -> Crop:
    """The largest square, in the middle."""
    side = min(height, width)
    return Crop((height - side) // 2, (width - side) // 2, side)


def corner(height: int, width: int, rng: np.random.Generator) -> Crop:
    """A square of one of five sizes, in the middle or in one of the corners, flipped half of the time."""
    side = max(1, int(_SCALES[rng.integers(len(_SCALES))] * min(height, width)))
    down, across = height - side, width - side
    places = ((down // 2, across // 2), (0, 0), (0, across), (down, 0), (down, across))
    top, left = places[rng.integers(len(places))]
    return Crop(top, left, side, flip=bool(rng.random() < 0.5))


def cut(frames: Sequence[Tensor], crop: Crop, size: int) -> Tensor:
    """A square of each frame (3, H, W), resized (bilinear, smoothed where it shrinks): (3, T, S, S), less the mean."""
    rows, columns = slice(crop.top, crop.top + crop.side), slice(crop.left, crop.left + crop.side)
    squares = torch.stack([frame[:, rows, columns] for frame in frames])
    if crop.side != size:
        squares = F.interpolate(squares, size=(size, size), mode="bilinear", antialias=True)
    clip = squares.flip(-1) if crop.flip else squares
    return less_mean(clip.transpose(0, 1).to(torch.float32))


def less_mean(clip: Tensor) -> Tensor:
    """A clip (3, T, S, S) of values from 0 to 255 as networks see it."""
    return clip - torch.tensor(MEAN).view(3, 1, 1, 1)
