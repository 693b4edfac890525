"""Operators that play the same part in repeated blocks: what a failed trial taught of one is true of the others.

A network of forty equal blocks that write a size into a view would otherwise fail forty trials, one after the other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ranp.tracing.ledger import OpRecord

Place = tuple[bool, int]
"""Mode (True: training) and number of an operator."""
Part = tuple[str, str, int]
"""Module without its numbers, operator, and its number among those of its kind in that module."""

_NUMBER = re.compile(r"\d+")


def pattern_of(name: str) -> str:
    """A name without its numbers."""
    return _NUMBER.sub("#", name)


class Siblings:
    """The parts of all operators of the runs of a network."""

    def __init__(self, runs: Mapping[bool, Sequence[OpRecord]]) -> None:
        self.parts: dict[Place, Part] = {}
        self.places: dict[Part, list[Place]] = defaultdict(list)
        for train, records in runs.items():
            count: Counter[tuple[str, str]] = Counter()
            for index, record in enumerate(records):
                key = (record.where, record.name)
                part = (pattern_of(record.where), record.name, count[key])
                count[key] += 1
                self.parts[train, index] = part
                self.places[part].append((train, index))

    def of(self, place: Place) -> list[Place]:
        """The operators that play the same part, in both modes, that one included."""
        return self.places[self.parts[place]]
