"""What a failed trial cut teaches: a view to read the other way round, a width in an attribute, channels that stay."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import TYPE_CHECKING

import numpy as np

from ranp.tracing.agreeing import CANDIDATES, Seen, same_share, widths_before
from ranp.tracing.cuts import Mask
from ranp.tracing.cutting import sizes_of
from ranp.tracing.labels import FILLER, Classes, EqualCounts, Vector, has_filler
from ranp.tracing.ledger import OpRecord, places_of
from ranp.tracing.mirrors import Key, guesses, transferred, with_distinct
from ranp.tracing.probing import Failure, probe
from ranp.tracing.reshaping import HEADS, OUTERMOST
from ranp.tracing.rules.contraction import ATTENTIONS
from ranp.tracing.trace import Cause

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

Place = tuple[bool, int]
"""Mode (True: training) and number of an operator."""
Part = tuple[str, str, int]
"""Module without its numbers, operator, and its number among those of its kind in that module."""
Cut = Callable[[Classes], Mask | None]
"""Which labels stay in a trial cut of these classes; None if there is no such cut."""
ATTENDING = frozenset(["bmm", "baddbmm", *ATTENTIONS])
"""Operators by which queries meet keys."""
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
        carriers: Views that split channels and do not hand them to the innermost part, and the part that has them.
        code_pins: Operators around which code assumes channels, and what must stay there.
        mirrors: Attributes that hold a width, with the channels they count.
        counts: Channels of which code takes one number for two sets.
        distrusted: Channels of layers without which slim networks failed their check, and why.
        refuted: Guesses at a part that need not be tried again.
        failures: How often a part has failed.
    """

    carriers: dict[Place, int] = field(default_factory=dict)
    code_pins: dict[Place, CodePin] = field(default_factory=dict)
    mirrors: dict[Key, Vector] = field(default_factory=dict)
    counts: list[EqualCounts] = field(default_factory=list)
    distrusted: list[tuple[Vector, str]] = field(default_factory=list)
    refuted: set[tuple[Part, str]] = field(default_factory=set)
    failures: Counter[Part] = field(default_factory=Counter)

    def forget(self, module: str) -> None:
        """Drops what was learned of the widths of modules of one pattern, before their views are read otherwise."""
        self.mirrors = {key: v for key, v in self.mirrors.items() if pattern_of(key[0].rpartition(".")[0]) != module}
        self.counts = [note for note in self.counts if pattern_of(note.where) != module]
        self.refuted = {guess for guess in self.refuted if guess[0][0] != module}


def learn(tracer: Tracer, classes: Classes, cut: Cut | None, failure: Failure) -> None:
    """Turns a failed trial into knowledge: a view that splits the other way, or channels that must stay.

    Or an attribute that knows the width, or another width that must agree; for these, ``cut`` makes the trial cut, to
    try again with.
    """
    train, index, reason = failure.train, failure.index, failure.reason
    logger.debug("a trial cut failed at %d: %s", index, failure.detail)
    lessons, ledger = tracer.lessons, tracer.runs[train].ledger
    siblings = Siblings({mode: run.ledger.records for mode, run in tracer.runs.items() if not run.failed})
    near = [i for i in sorted(ledger.splits, reverse=True) if index - 3 <= i <= index]
    turned = next((i for i in near if (train, i) not in lessons.carriers), None)
    attends = turned is not None and in_attention(ledger.records, turned)
    if turned is not None and not attends:
        _turn(tracer, siblings.of((train, turned)), OUTERMOST)
        return

    def loose(vector: Vector) -> bool:
        return bool(classes.ids[vector].any())

    where = labels_at(ledger.records, index, loose)
    for at, vectors in where.items():
        if cut is not None and (
            _find_mirror(tracer, classes, cut, (train, index), at, vectors, siblings)
            or _find_agreement(tracer, classes, cut, (train, index), at, vectors, siblings)
        ):
            return
        if turned is not None:
            module = siblings.parts[train, turned][0]
            lessons.forget(module)
            _turn(tracer, [place for place, part in siblings.parts.items() if part[0] == module], HEADS)
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


def _turn(tracer: Tracer, places: Iterable[Place], carrier: int) -> None:
    """Lets another part carry the channels of views that split them."""
    found = [(mode, index) for mode, index in places if index in tracer.runs[mode].ledger.splits]
    tracer.lessons.carriers |= dict.fromkeys(found, carrier)
    tracer.run_full()


def in_attention(records: Sequence[OpRecord], index: int) -> bool:
    """True if an operator stands in a module in which tensors that are no weights are multiplied with each other."""
    where = records[index].where
    return any(
        record.name in ATTENDING and (not where or record.where == where or record.where.startswith(f"{where}."))
        for record in records
    )


