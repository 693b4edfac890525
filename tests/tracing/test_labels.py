"""Classes from notes: components against a plain union-find, and what equal pieces come to."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ranp.tracing.labels import FILLER, RIGID, EqualCounts, LabelSpace, components


@given(st.integers(2, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60))
def test_components_are_those_of_a_plain_union_find(size: int, edges: list[tuple[int, int]]) -> None:
    edges = [(a % size, b % size) for a, b in edges]
    parent = list(range(size))

    def find(x: int) -> int:
        while parent[x] != x:
            x = parent[x]
        return x

    for a, b in edges:
        low, high = sorted((find(a), find(b)))
        parent[high] = low
    a, b = (np.array([edge[i] for edge in edges], np.int64) for i in (0, 1))
    found = components(np.arange(size, dtype=np.int64), a, b)
    assert found.tolist() == [find(x) for x in range(size)]


def test_fillers_agree_with_everything_and_join_nothing() -> None:
    space = LabelSpace()
    a, b = space.new(3), space.new(3)
    holed = a.copy()
    holed[1] = FILLER
    assert space.unite(holed, b).tolist() == [a[0], b[1], a[2]]
    ids = space.resolve().ids
    assert ids[a[0]] == ids[b[0]]
    assert ids[a[1]] != ids[b[1]]


def test_a_pin_reaches_the_whole_class_and_nothing_else() -> None:
    space = LabelSpace()
    a, b = space.new(3), space.new(3)
    space.unite(a, b)
    space.pin(b[:1], "because", "here")
    ids = space.resolve().ids
    assert ids[a[0]] == ids[b[0]] == 0
    assert ids[a[1]] == ids[b[1]] != 0


def test_rigid_labels_always_stay() -> None:
    space = LabelSpace()
    a = space.new(2)
    space.unite(a, np.array([RIGID, FILLER]))
    assert (space.resolve().ids[a] != 0).tolist() == [False, True]


def test_pieces_of_distinct_classes_are_a_constraint() -> None:
    space = LabelSpace()
    a = space.new(6)
    space.require_equal_counts(a, 3, "groups", "here")
    classes = space.resolve()
    assert [sorted(piece.tolist()) for piece in classes.pieces[0]] == classes.ids[a].reshape(3, 2).tolist()
    assert len(np.unique(classes.ids[a])) == 6


def test_pieces_that_hold_the_same_classes_are_free() -> None:
    space = LabelSpace()
    a = space.new(4)
    space.unite(a[:2], a[2:])
    space.require_equal_counts(a, 2, "halves", "here")
    assert space.resolve().pieces == ()


def test_the_finer_of_two_nested_constraints_stays() -> None:
    for first, second in ((2, 4), (4, 2)):
        space = LabelSpace()
        a = space.new(8)
        space.require_equal_counts(a, first, "one", "here")
        space.require_equal_counts(a, second, "other", "here")
        (entry,) = space.resolve().pieces
        assert len(entry) == 4


def test_constraints_that_share_pieces_are_one() -> None:
    space = LabelSpace()
    stream, one, other = space.new(12), space.new(4), space.new(4)
    for mine in (one, other):
        space.equal_counts.append(EqualCounts((mine, *stream.reshape(3, 4)), "agree", "here"))
    (entry,) = space.resolve().pieces
    assert [len(piece) for piece in entry] == [4] * 5


def test_coarser_pieces_are_made_of_finer_ones() -> None:
    space = LabelSpace()
    stream, fine, coarse = space.new(12), space.new(3), space.new(6)
    space.equal_counts.append(EqualCounts((coarse, *stream.reshape(2, 6)), "coarse", "here"))
    space.equal_counts.append(EqualCounts((fine, *stream.reshape(4, 3)), "fine", "here"))
    classes = space.resolve()
    (entry,) = classes.pieces
    assert [len(piece) for piece in entry] == [3] * 7
    assert not classes.coupled


def test_a_class_that_lies_equally_often_in_every_piece_counts_once() -> None:
    space = LabelSpace()
    a, b = space.new(6), space.new(6)
    for vector in (a, b):
        space.unite(vector[:3], vector[3:])
    space.equal_counts.append(EqualCounts((a, b), "agree", "here"))
    (entry,) = space.resolve().pieces
    assert [len(piece) for piece in entry] == [3, 3]


def test_of_many_small_pieces_whole_ones_go() -> None:
    space = LabelSpace()
    a = space.new(12)
    space.require_equal_counts(a, 6, "groups", "here", whole=True)
    classes = space.resolve()
    assert classes.pieces == ()
    assert np.array_equal(classes.ids[a].reshape(6, 2), [[i, i] for i in range(1, 7)])
    assert [wish.where for wish in classes.coupled] == ["here"]


def test_of_few_large_pieces_each_keeps_as_many_as_every_other() -> None:
    space = LabelSpace()
    a = space.new(12)
    space.require_equal_counts(a, 3, "groups", "here", whole=True)
    (entry,) = space.resolve().pieces
    assert len(entry) == 3


def test_pieces_that_meet_go_whole_together_or_not_at_all() -> None:
    space = LabelSpace()
    a, b, c = space.new(12), space.new(12), space.new(8)
    space.require_equal_counts(a, 4, "small", "here", whole=True)
    space.require_equal_counts(np.concatenate([a, b]), 4, "large", "beside", whole=True)
    space.require_equal_counts(c, 2, "large", "elsewhere", whole=True)
    classes = space.resolve()
    assert len(np.unique(classes.ids[a])) == 2  # six channels across the seam of groups of three
    assert len(np.unique(classes.ids[b])) == 2
    (entry,) = classes.pieces
    assert np.array_equal(np.concatenate(entry), classes.ids[c])


def test_constraints_that_cross_are_coupled_so_that_both_hold() -> None:
    space = LabelSpace()
    a = space.new(12)
    space.require_equal_counts(a, 3, "three", "here")
    space.require_equal_counts(a, 2, "two", "here")
    classes = space.resolve()
    assert_every_cut_is_even(a, classes.ids, classes.pieces, (2, 3))


def test_crossing_constraints_share_the_largest_parts_that_suit_both() -> None:
    space = LabelSpace()
    a = space.new(60)
    space.require_equal_counts(a[:36], 3, "groups of twelve", "here")
    space.require_equal_counts(a, 3, "groups of twenty", "here")
    classes = space.resolve()
    assert len(np.unique(classes.ids[a])) == 60
    assert [(len(entry), len(entry[0])) for entry in classes.pieces] == [(15, 4)]
    assert_every_cut_is_even(a, classes.ids, classes.pieces, (3,))
    assert_every_cut_is_even(a[:36], classes.ids, classes.pieces, (3,))


def test_classes_across_seams_go_with_as_many_others_as_make_up_for_them() -> None:
    space = LabelSpace()
    a = space.new(30)
    dealt = a.reshape(10, 3)
    space.unite(dealt[:, [0, 0]].ravel(), dealt[:, 1:].ravel())
    space.require_equal_counts(a, 3, "groups of ten, dealt in threes", "here")
    classes = space.resolve()
    first, last = classes.ids[a[9]], classes.ids[a[18]]  # 9 | 10, 11 and 18, 19 | 20
    assert first == last
    assert len(np.unique(classes.ids[a])) == 7  # these with one of the first group and one of the last, and six others
    assert [(len(entry), len(entry[0])) for entry in classes.pieces] == [(3, 2)]
    assert_every_cut_is_even(a, classes.ids, classes.pieces, (3,))


def assert_every_cut_is_even(labels, ids, pieces, counts) -> None:
    """Removing any allowed set of classes leaves equal counts in each of the wanted pieces."""
    rng = np.random.default_rng(0)
    ranked = {int(c) for entry in pieces for piece in entry for c in piece}
    for _ in range(50):
        removed = {int(c) for c in np.unique(ids[labels]) if c and int(c) not in ranked and rng.random() < 0.5}
        for entry in pieces:
            count = rng.integers(0, len(entry[0]) + 1)
            removed |= {int(c) for piece in entry for c in rng.permutation(piece)[:count]}
        stays = np.array([int(ids[label]) not in removed for label in labels])
        for count in counts:
            assert len({int(part.sum()) for part in np.split(stays, count)}) == 1


@settings(max_examples=200)
@given(
    st.integers(1, 4).map(lambda n: 12 * n),
    st.lists(st.sampled_from([2, 3, 4, 6]), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 47), st.integers(0, 47)), max_size=4),
    st.lists(st.integers(0, 47), max_size=2),
)
def test_whatever_meets_the_constraints_is_even_everywhere(size, counts, unions, pins) -> None:
    space = LabelSpace()
    a = space.new(size)
    for x, y in unions:
        space.unite(a[x % size : x % size + 1], a[y % size : y % size + 1])
    for x in pins:
        space.pin(a[x % size : x % size + 1], "because", "here")
    for count in counts:
        space.require_equal_counts(a, count, "pieces", "here")
    classes = space.resolve()
    assert_every_cut_is_even(a, classes.ids, classes.pieces, counts)
    seen = [int(c) for entry in classes.pieces for piece in entry for c in piece]
    assert len(seen) == len(set(seen))
