"""Guesses at the widths that code knows, each tried at once: numbers in attributes, and widths of other channels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING

import numpy as np

from ranp.tracing.agreeing import Seen, same_share, widths_near
from ranp.tracing.cuts import Mask
from ranp.tracing.cutting import sizes_of
from ranp.tracing.labels import FILLER, Classes, EqualCounts, Vector, has_filler
from ranp.tracing.ledger import OpRecord
from ranp.tracing.mirrors import Key, attributes_near, transferred, with_distinct
from ranp.tracing.probing import Failure, probe
from ranp.tracing.siblings import Part, Siblings, pattern_of

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

Cut = Callable[[Classes], Mask | None]
"""Which labels stay in a trial cut of these classes; None if there is no such cut."""
Cuts = tuple[Cut, Cut]
"""The one that failed, and another one."""
AGREEING = 5
"""Other widths to try at one failure: the one that code read is seldom far."""


@dataclass(slots=True)
class Guesses:
    """What may be tried after one failed trial cut.

    Attributes:
        tracer: Of the network; what turns out right is written into its lessons.
        classes: As they were in the trial.
        cuts: Make the trial cut, and another one.
        failure: What happened then.
        at: The operator to look around.
        vectors: Labels there that can go.
        siblings: Operators that play the same part.
    """

    tracer: Tracer
    classes: Classes
    cuts: Cuts
    failure: Failure
    at: int
    vectors: list[Vector]
    siblings: Siblings

    def find(self) -> bool:
        """Looks for a width that lets the trial come further: in an attribute, of other channels, or both together."""
        return self._find_attribute() or self._find_agreement() or self._find_agreement(with_attributes=True)

    @property
    def _records(self) -> list[OpRecord]:
        return self.tracer.runs[self.failure.train].ledger.records

    @property
    def _part(self) -> Part:
        return self.siblings.parts[self.failure.train, self.at]

    def _is_new(self, guess: str) -> bool:
        """Whether it helps or not: nothing is tried twice at one place, nor at its siblings."""
        known = (self._part, guess) in self.tracer.lessons.refuted
        self.tracer.lessons.refuted.add((self._part, guess))
        return not known

    def _further(self, failure: Failure | None) -> bool:
        """True if a trial came further than the one that failed."""
        return failure is None or (failure.train, failure.index) > (self.failure.train, self.failure.index)

    def _try(self, classes: Classes, what: str, cut: Cut | None = None) -> Failure | None:
        """What happens in the trial now."""
        keep = (cut or self.cuts[0])(classes)
        failure = None if keep is None else probe(self.tracer, classes, keep)
        logger.debug("%s at %d: %s? %s", self._part, self.at, what, "yes" if failure is None else failure.detail)
        return failure

    def _attributes(self) -> list[tuple[Key, Vector]]:
        """Attributes that may hold the width, and the channels that they would count."""
        record = self._records[self.at]
        candidates = [vector for vector in _widths(record, self.classes.roots) if self.classes.ids[vector].any()]
        return attributes_near(self.tracer.model, record, candidates)

    def _find_attribute(self) -> bool:
        """Looks for an attribute that holds the width."""
        attributes, roots, record = self.tracer.attributes, self.classes.roots, self._records[self.at]
        for key, vector in self._attributes():
            guess = f"{pattern_of(key[0])} {key[1]}"
            if (self._part, str(key)) in self.tracer.lessons.refuted or not self._is_new(guess):
                continue
            if key in attributes:  # one number for two sets of channels: they must keep equally many
                note = same_share(attributes[key], vector, roots, record.where)
                if len(attributes[key]) == len(vector) and note is not None:
                    alike = (
                        same_share(attributes[other], theirs, roots, where)
                        for other, theirs, where in self._alike(key, vector)
                        if other in attributes
                    )
                    notes = [note, *(other for other in alike if other is not None)]
                    self.tracer.lessons.counts += notes
                    self.tracer.space.equal_counts += notes
                    return True
                continue
            attributes[key] = vector
            if self._further(self._try(self.classes, f"is the width in {key}")):
                self._take(key, vector)
                self.tracer.lessons.refuted -= {(self._part, guess)}  # siblings that are not alike may try theirs
                self.tracer.lessons.refuted.add((self._part, str(key)))
                return True
            del attributes[key]
        return False

    def _take(self, key: Key, vector: Vector) -> None:
        """Remembers an attribute; those alike are taken for widths too, which the next trial checks."""
        mirrors, attributes = self.tracer.lessons.mirrors, self.tracer.attributes
        mirrors[key] = vector
        for alike, theirs, _ in self._alike(key, vector):
            if alike not in attributes:
                mirrors[alike] = attributes[alike] = theirs

    def _alike(self, key: Key, vector: Vector) -> Iterator[tuple[Key, Vector, str]]:
        """The same attribute of modules that play the same part, the channels it should count there, and where."""
        mine, roots = self._records[self.at], self.classes.roots
        widths = _widths(mine, roots)
        number = next(i for i, other in enumerate(widths) if np.array_equal(other, vector))
        for mode, other in self.siblings.of((self.failure.train, self.at)):
            record = self.tracer.runs[mode].ledger.records[other]
            alike, theirs = transferred(key, mine, record), _widths(record, roots)
            if alike is None or alike == key or len(theirs) != len(widths):
                continue
            numbers = sizes_of(self.tracer.model, [alike[0]]).get(alike[0], ())
            if key[1] < len(numbers) and numbers[key[1]] == len(theirs[number]):
                yield alike, theirs[number], record.where

    def _find_agreement(self, *, with_attributes: bool = False) -> bool:
        """Looks for another width with which that of these channels must agree, perhaps with numbers in attributes."""
        space, records, roots = self.tracer.space, self._records, self.classes.roots
        near = list(islice(widths_near(records, self.at, self.classes), AGREEING))
        for (seen, other), vector in product(near, self.vectors):
            note = same_share(vector, other, roots, records[self.at].where)
            if note is None or not self._is_new(f"agrees with {seen}{' and attributes' * with_attributes}"):
                continue
            notes = [note, *self._agreeing_alike(seen, vector)]
            space.equal_counts.extend(notes)
            if self._agrees(space.resolve(), vector, f"does the width agree with {seen}", with_attributes):
                self.tracer.lessons.counts += notes
                return True
            del space.equal_counts[-len(notes) :]
        return False

    def _agrees(self, classes: Classes, vector: Vector, what: str, with_attributes: bool) -> bool:
        """Whether trials of classes of which some keep equal counts come further, whatever these counts are."""
        if len(classes.coupled) > len(self.classes.coupled):  # not by counts alone
            return False
        if self._cuts(self.classes, vector) and not self._cuts(classes, vector):  # nothing is tried any more
            return False
        if not self._further(self._try(classes, what)):
            return with_attributes and self._find_attributes(classes, what)
        return self._further(self._try(classes, f"{what} in another cut", self.cuts[1]))

    def _cuts(self, classes: Classes, vector: Vector) -> bool:
        """Whether some trial cut of these classes takes some of these channels."""
        return any(keep is not None and not keep[vector].all() for keep in (cut(classes) for cut in self.cuts))

    def _find_attributes(self, classes: Classes, what: str) -> bool:
        """Looks for attributes that let the trial come further together: each must change what happens."""
        taken: dict[Key, Vector] = {}
        before = self._try(classes, what)
        for key, vector in self._attributes():
            if before is None or key in self.tracer.attributes:
                continue
            self.tracer.attributes[key] = taken[key] = vector
            now = self._try(classes, f"{what} and {', '.join(name for name, _ in taken)}")
            if self._further(now):
                for own, counted in taken.items():
                    self._take(own, counted)
                return True
            if now is None or now.detail == before.detail or (now.train, now.index) < (before.train, before.index):
                del self.tracer.attributes[key], taken[key]
            else:
                before = now
        for key in taken:
            del self.tracer.attributes[key]
        return False

    def _agreeing_alike(self, seen: Seen, vector: Vector) -> Iterator[EqualCounts]:
        """The same agreement around operators that play the same part."""
        step, records = seen[0], self._records
        mine = next((i, d) for i, d, v in records[self.at].inputs if v is vector)
        for mode, at in self.siblings.of((self.failure.train, self.at)):
            if mode is not self.failure.train or at == self.at or not 0 <= at + step < len(records):
                continue
            source = records[at + step]
            one = next((v for i, d, v in records[at].inputs if (i, d) == mine), None)
            two = next((v for i, d, v in source.inputs if (i, d) == seen[1:]), None)
            if one is None or two is None or source.name != records[self.at + step].name:
                continue
            note = same_share(one, two, self.classes.roots, records[at].where)
            if note is not None:
                yield note


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