def _find_mirror(
    tracer: Tracer, classes: Classes, cut: Cut, failed: Place, at: int, vectors: list[Vector], siblings: Siblings
) -> bool:
    """Looks for an attribute that holds the width of these channels: with it cut too, the trial comes further."""
    train, lessons = failed[0], tracer.lessons
    records = tracer.runs[train].ledger.records
    part = siblings.parts[train, at]
    keep = cut(classes)
    candidates = [vector for vector in _widths(records[at], classes.roots) if classes.ids[vector].any()]
    for key, vector in guesses(tracer.model, records[at], candidates):
        guess = (part, pattern_of(str(key)))
        if guess in lessons.refuted:
            continue
        lessons.refuted.add(guess)  # whether it helps or not: never twice at one place, nor at its siblings
        known = tracer.attributes.get(key)
        if known is not None:  # one number for two sets of channels: they must keep equally many
            note = same_share(known, vector, classes.roots, records[at].where)
            if len(known) != len(vector) or note is None:
                continue
            notes = [note]
            for alike, theirs, where in _alike(tracer, key, (train, at), vector, siblings, classes.roots):
                if alike in tracer.attributes:
                    also = same_share(tracer.attributes[alike], theirs, classes.roots, where)
                    notes += [] if also is None else [also]
            lessons.counts += notes
            tracer.space.equal_counts += notes
            return True
        tracer.attributes[key] = vector
        failure = None if keep is None else probe(tracer, classes, keep)
        logger.debug("is the width in %s? %s", key, failure and failure.detail)
        if failure is None or (failure.train, failure.index) > failed:
            lessons.mirrors[key] = vector  # and those alike are taken for widths too: the next trial checks it
            for alike, theirs, _ in _alike(tracer, key, (train, at), vector, siblings, classes.roots):
                if alike not in tracer.attributes:
                    lessons.mirrors[alike] = tracer.attributes[alike] = theirs
            return True
        del tracer.attributes[key]
    return False


def _widths(record: OpRecord, roots: Vector) -> list[Vector]:
    """Labels whose number code may know at an operator: of what it reads, of a part of it, of dimensions it merges."""
    read = [vector for _, _, vector in record.inputs]
    return with_distinct([*read, *meeting_constants(record), *_merged(record)], roots)


def _merged(record: OpRecord) -> Iterator[Vector]:
    """Labels of dimensions as they are when a view has merged them with the one before or after."""
    for number, dim, vector in record.inputs:
        shape = record.shapes[number] or ()
        if 0 < dim < len(shape):
            yield np.tile(vector, shape[dim - 1])
        if dim + 1 < len(shape):
            yield np.repeat(vector, shape[dim + 1])


def _find_agreement(
    tracer: Tracer, classes: Classes, cut: Cut, failed: Place, at: int, vectors: list[Vector], siblings: Siblings
) -> bool:
    """Looks for another width with which that of these channels must agree: then the trial comes further."""
    train, lessons, space = failed[0], tracer.lessons, tracer.space
    records = tracer.runs[train].ledger.records
    part = siblings.parts[train, at]
    near = islice(widths_before(records, at, classes.ids, classes.roots, vectors), CANDIDATES)
    for (seen, other), vector in product(list(near), vectors):
        guess = (part, f"agrees with {seen}")
        note = same_share(vector, other, classes.roots, records[at].where)
        if note is None or guess in lessons.refuted:
            continue
        lessons.refuted.add(guess)
        alike = [note, *_agree_alike(tracer, classes, seen, train, at, vector, siblings)]
        space.equal_counts.extend(alike)
        tried = space.resolve()
        keep = cut(tried)
        failure = None if keep is None else probe(tracer, tried, keep)
        logger.debug("does %s at %d take a width from %s? %s", part, at, seen, failure and failure.detail)
        if failure is None or (failure.train, failure.index) > failed:
            lessons.counts += alike
            return True
        del space.equal_counts[-len(alike) :]
    return False


def _agree_alike(
    tracer: Tracer, classes: Classes, seen: Seen, train: bool, at: int, vector: Vector, siblings: Siblings
) -> Iterator[EqualCounts]:
    """The same agreement around operators that play the same part."""
    back, number, dim = seen
    records = tracer.runs[train].ledger.records
    mine = next(((i, d) for i, d, v in records[at].inputs if v is vector), None)
    for mode, other in siblings.of((train, at)):
        theirs = tracer.runs[mode].ledger.records
        source = theirs[other - back] if other >= back else None
        if mode is not train or other == at or source is None or source.name != records[at - back].name:
            continue
        one = next((v for i, d, v in theirs[other].inputs if (i, d) == mine), None)
        two = next((v for i, d, v in source.inputs if (i, d) == (number, dim)), None)
        note = None if one is None or two is None else same_share(one, two, classes.roots, theirs[other].where)
        if note is not None:
            yield note


def _alike(
    tracer: Tracer, key: Key, place: Place, vector: Vector, siblings: Siblings, roots: Vector
) -> Iterator[tuple[Key, Vector, str]]:
    """The same attribute of modules that play the same part, the channels that it should count there, and where."""
    mine = tracer.runs[place[0]].ledger.records[place[1]]
    widths = _widths(mine, roots)
    number = next(i for i, other in enumerate(widths) if np.array_equal(other, vector))
    for mode, other in siblings.of(place):
        record = tracer.runs[mode].ledger.records[other]
        alike, theirs = transferred(key, mine, record), _widths(record, roots)
        if alike is None or alike == key or len(theirs) != len(widths):
            continue
        numbers = sizes_of(tracer.model, [alike[0]]).get(alike[0], ())
        if key[1] < len(numbers) and numbers[key[1]] == len(theirs[number]):
            yield alike, theirs[number], record.where


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
