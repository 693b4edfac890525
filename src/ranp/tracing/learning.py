"""What a failed trial cut teaches: a view to read the other way round, a width in an attribute, channels that stay."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ranp.tracing.cuts import Mask
from ranp.tracing.cutting import sizes_of
from ranp.tracing.labels import FILLER, Classes, Vector, has_filler
from ranp.tracing.ledger import OpRecord, places_of
from ranp.tracing.mirrors import Key, guesses, transferred, with_distinct
from ranp.tracing.probing import Failure, probe
from ranp.tracing.trace import Cause

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

Place = tuple[bool, int]
"""Mode (True: training) and number of an operator."""
Part = tuple[str, str, int]
"""Module without its numbers, operator, and its number among those of its kind in that module."""
CONTRACTIONS = ("convolution", "mm", "bmm")
"""Operators whose first input alone holds the channels that do not fit; the weight's outputs are not to blame."""

RESHAPING = frozenset(
    "view _unsafe_view reshape _reshape_alias expand repeat split split_with_sizes slice narrow constant_pad_nd".split()
)
"""Operators that take sizes from the code: a size written there is written in every block of the same class."""
REPEATED = 2
"""Failures of one part, of any other operator, after which its siblings are taken to fail too."""


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


@dataclass(frozen=True, slots=True)
class CodePin:
    """Channels at one operator that must stay; ``constants``: only those that meet a constant there."""

    reason: str
    constants: bool


@dataclass(slots=True)
class Lessons:
    """What the trials of one network have taught so far; it outlives the notebook of a run.

    Attributes:
        outermost: Views that split channels and hand them to the outermost part.
        code_pins: Operators around which code assumes channels, and what must stay there.
        mirrors: Attributes that hold a width, with the channels they count.
        unions: Channels of which one attribute counts two sets.
        distrusted: Channels of layers without which slim networks failed their check, and why.
        refuted: Guesses at a part that need not be tried again.
        failures: How often a part has failed.
    """

    outermost: set[Place] = field(default_factory=set)
    code_pins: dict[Place, CodePin] = field(default_factory=dict)
    mirrors: dict[Key, Vector] = field(default_factory=dict)
    unions: list[tuple[Vector, Vector]] = field(default_factory=list)
    distrusted: list[tuple[Vector, str]] = field(default_factory=list)
    refuted: set[tuple[Part, str]] = field(default_factory=set)
    failures: Counter[Part] = field(default_factory=Counter)


def learn(tracer: Tracer, classes: Classes, keep: Mask | None, failure: Failure) -> None:
    """Turns a failed trial into knowledge: a view that splits the other way, or channels that must stay.

    Or an attribute that knows the width; for that, ``keep`` is the trial cut, to try again with.
    """
    train, index, reason = failure.train, failure.index, failure.reason
    lessons, ledger = tracer.lessons, tracer.runs[train].ledger
    siblings = Siblings({mode: run.ledger.records for mode, run in tracer.runs.items() if not run.failed})
    near = [i for i in sorted(ledger.splits, reverse=True) if index - 3 <= i <= index]
    turned = next((i for i in near if (train, i) not in lessons.outermost), None)
    if turned is not None:
        lessons.outermost.update(
            (mode, i) for mode, i in siblings.of((train, turned)) if i in tracer.runs[mode].ledger.splits
        )
        tracer.run_full()
        return

    def loose(vector: Vector) -> bool:
        return bool(classes.ids[vector].any())

    where = labels_at(ledger.records, index, loose)
    for at, vectors in where.items():
        if keep is not None and _find_mirror(tracer, classes, keep, (train, index), at, vectors, siblings):
            return
        logger.debug("round failed at %d: %s", at, reason)
        constants = any(map(loose, meeting_constants(ledger.records[at])))
        pin = lessons.code_pins[train, at] = CodePin(reason, constants)
        tracer.pin_at(ledger.records[at], vectors, pin)
        part = siblings.parts[train, at]
        lessons.failures[part] += 1
        if constants or not (part[1] in RESHAPING or lessons.failures[part] >= REPEATED):
            continue
        for mode, other in siblings.of((train, at)):
            record = tracer.runs[mode].ledger.records[other]
            lessons.code_pins.setdefault((mode, other), pin)
            tracer.pin_at(record, [vector for _, _, vector in record.inputs], pin)
    if not where:
        tracer.space.pin(np.arange(2, tracer.space.size), reason, "", cause=Cause.CODE)


