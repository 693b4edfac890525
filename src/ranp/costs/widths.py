"""How every size of a step depends on the widths, found by tracing the same step at a few of them.

A search over widths cannot trace the steps of hundreds of networks. But a network cut to other widths runs the same
operators in the same order, and a size that changes is a count of channels that stay, times a constant. So a few steps
at different widths tell, size by size, which channels it counts, and from then on the step of any choice of channels is
known without running anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, repeat

import numpy as np

from ranp.costs.step import Call, Sized, StepTrace, Storage
from ranp.errors import UnsupportedError
from ranp.tracing.layout import Flags, Ints, Layout

Sizes = tuple[int, ...]
"""One size in each of the step traces."""


Part = tuple[Fraction | int, tuple[int, ...]]
"""A weight, and the numbers of the arrays of classes whose shares it is multiplied with."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A size as a function of what stays.

    A plain size is ``full`` times the share of one array of classes that stays, a flattened weight that of two; what
    was concatenated is a mean of those, by the widths that were joined.

    Attributes:
        full: In the full network.
        parts: Of the mean; none: it never changes.
    """

    full: int
    parts: tuple[Part, ...] = ()


class StepAtWidths:
    """A step trace at any widths.

    Args:
        layout: The classes of channels.
        probes: Choices of classes and the step trace of each; the first is the full network.

    Raises:
        UnsupportedError: The step traces do not run the same operators, or a size follows no count of channels.
    """

    def __init__(self, layout: Layout, probes: Sequence[tuple[Flags, StepTrace]]) -> None:
        flags, self._runs = [stays for stays, _ in probes], [traced for _, traced in probes]
        self._full = self._runs[0]
        _check_alike(self._runs)
        self._arrays = _distinct(layout)
        self._totals = [len(array) for array in self._arrays]
        self._decoder = _Decoder([tuple(int(s[array].sum()) for s in flags) for array in self._arrays])
        self._shapes: dict[tuple[Formula, ...], int] = {}
        self._calls = [self._call(calls) for calls in zip(*(run.calls for run in self._runs), strict=True)]
        self._storages = [self._storage(found) for found in zip(*(run.storages for run in self._runs), strict=True)]
        full = [tuple(formula.full for formula in formulas) for formulas in self._shapes]
        self._latest: tuple[list[tuple[int, ...]], StepTrace] = (full, self._full)

    def at(self, stays: Flags) -> StepTrace:
        """The step of the network that keeps these classes.

        Args:
            stays: One flag per class.
        """
        shares = [
            Fraction(int(np.count_nonzero(stays[array])), total)
            for array, total in zip(self._arrays, self._totals, strict=True)
        ]
        values: dict[Formula, int] = {}

        def size(formula: Formula) -> int:
            if formula not in values:
                values[formula] = round(formula.full * _share(formula.parts, shares))
            return values[formula]

        shapes = [tuple(map(size, formulas)) for formulas in self._shapes]
        old_shapes, old = self._latest
        same = [shape == before for shape, before in zip(shapes, old_shapes, strict=True)]
        calls = tuple(
            # Candidates of a search differ little: most calls are those of the one before.
            call
            if settings is None and all(same[n] for n in inputs) and all(same[n] for n in outputs)
            else Call(
                call.op,
                tuple(_resized(tensor, shapes[n]) for tensor, n in zip(call.inputs, inputs, strict=True)),
                tuple(_resized(tensor, shapes[n]) for tensor, n in zip(call.outputs, outputs, strict=True)),
                full.settings if settings is None else full.settings.with_numbers(map(size, settings)),
                call.phase,
                call.module,
            )
            for full, call, (inputs, outputs, settings) in zip(self._full.calls, old.calls, self._calls, strict=True)
        )
        storages = tuple(
            storage
            if same[number] and not extra.parts
            else Storage(
                shapes[number], storage.dtype, storage.kind, storage.born, storage.dies, storage.module, size(extra)
            )
            for storage, (number, extra) in zip(old.storages, self._storages, strict=True)
        )
        found = replace(self._full, calls=calls, storages=storages)
        self._latest = (shapes, found)
        return found

    def _call(self, calls: Sequence[Call]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Formula, ...] | None]:
        inputs = zip(*(call.inputs for call in calls), strict=True)
        outputs = zip(*(call.outputs for call in calls), strict=True)
        numbers = None
        forms = {call.settings.with_numbers(repeat(0)) for call in calls}
        # Where the form differs, a size that repeats another by chance was written as a reference to it.
        if len(forms) == 1 and len({call.settings for call in calls}) > 1:
            found = [call.settings.numbers for call in calls]
            numbers = tuple(self._decoder.number(sizes) for sizes in zip(*found, strict=True))
        read = tuple(map(self._shape, inputs))
        if calls[0].op == "aten.cat.default":
            self._decoder.join([call.inputs for call in calls], [call.outputs[0] for call in calls])
        return read, tuple(map(self._shape, outputs)), numbers

    def _storage(self, storages: Sequence[Storage]) -> tuple[int, Formula]:
        return self._shape(storages), self._decoder(tuple(storage.extra for storage in storages))

    def _shape(self, tensors: Sequence[Sized | Storage]) -> int:
        formulas = tuple(self._decoder(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True))
        return self._shapes.setdefault(formulas, len(self._shapes))


class _Decoder:
    """Finds which arrays of classes a size counts, from what it is in each step trace."""

    def __init__(self, counts: Sequence[Sizes]) -> None:
        self._known: dict[Sizes, Formula] = {}
        self._by_share: dict[tuple[Fraction, ...], tuple[Part, ...]] = {}
        for number, sizes in enumerate(counts):
            if len(set(sizes)) > 1:
                self._by_share.setdefault(_shares(sizes), ((1, (number,)),))
        self._singles = dict(self._by_share)
        self._pairs: dict[tuple[Fraction, ...], tuple[Part, ...]] | None = None

    def __call__(self, sizes: Sizes) -> Formula:
        if len(set(sizes)) == 1:
            return Formula(sizes[0])
        if sizes not in self._known:
            self._known[sizes] = Formula(sizes[0], self._find(sizes))
        return self._known[sizes]

    def number(self, sizes: Sizes) -> Formula:
        """As for a size; a number that counts no channels (where a slice begins, say) stays what it is in full."""
        try:
            return self(sizes)
        except UnsupportedError:
            return Formula(sizes[0])

    def join(self, inputs: Sequence[tuple[Sized, ...]], outputs: Sequence[Sized]) -> None:
        """Learns what a concatenation makes: along one dimension, the sum of what goes in."""
        for dim, sizes in enumerate(zip(*(tensor.shape for tensor in outputs), strict=True)):
            joined = list(zip(*([tensor.shape[dim] for tensor in some] for some in inputs), strict=True))
            if (
                len(set(sizes)) == 1
                or _shares(sizes) in self._by_share
                or tuple(map(sum, zip(*joined, strict=True))) != sizes
            ):
                continue
            found = [self(part) for part in joined]
            parts = [(formula.full * weight, counts) for formula in found for weight, counts in _normal(formula)]
            self._by_share[_shares(sizes)] = tuple(parts)

    def _find(self, sizes: Sizes) -> tuple[Part, ...]:
        if sizes[0] and _shares(sizes) in self._by_share:
            return self._by_share[_shares(sizes)]
        if self._pairs is None:  # flattened weights: inputs times outputs
            self._pairs = {
                tuple(x * y for x, y in zip(one, other, strict=True)): ((1, (*a[0][1], *b[0][1])),)
                for (one, a), (other, b) in combinations_with_replacement(self._singles.items(), 2)
            }
        if not sizes[0] or _shares(sizes) not in self._pairs:
            raise UnsupportedError(f"a size is {', '.join(map(str, sizes))} at different widths, no count of channels")
        return self._pairs[_shares(sizes)]


def _normal(formula: Formula) -> list[tuple[Fraction, tuple[int, ...]]]:
    """The parts of a formula with weights that sum to one; a size that never changes is one part without a count."""
    if not formula.parts:
        return [(Fraction(1), ())]
    total = sum((weight for weight, _ in formula.parts), Fraction(0))
    return [(Fraction(weight) / total, counts) for weight, counts in formula.parts]


def _share(parts: Sequence[Part], shares: Sequence[Fraction]) -> Fraction:
    """How much is left of a size: the mean of its parts."""
    if not parts:
        return Fraction(1)
    total, left = Fraction(0), Fraction(0)
    for weight, counts in parts:
        part = Fraction(weight)
        for number in counts:
            part *= shares[number]
        total, left = total + weight, left + part
    return left / total


def _shares(sizes: Sizes) -> tuple[Fraction, ...]:
    return tuple(Fraction(size, sizes[0]) for size in sizes[1:])


def _distinct(layout: Layout) -> list[Ints]:
    """Every array of classes that some dimension of a tensor holds, once."""
    dims = layout.dim_classes()
    spans = [array for span in layout.spans for array in span.values()]
    return list({array.tobytes(): array for array in (*dims, *spans) if len(array)}.values())


def _check_alike(runs: Sequence[StepTrace]) -> None:
    for other in runs[1:]:
        if len(other.calls) != len(runs[0].calls) or len(other.storages) != len(runs[0].storages):
            raise UnsupportedError("the network runs other operators at other widths")
        for one, two in zip(runs[0].calls, other.calls, strict=True):
            if one.op != two.op or len(one.inputs) != len(two.inputs) or len(one.outputs) != len(two.outputs):
                raise UnsupportedError(f"the network runs {one.op} at some widths and {two.op} at others")
        for a, b in zip(runs[0].storages, other.storages, strict=True):
            if (a.born, a.dies, a.kind) != (b.born, b.dies, b.kind):
                raise UnsupportedError("memory is held for another time at other widths")


def _resized(tensor: Sized, shape: tuple[int, ...]) -> Sized:
    if tensor.shape == shape:
        return tensor
    return Sized(shape, tensor.dtype, tensor.channels_last, tensor.storage, tensor.scattered)
