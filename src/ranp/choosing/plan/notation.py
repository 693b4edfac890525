"""How a plan's file writes indices and classes: short, readable, the same for the same content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

_DIGITS = 10
"""Longer numbers are beyond anything a plan may hold, and are not even turned into one."""
_RANGE = re.compile(r"([0-9]+)(?:\s*-\s*([0-9]+))?")
_RUN = re.compile(r"([0-9]+)(?:\s*-\s*([0-9]+))?(?:\s*\*\s*([0-9]+))?")
_SHOWN = 60


def format_indices(indices: Sequence[int]) -> str:
    """Increasing indices as ranges.

    >>> format_indices((0, 1, 2, 5, 7, 8))
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def parse_indices(text: str, size: int) -> tuple[int, ...]:
    """The indices that ``format_indices`` wrote, or that a person typed.

    >>> parse_indices("0-2,5 , 7-8", 10)
    (0, 1, 2, 5, 7, 8)

    Raises:
        ValueError: Not a list of ranges, or one of them is outside of ``0 .. size - 1`` or out of order.
    """
    indices: list[int] = []
    for part, numbers in _parts(text, _RANGE, "an index or a range; write '0-15, 17, 20-31'"):
        start, stop = numbers[0], numbers[0] if numbers[1] is None else numbers[1]
        if stop >= size or start > stop or (indices and start <= indices[-1]):
            raise ValueError(f"{part!r} must follow the range before it and lie in 0-{size - 1}")
        indices.extend(range(start, stop + 1))
    return tuple(indices)


def format_classes(classes: Sequence[int]) -> str:
    """Class numbers in their order: ``3-5`` counts up, ``*4`` says each of them four times.

    >>> format_classes((1, 2, 3, 7, 8)), format_classes((0, 0, 1, 1, 2, 2))
    ('1-3, 7-8', '0*2, 1-2*2')
    """
    numbers = np.asarray(classes, dtype=np.int64)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    values, times = numbers[starts], np.diff(starts, append=len(numbers))
    counts_up = (np.diff(values) == 1) & (np.diff(times) == 0) & (values[1:] > 1)
    firsts = np.flatnonzero(~np.concatenate([[False], counts_up]))
    lasts = np.append(firsts[1:], len(values)) - 1
    return ", ".join(
        (f"{first}-{last}" if last > first else str(first)) + (f"*{each}" if each > 1 else "")
        for first, last, each in zip(
            values[firsts].tolist(), values[lasts].tolist(), times[firsts].tolist(), strict=True
        )
    )


def parse_classes(text: str, most: int) -> tuple[int, ...]:
    """The numbers that ``format_classes`` wrote.

    >>> parse_classes("0*2, 1-2*2", 6)
    (0, 0, 1, 1, 2, 2)

    Raises:
        ValueError: Not such a list, or one of more than ``most`` numbers.
    """
    runs: list[tuple[int, int, int]] = []
    for part, (first, last, times) in _parts(text, _RUN, "a class or a run of them; write '1-64', '0*3' or '1-64*8'"):
        run = (first, first if last is None else last, 1 if times is None else times)
        if run[1] < first or not run[2]:
            raise ValueError(f"{part!r} must count up and be there at least once")
        most -= (run[1] - first + 1) * run[2]
        if most < 0:
            raise ValueError(f"{part!r} is more than fits: there are {-most} classes too many")
        runs.append(run)
    numbers = (repeat(number, times) for first, last, times in runs for number in range(first, last + 1))
    return tuple(chain.from_iterable(numbers))


def shown(indices: Sequence[int]) -> str:
    """Indices as ranges, shortened for a message."""
    text = format_indices(indices)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN].rpartition(',')[0]}, ..."


def _parts(text: str, pattern: re.Pattern[str], wanted: str) -> list[tuple[str, tuple[Any, ...]]]:
    found = []
    for part in map(str.strip, text.split(",")):
        match = pattern.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:_SHOWN]!r} is not {wanted}")
        if any(len(digits or "") > _DIGITS for digits in match.groups()):
            raise ValueError(f"{part[:_SHOWN]!r} holds a number of more than {_DIGITS} digits, which no plan can hold")
        found.append((part, tuple(None if digits is None else int(digits) for digits in match.groups())))
    return found