def _find_mirror(
    tracer: Tracer, classes: Classes, keep: Mask, failed: Place, at: int, vectors: list[Vector], siblings: Siblings
) -> bool:
    """Looks for an attribute that holds the width of these channels: with it cut too, the trial comes further."""
    train, lessons = failed[0], tracer.lessons
    records = tracer.runs[train].ledger.records
    part = siblings.parts[train, at]
    candidates = [*vectors, *meeting_constants(records[at])]
    for key, vector in guesses(tracer.model, records[at], with_distinct(candidates, classes.roots)):
        guess = (part, pattern_of(str(key)))
        if guess in lessons.refuted:
            continue
        lessons.refuted.add(guess)  # whether it helps or not: never twice at one place, nor at its siblings
        known = tracer.attributes.get(key)
        if known is not None:  # one number for two sets of channels: they must keep equally many
            if len(known) != len(vector) or np.array_equal(classes.roots[known], classes.roots[vector]):
                continue
            lessons.unions.append((known, vector))
            tracer.space.unite(known, vector)
            return True
        tracer.attributes[key] = vector
        failure = probe(tracer, classes, keep)
        if failure is None or (failure.train, failure.index) > failed:
            logger.debug("%s holds the width", key)
            lessons.mirrors[key] = vector
            _mirror_alike(tracer, key, train, at, vector, siblings)
            return True
        del tracer.attributes[key]
    return False


def _mirror_alike(tracer: Tracer, key: Key, train: bool, at: int, vector: Vector, siblings: Siblings) -> None:
    """Takes the same attribute of modules that play the same part for a width too; the next trial checks it."""
    records = tracer.runs[train].ledger.records
    number, dim = next(((i, d) for i, d, v in records[at].inputs if np.array_equal(v, vector)), (-1, -1))
    for mode, other in siblings.of((train, at)):
        record = tracer.runs[mode].ledger.records[other]
        alike = transferred(key, records[at], record)
        theirs = next((v for i, d, v in record.inputs if (i, d) == (number, dim)), None)
        if alike is None or theirs is None or alike in tracer.attributes:
            continue
        numbers = sizes_of(tracer.model, [alike[0]]).get(alike[0], ())
        if key[1] < len(numbers) and numbers[key[1]] == len(theirs):
            tracer.lessons.mirrors[alike] = tracer.attributes[alike] = theirs


def labels_at(records: Sequence[OpRecord], index: int, is_new: Callable[[Vector], bool]) -> Mapping[int, list[Vector]]:
    """Labels to pin after a failure at an operator: its own, or of the nearest one before that has some left."""
    for at in (*range(min(index, len(records) - 1), -1, -1), *range(index, len(records))):
        data = [v for i, _, v in records[at].inputs if is_new(v) and (i == 0 or records[at].name not in CONTRACTIONS)]
        vectors = data or [v for _, _, v in records[at].inputs if is_new(v)]
        if vectors:
            return {at: vectors}
    return {}


def meeting_constants(record: OpRecord) -> list[Vector]:
    """Labels that meet a constant, such as padded zeros, position by position.

    Where the amount of padding is written in the code, these must stay, and what lies between them may go.
    """
    found = []
    for _, dim, vector in record.inputs:
        for _, other_dim, other in record.inputs:
            if other is not vector and other_dim == dim and len(other) == len(vector) and has_filler(other):
                found.append(vector[other == FILLER])
    return found
