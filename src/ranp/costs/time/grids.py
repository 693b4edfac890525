"""Which widths are measured, and how seconds are read between them.

A vectorised convolution works on blocks of channels (16 of them with AVX-512), so that 17 channels take the time of 32,
and a width that fills its last block is spared the copies that one with a rest needs. Below a certain size torch takes
another kernel altogether. So an axis of a table is not a line but a few: one per kernel (``Regime``), and within it one
for full blocks and one for widths with a rest, measured along the number of channels after padding. Along each of them
seconds are close to a product of linear functions of the widths, and are interpolated as such.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

Widths = tuple[int, ...]
Box = tuple[tuple[int, int], ...]
"""Least and largest width along each axis."""

_RATIO = 4.0
"""Between neighbouring lines of an axis, at most, where a kernel works in blocks."""
_FINE_RATIO = 2.25
"""The same along the input channels of a kernel without blocks, which caches bend most."""


@dataclass(frozen=True, slots=True)
class Regime:
    """The widths along the first axis from which on one kernel serves.

    Attributes:
        start: The first of them; the next regime's start ends it.
        kernel: Its name.
        block: Channels that it computes at once, along every axis; 1 if it makes no difference.
    """

    start: int
    kernel: str
    block: int


@dataclass(frozen=True, slots=True)
class _Line:
    """A place along an axis at which times are measured."""

    at: int
    """Where it lies: channels after padding."""
    width: int
    """The width that stands for all that are padded to it."""


@dataclass(slots=True)
class Grid:
    """Times of one operator over widths.

    Attributes:
        regimes: In the order of their starts, the first at 1.
        boxes: What is covered.
        points: Seconds by widths; every point of ``wanted()`` once it is covered.
    """

    regimes: tuple[Regime, ...]
    boxes: tuple[Box, ...] = ()
    points: dict[Widths, float] = field(default_factory=dict)
    _lines: dict[tuple[int, int, bool], list[_Line]] = field(default_factory=dict, repr=False)

    def covers(self, box: Box) -> bool:
        """Whether seconds can be read everywhere in a box."""
        return any(
            all(low <= least and most <= high for (least, most), (low, high) in zip(box, known, strict=True))
            for known in self.boxes
        )

    def extend(self, box: Box) -> None:
        """Adds a box; those inside it are not needed any more."""
        if not self.covers(box):
            self.boxes = (*(known for known in self.boxes if not Grid((), (box,)).covers(known)), box)
            self._lines.clear()

    def wanted(self) -> list[Widths]:
        """Everything to measure: the crossings of all lines inside the boxes."""
        found: dict[Widths, None] = {}
        for box in self.boxes:
            for number in range(len(self.regimes)):
                for classes in product((False, True), repeat=len(box)):
                    axes = [self._within(number, axis, ragged, box) for axis, ragged in enumerate(classes)]
                    found.update(dict.fromkeys(tuple(line.width for line in lines) for lines in product(*axes)))
        return list(found)

    def missing(self) -> list[Widths]:
        """What of it has not been measured."""
        return [widths for widths in self.wanted() if widths not in self.points]

    def seconds(self, widths: Widths) -> float | None:
        """Read off between the nearest lines; None outside what is covered."""
        number = self._regime_of(widths[0])
        block = self.regimes[number].block
        sides = []
        for axis, width in enumerate(widths):
            lines = self._of(number, axis, _is_ragged(width, block))
            nearest = _nearest(lines, _place(width, block))
            if nearest is None:
                return None
            sides.append(nearest)
        total = 0.0
        for corner in product(*sides):
            seconds = self.points.get(tuple(line.width for line, _ in corner))
            if seconds is None:
                return None
            total += seconds * math.prod(share for _, share in corner)
        return total

    def _regime_of(self, width: int) -> int:
        return max(number for number, regime in enumerate(self.regimes) if regime.start <= width)

    def _of(self, number: int, axis: int, ragged: bool) -> list[_Line]:
        """All lines of one class along an axis, in order."""
        key = (number, axis, ragged)
        if key not in self._lines:
            lines = {line for box in self.boxes for line in self._made(number, axis, ragged, box[axis])}
            self._lines[key] = sorted(lines, key=lambda line: line.at)
        return self._lines[key]

    def _within(self, number: int, axis: int, ragged: bool, box: Box) -> list[_Line]:
        """Those of them that the inside of a box is read from."""
        own = self._made(number, axis, ragged, box[axis])
        if not own:
            return []
        low, high = min(line.at for line in own), max(line.at for line in own)
        return [line for line in self._of(number, axis, ragged) if low <= line.at <= high]

    def _made(self, number: int, axis: int, ragged: bool, span: tuple[int, int]) -> list[_Line]:
        """The lines that a span of widths asks for by itself."""
        regime = self.regimes[number]
        low, high = span
        first, last = 1, high
        if axis == 0:
            first = regime.start
            if number + 1 < len(self.regimes):
                last = min(high, self.regimes[number + 1].start - 1)
        low = max(low, first)
        if low > last:
            return []
        block = regime.block
        if block == 1:
            if ragged:
                return []
            return [_Line(at, at) for at in _spread(low, last, _FINE_RATIO if axis == 0 else _RATIO)]
        upper = self.regimes[number + 1].start - 1 if axis == 0 and number + 1 < len(self.regimes) else None
        return list(_blocked(low, last, block, ragged, first, upper))


def _blocked(low: int, high: int, block: int, ragged: bool, first: int, upper: int | None) -> Iterator[_Line]:
    """Lines of full blocks, or of widths with a rest, of which one in the middle of its block stands for the others."""
    if not ragged:
        least, most = -(-low // block) * block, high // block * block
        if least <= most:
            for count in _spread(least // block, most // block, _RATIO):
                yield _Line(count * block, count * block)
        return
    if low < block:  # less than one block: kernels differ too much to let one width stand for all
        for at in _spread(low, min(high, block - 1), _RATIO):
            yield _Line(at, at)
    least, most = max(low, block + 1), high - (high % block == 0)
    if least % block == 0:
        least += 1
    if least <= most:
        for count in _spread(-(-least // block), -(-most // block), _RATIO):
            middle = max(count * block - block // 2, first)
            yield _Line(count * block, middle if upper is None else min(middle, upper))


def _spread(low: int, high: int, ratio: float) -> list[int]:
    """Whole numbers from ``low`` to ``high``, about evenly on a logarithmic scale, no further apart than ``ratio``."""
    if low == high:
        return [low]
    count = max(1, math.ceil(math.log(high / low) / math.log(ratio) - 1e-9))
    return sorted({round(low * (high / low) ** (number / count)) for number in range(count + 1)})


def _is_ragged(width: int, block: int) -> bool:
    return width % block != 0


def _place(width: int, block: int) -> int:
    return width if width < block else -(-width // block) * block


def _nearest(lines: Sequence[_Line], at: int) -> list[tuple[_Line, float]] | None:
    """The lines on both sides with their shares; one line if it is met; None outside of them."""
    index = bisect_left([line.at for line in lines], at)
    if index == len(lines):
        return None
    above = lines[index]
    if above.at == at:
        return [(above, 1.0)]
    if index == 0:
        return None
    below = lines[index - 1]
    share = (at - below.at) / (above.at - below.at)
    return [(below, 1 - share), (above, share)]


@dataclass(slots=True)
class Curve:
    """Times of one operator over an amount of data: straight between what was measured.

    Attributes:
        points: Seconds by elements.
    """

    points: dict[int, float] = field(default_factory=dict)
    _sorted: list[tuple[int, float]] = field(default_factory=list, repr=False)

    def add(self, amount: int, seconds: float) -> None:
        """Adds what was measured."""
        self.points[amount] = seconds
        self._sorted.clear()

    def seconds(self, amount: int, floor: float) -> float | None:
        """Read off; ``floor`` is what no data at all take. In proportion beyond the last point; None without any."""
        if not self._sorted:
            self._sorted = sorted(self.points.items())
        if not self._sorted:
            return None
        index = bisect_left(self._sorted, (amount, -math.inf))
        if index == len(self._sorted):
            most, seconds = self._sorted[-1]
            return seconds * amount / most if most else seconds
        above, late = self._sorted[index]
        below, early = self._sorted[index - 1] if index else (0, min(floor, late))
        return late if above == amount else early + (late - early) * (amount - below) / (above - below)

    @property
    def most(self) -> int:
        """The largest amount that was measured."""
        return max(self.points, default=-1)
