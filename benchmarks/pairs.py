"""Interleaved pairs: both sides run alternately in one process, so that whatever else the machine does hits both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, quartiles and extremes of a handful of figures."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        first, _, third = statistics.quantiles(self.values, n=4, method="inclusive")
        return first, third

    def __str__(self) -> str:
        low, high = self.quartiles
        return f"{self.median:.3f} ({low:.3f} - {high:.3f}; {min(self.values):.3f} - {max(self.values):.3f})"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Times of both sides, pair by pair: wall clock, and seconds of all cores of this process.

    On a machine that is busy with something else the second says what the code costs, the first how long it took.
    """

    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    our_work: tuple[float, ...]
    their_work: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        return Spread(tuple(a / b for a, b in zip(self.ours, self.theirs, strict=True)))

    @property
    def work_ratio(self) -> Spread:
        return Spread(tuple(a / b for a, b in zip(self.our_work, self.their_work, strict=True)))

    @property
    def count(self) -> int:
        return len(self.ours)


def measure_pairs(ours: Callable[[], object], theirs: Callable[[], object], count: int, warmup: int = 1) -> Pairs:
    """Runs both sides ``count`` times, alternately; which goes first alternates too."""
    for _ in range(warmup):
        ours()
        theirs()
    times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(count):
        for side in (True, False) if number % 2 else (False, True):
            times[side].append(_timed(ours if side else theirs))
    (our, our_work), (their, their_work) = (zip(*times[side], strict=True) for side in (True, False))
    return Pairs(our, their, our_work, their_work)


def _timed(function: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    wall, work = time.perf_counter(), time.process_time()
    result = function()
    times = time.perf_counter() - wall, time.process_time() - work
    del result
    return times


def peak_bytes(function: Callable[[], object]) -> int:
    """Most bytes that torch's CPU allocator held at once on behalf of ``function``, beyond what it held before.

    Read off the allocator's own events, so it is exact and the same every time, which resident set sizes are not.
    Scratch space inside oneDNN's kernels is not in it; both sides of a pair run the same kernels.
    """
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        result = function()
    del result
    held = peak = 0
    begun = None
    allocations = [e for e in _events(record) if e.typed[0] == torch._C._profiler._EventType.Allocation]
    for event in sorted(allocations, key=lambda event: event.start_time_ns):
        fields = event.typed[1]
        if fields.device.type != "cpu":
            continue
        held = fields.total_allocated
        begun = held - fields.alloc_size if begun is None else begun
        peak = max(peak, held - begun)
    return peak


def _events(record: Any) -> Iterator[Any]:
    todo = list(record.profiler.kineto_results.experimental_event_tree())
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        yield event


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """A Markdown table under a heading, with notes below."""
    lines = [f"## {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"{note}\n" for note in notes)])
