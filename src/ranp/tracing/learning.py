"""What a failed trial cut teaches: a view to read the other way round, a width in an attribute, channels that stay."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ranp.tracing.agreeing import within
from ranp.tracing.guesses import Cuts, Guesses, meeting_constants
from ranp.tracing.heads import DIMS, alike, in_attention, turn, turn_to_heads
from ranp.tracing.labels import Classes, EqualCounts, Vector
from ranp.tracing.ledger import OpRecord
from ranp.tracing.mirrors import Key
from ranp.tracing.probing import Failure
from ranp.tracing.reshaping import OUTERMOST
from ranp.tracing.siblings import Part, Place, Siblings, pattern_of
from ranp.tracing.trace import Cause

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

CONTRACTIONS = ("convolution", "mm", "bmm")
"""Operators whose first input alone holds the channels that do not fit; the weight's outputs are not to blame."""

RESHAPING = frozenset(
    "view _unsafe_view reshape _reshape_alias expand repeat split split_with_sizes slice narrow constant_pad_nd".split()
)
"""Operators that take sizes from the code: a size written there is written in every block of the same class."""
REPEATED = 2
"""Failures of one part, of any other operator, after which its siblings are taken to fail too."""


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
        through: Weights of grouped convolutions whose inputs are numbered through all groups, and how many these are.
        distrusted: Channels of layers without which slim networks failed their check, and why.
        refuted: Guesses at a part that need not be tried again.
        failures: How often a part has failed.
        asks: Whether code asks for the mode; None until somebody wants to know.
    """

    carriers: dict[Place, int] = field(default_factory=dict)
    code_pins: dict[Place, CodePin] = field(default_factory=dict)
    mirrors: dict[Key, Vector] = field(default_factory=dict)
    counts: list[EqualCounts] = field(default_factory=list)
    through: dict[str, int] = field(default_factory=dict)
    distrusted: list[tuple[Vector, str]] = field(default_factory=list)
    refuted: set[tuple[Part, str]] = field(default_factory=set)
    failures: Counter[Part] = field(default_factory=Counter)
    asks: bool | None = None

    @property
    def knows_widths(self) -> bool:
        """True if code knows widths: then more cuts are tried, in which widths differ."""
        return bool(self.mirrors or self.counts)

    def forget(self, modules: Collection[str]) -> None:
        """Drops what was learned of the widths of modules of some patterns, before their views are read otherwise."""
        mirrors = self.mirrors.items()
        self.mirrors = {key: v for key, v in mirrors if pattern_of(key[0].rpartition(".")[0]) not in modules}
        self.counts = [note for note in self.counts if pattern_of(note.where) not in modules]
        self.refuted = {guess for guess in self.refuted if guess[0][0] not in modules}


def learn(tracer: Tracer, classes: Classes, cuts: Cuts | None, failure: Failure) -> None:
    """Turns a failed trial into knowledge: a view that splits the other way, or channels that must stay.

    Or an attribute that knows the width, or another width that must agree; for these, ``cuts`` make the trial cut, to
    try again with, and another one.
    """
    train, index, reason = failure.train, failure.index, failure.reason
    logger.debug("a trial cut failed at %d: %s", index, failure.detail)
    lessons, ledger = tracer.lessons, tracer.runs[train].ledger
    siblings = Siblings({mode: run.ledger.records for mode, run in tracer.runs.items() if not run.failed})
    unturned = [i for i in sorted(ledger.splits, reverse=True) if i <= index and (train, i) not in lessons.carriers]
    if unturned and index - 3 <= unturned[0] and not in_attention(ledger.records, unturned[0]):
        _turn_unless_a_width_is_known(tracer, classes, cuts, failure, siblings.of((train, unturned[0])))
        return
    where = _loose_at(tracer, classes, failure)
    for at, vectors in where.items():
        if cuts is not None and Guesses(tracer, classes, cuts, failure, at, vectors, siblings).find():
            return
        here = ledger.records[min(index, len(ledger.records) - 1)].where
        heads = next((i for i in unturned if within(here, ledger.records[i].where)), None)
        if heads is not None and tracer.attention != DIMS and in_attention(ledger.records, heads):
            turn_to_heads(tracer, alike(tracer.model, ledger.records, ledger.records[heads].where), siblings)
            return
        logger.debug("round failed at %d: %s", at, reason)
        constants = any(classes.ids[vector].any() for vector in meeting_constants(ledger.records[at]))
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


def _turn_unless_a_width_is_known(
    tracer: Tracer, classes: Classes, cuts: Cuts | None, failure: Failure, places: Collection[Place]
) -> None:
    """Reads a view the other way round; where less can go then, only if no attribute holds a width that it takes."""
    lessons, straight = tracer.lessons, dict(tracer.lessons.carriers)
    turn(tracer, places, OUTERMOST)
    if cuts is None or np.count_nonzero(tracer.space.resolve().ids) >= np.count_nonzero(classes.ids):
        return
    turned, refuted = lessons.carriers, set(lessons.refuted)
    lessons.carriers = straight
    tracer.run_full()
    siblings = Siblings({mode: run.ledger.records for mode, run in tracer.runs.items() if not run.failed})
    classes = tracer.space.resolve()
    for at, vectors in _loose_at(tracer, classes, failure).items():
        if Guesses(tracer, classes, cuts, failure, at, vectors, siblings).find():
            return
    lessons.carriers, lessons.refuted = turned, refuted  # what is wrong here may be right of the turned view
    tracer.run_full()


def _loose_at(tracer: Tracer, classes: Classes, failure: Failure) -> Mapping[int, list[Vector]]:
    """Labels that can go, at the operator of a failure or near it."""
    records = tracer.runs[failure.train].ledger.records
    return labels_at(records, failure.index, lambda vector: bool(classes.ids[vector].any()))


def labels_at(records: Sequence[OpRecord], index: int, is_new: Callable[[Vector], bool]) -> Mapping[int, list[Vector]]:
    """Labels to pin after a failure at an operator: its own, or of the nearest one before that has some left."""
    for at in (*range(min(index, len(records) - 1), -1, -1), *range(index, len(records))):
        data = [v for i, _, v in records[at].inputs if is_new(v) and (i == 0 or records[at].name not in CONTRACTIONS)]
        vectors = data or [v for _, _, v in records[at].inputs if is_new(v)]
        if vectors:
            return {at: vectors}
    return {}
