"""Operators that play the same part in repeated blocks: what is true of one is taken to be true of the others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ranp.tracing.ledger import OpRecord, places_of

Place = tuple[bool, int]
"""Mode (True: training) and number of an operator."""
Part = tuple[str, str, int]
"""Module without its numbers, operator, and its number among those of its kind in that module."""


def pattern_of(name: str) -> str:
    """A name without its numbers."""
    return re.sub(r"\d+", "#", name)


class Siblings:
    """Operators that play the same part in repeated blocks: what a failed trial taught of one is true of the others.

    A network of forty equal blocks that write a size into a view would otherwise fail forty trials, one after the
    other.
    """

    def __init__(self, runs: Mapping[bool, Sequence[OpRecord]]) -> None:
        self.parts: dict[Place, Part] = {}
        self.places: dict[Part, list[Place]] = defaultdict(list)
        for train, records in runs.items():
            for index, (where, name, number) in enumerate(places_of(records)):
                part = self.parts[train, index] = (pattern_of(where), name, number)
                self.places[part].append((train, index))

    def of(self, place: Place) -> list[Place]:
        """The operators that play the same part, in both modes, that one included."""
        return self.places[self.parts[place]]
