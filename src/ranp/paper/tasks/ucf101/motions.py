"""The 101 classes of procedural motion: where a body is and how it is bent, frame by frame, and why no frame tells it.

A pose has seven cyclic parts (across, down, angle, size, shear, wave, opacity), each at a place on its own cycle. A
class says only how fast, and in which sense, each part goes round; where it starts is uniform on the cycle, also for a
part that does not move. So every single frame has the same distribution under all classes; only motion tells them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Track = npt.NDArray[np.float64]
"""One number a frame."""

_DIRECTIONS = ("right", "down right", "down", "down left", "left", "up left", "up", "up right")
_COURSES = (*(f"moves {name}" for name in _DIRECTIONS), "circles clockwise", "circles anticlockwise")
_CHANGES = (
    "keeping its form",
    "turning clockwise",
    "turning anticlockwise",
    "rocking",
    "growing",
    "shrinking",
    "pulsing",
    "swaying",
    "rippling",
    "flickering",
)

MOTIONS = ("stands still", *(f"{course}, {change}" for course in _COURSES for change in _CHANGES))
"""What each class does: ten courses times ten changes of form, and standing still."""

CLASSES = len(MOTIONS)

_STRIDE = 0.05  # way of a frame, relative to the picture's edge
_ORBIT, _ROUND = 0.2, 1 / 14  # radius of a circle, and its share that a frame goes
_TURN = 1 / 18  # turns a frame
_ROCK, _ROCKING = 0.9, 1 / 10  # radians to each side, cycles a frame
_GROWTH, _PULSE, _SWAY, _RIPPLE, _FLICKER = 1 / 16, 1 / 9, 1 / 8, 1 / 8, 1 / 5  # cycles a frame
_PACE = (0.8, 1.25)  # of one body relative to another
_SIZES = (0.65, 1.5)  # smallest and largest, relative to a body's own size
_SHEAR = 0.7
_FAINTEST = 0.45


@dataclass(frozen=True, slots=True)
class Poses:
    """A body in a number of frames, one entry each.

    Attributes:
        across: Of its centre, from 0 at the left edge of the picture to 1 at the right one.
        down: Of its centre, from 0 at the top.
        angle: Clockwise, in radians.
        size: Factor on its size.
        shear: How far it leans sideways.
        wave: Phase of the wave that runs through it, in radians.
        opacity: 1 hides what is behind it.
    """

    across: Track
    down: Track
    angle: Track
    size: Track
    shear: Track
    wave: Track
    opacity: Track


def move(label: int, times: Track, rng: np.random.Generator) -> Poses:
    """The poses of a body of a class.

    Args:
        label: Place of its class in ``MOTIONS``.
        times: At which frames; frame 0 is any moment.
        rng: Draws pace and starts, always the same number of values.
    """
    across, down, angle, size, shear, wave, opacity, orbit, rock = rng.random(9)
    times = times * rng.uniform(*_PACE)
    course, change = divmod(label - 1, len(_CHANGES)) if label else (None, None)
    right, below = _way(course, times, orbit)

    def cycle(start: float, rates: dict[int, float]) -> Track:
        place: Track = (start + rates.get(-1 if change is None else change, 0.0) * times) % 1
        return place

    swing = _ROCK * np.sin(2 * math.pi * (rock + _ROCKING * times)) if change == 3 else 0.0
    small, large = np.log(_SIZES)
    # A saw for growing, a triangle for pulsing: both are uniform over a cycle, as the size of a body that keeps it is.
    sizes = cycle(size, {4: _GROWTH, 5: -_GROWTH})
    sizes = _triangle(cycle(size, {6: _PULSE})) if change == 6 else sizes
    return Poses(
        across=(across + right) % 1,
        down=(down + below) % 1,
        angle=2 * math.pi * cycle(angle, {1: _TURN, 2: -_TURN}) + swing,
        size=np.exp(small + (large - small) * sizes),
        shear=_SHEAR * (2 * _triangle(cycle(shear, {7: _SWAY})) - 1),
        wave=2 * math.pi * cycle(wave, {8: _RIPPLE}),
        opacity=_FAINTEST + (1 - _FAINTEST) * _triangle(cycle(opacity, {9: _FLICKER})),
    )


def _way(course: int | None, times: Track, start: float) -> tuple[Track, Track]:
    """How far to the right and down a body has gone; from its orbit's centre, if it has one."""
    if course is None:
        return np.zeros_like(times), np.zeros_like(times)
    if course < len(_DIRECTIONS):
        heading = 2 * math.pi * course / len(_DIRECTIONS)
        return _STRIDE * times * math.cos(heading), _STRIDE * times * math.sin(heading)
    sense = 1 if course == len(_DIRECTIONS) else -1
    around = 2 * math.pi * (start + sense * _ROUND * times)
    return _ORBIT * np.cos(around), _ORBIT * np.sin(around)


def _triangle(place: Track) -> Track:
    """Up from 0 to 1 and down again over a cycle."""
    wave: Track = 1 - np.abs(2 * place - 1)
    return wave
