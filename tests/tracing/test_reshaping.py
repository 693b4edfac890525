"""Labels through views, against the same view taken of a tensor that holds the labels."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ranp.tracing.labels import LabelSpace
from ranp.tracing.reshaping import HEADS, INNERMOST, OUTERMOST, blocks, common_factors, reshape_labels


def test_documented_examples() -> None:
    assert common_factors((2, 8), (4, 4)) == [(0, 0, 2), (1, 0, 2), (1, 1, 4)]
    assert common_factors((4,), (3,)) is None
    assert blocks((2, 8, 3, 4), (2, 8, 12)) == [([0], [0]), ([1], [1]), ([2, 3], [2])]


CARRIERS = st.sampled_from([INNERMOST, HEADS, OUTERMOST])
FACTORS = st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=5)


def grouped(factors: list[int], cuts: set[int]) -> tuple[int, ...]:
    """Multiplies neighbours together, so that two groupings of the same factors are views of each other."""
    shape, run = [], 1
    for place, factor in enumerate(factors):
        run *= factor
        if place in cuts or place == len(factors) - 1:
            shape.append(run)
            run = 1
    return tuple(shape)


@settings(max_examples=300)
@given(FACTORS, st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)), st.integers(0, 4), CARRIERS)
def test_every_element_keeps_a_label_of_its_class(factors, mine, theirs, dim, carrier) -> None:
    source, target = grouped(factors, mine), grouped(factors, theirs)
    dim %= len(source)
    assume(source[dim] > 1)
    space, pinned = LabelSpace(), []
    vector = space.new(source[dim])
    moved = reshape_labels(space, {dim: vector}, source, target, lambda v, _: pinned.append(v), carrier=carrier)
    assert not pinned
    ids = space.resolve().ids

    along = [1] * len(source)
    along[dim] = -1
    truth = np.broadcast_to(vector.reshape(along), source).reshape(target)
    claimed = np.zeros(target, np.int64)
    for new, labels in moved.items():
        along = [1] * len(target)
        along[new] = -1
        claimed = np.maximum(claimed, np.broadcast_to(labels.reshape(along), target))
    assert len(moved) == 1
    assert (ids[claimed] == ids[truth]).all()


def test_a_shuffle_unites_what_shares_a_place_in_its_group() -> None:
    space = LabelSpace()
    vector = space.new(6)
    split = reshape_labels(space, {1: vector}, (2, 6, 5), (2, 2, 3, 5), lambda *_: None)
    merged = reshape_labels(space, {1: split[2]}, (2, 3, 2, 5), (2, 6, 5), lambda *_: None)
    ids = space.resolve().ids
    assert (ids[vector].reshape(2, 3) == ids[vector[:3]]).all()
    assert (ids[merged[1]].reshape(3, 2) == ids[vector[:3]][:, None]).all()


def test_irregular_views_pin_only_their_own_block() -> None:
    space, pinned = LabelSpace(), []
    channels, height = space.new(4), space.new(6)
    moved = reshape_labels(space, {1: channels, 2: height}, (1, 4, 6, 4), (1, 4, 8, 3), lambda v, _: pinned.append(v))
    assert moved.keys() == {1}
    assert [v.tolist() for v in pinned] == [height.tolist()]


def test_two_pruned_dimensions_cannot_both_be_carried_by_one() -> None:
    space, pinned = LabelSpace(), []
    a, b = space.new(2), space.new(5)
    moved = reshape_labels(space, {0: a, 1: b}, (2, 5), (10,), lambda v, _: pinned.append(v))
    assert moved[0].tolist() == b.tolist() * 2
    assert [v.tolist() for v in pinned] == [a.tolist()]
    assert math.prod((2, 5)) == len(moved[0])
