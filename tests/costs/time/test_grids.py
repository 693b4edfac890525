"""Reading between measured widths: exact where it must be, monotone, and never outside of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranp.costs.time.grids import Box, Curve, Grid, Regime

PLAIN = (Regime(1, "plain", 1),)
BLOCKED = (Regime(1, "blocked", 16),)
MIXED = (Regime(1, "plain", 1), Regime(21, "blocked", 16))
ALL = pytest.mark.parametrize("regimes", [PLAIN, BLOCKED, MIXED], ids=["plain", "blocked", "mixed"])


def padded(width: int) -> int:
    return -(-width // 16) * 16


def filled(regimes: Sequence[Regime], boxes: Sequence[Box], function: Callable[..., float]) -> Grid:
    grid = Grid(tuple(regimes))
    for box in boxes:
        grid.extend(box)
    grid.points.update({widths: function(*widths) for widths in grid.missing()})
    return grid


@ALL
def test_what_was_measured_is_read_back_exactly(regimes: Sequence[Regime]) -> None:
    grid = filled(regimes, [((1, 192), (1, 70))], lambda a, b: 3.0 + a * 7 % 11 + b * b)
    assert len(grid.points) < 150
    for widths, seconds in grid.points.items():
        assert grid.seconds(widths) == pytest.approx(seconds, rel=1e-12)


@given(a=st.integers(1, 300), b=st.integers(1, 90))
def test_a_product_of_linear_functions_is_exact_between(a: int, b: int) -> None:
    def model(x: int, y: int) -> float:
        return 2 + 3 * x + 5 * y + 7 * x * y

    grid = filled(PLAIN, [((1, 300), (1, 90))], model)
    assert grid.seconds((a, b)) == pytest.approx(model(a, b), rel=1e-9)


@given(a=st.integers(17, 300), b=st.integers(17, 90))
def test_a_kernel_in_blocks_is_exact_in_padded_widths_with_a_price_for_a_rest(a: int, b: int) -> None:
    def model(x: int, y: int) -> float:
        price = (1.0 if x % 16 == 0 else 1.25) * (1.0 if y % 16 == 0 else 1.5)
        return price * (2 + padded(x) * padded(y))

    grid = filled(BLOCKED, [((1, 304), (1, 96))], model)
    assert grid.seconds((a, b)) == pytest.approx(model(a, b), rel=1e-9)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_three_axes(a: int, b: int, c: int) -> None:
    grid = filled(PLAIN, [((1, 40),) * 3], lambda x, y, z: 1.0 + x * y * z)
    assert grid.seconds((a, b, c)) == pytest.approx(1.0 + a * b * c, rel=1e-9)


@given(
    st.sampled_from([PLAIN, BLOCKED, MIXED]),
    st.integers(1, 130),
    st.integers(1, 130),
    st.integers(1, 130),
    st.randoms(use_true_random=False),
)
def test_monotone_times_are_read_as_monotone_ones(regimes: Sequence[Regime], a: int, b: int, other: int, draw) -> None:
    wanted = filled(regimes, [((1, 130), (1, 130))], lambda *_: 0.0)
    rises = [sorted(draw.random() for _ in range(145)) for _ in range(2)]
    grid = filled(regimes, [((1, 130), (1, 130))], lambda x, y: rises[0][x] + rises[1][y] + rises[0][x] * rises[1][y])
    assert grid.points.keys() == wanted.points.keys()
    low, high = sorted((b, other))
    if regimes is PLAIN or (low % 16 and high % 16) or low % 16 == high % 16 == 0:
        below, above = grid.seconds((a, low)), grid.seconds((a, high))
        assert below is not None
        assert above is not None
        assert below <= above + 1e-12


@ALL
def test_every_width_of_every_box_is_covered_and_stays_so(regimes: Sequence[Regime]) -> None:
    boxes: list[Box] = [((1, 20), (1, 64)), ((1, 64), (1, 33)), ((3, 3), (1, 40)), ((1, 192), (48, 48))]
    for count in range(1, len(boxes) + 1):
        grid = filled(regimes, boxes[:count], lambda a, b: 1.0 + a + b)
        for box in boxes[:count]:
            for a in range(box[0][0], box[0][1] + 1):
                for b in range(box[1][0], box[1][1] + 1):
                    assert grid.seconds((a, b)) is not None, (box, a, b)


@ALL
def test_nothing_is_told_outside(regimes: Sequence[Regime]) -> None:
    grid = filled(regimes, [((1, 64), (1, 32))], lambda a, b: 1.0)
    assert grid.seconds((65, 1)) is None
    assert grid.seconds((1, 33)) is None
    assert grid.seconds((97, 97)) is None


def test_kernels_are_never_mixed() -> None:
    grid = filled(MIXED, [((1, 64), (1, 64))], lambda a, b: 100.0 if a <= 20 else 1.0)
    assert [grid.seconds((a, 40)) for a in (1, 19, 20)] == [pytest.approx(100)] * 3
    assert [grid.seconds((a, 40)) for a in (21, 22, 31, 32, 33, 64)] == [pytest.approx(1)] * 6


def test_a_box_inside_another_adds_nothing() -> None:
    grid = filled(PLAIN, [((1, 64), (1, 64))], lambda a, b: 1.0)
    grid.extend(((1, 10), (5, 6)))
    assert not grid.missing()
    assert grid.boxes == (((1, 64), (1, 64)),)
    grid.extend(((1, 65), (1, 64)))
    assert grid.boxes == (((1, 65), (1, 64)),)
    assert grid.missing()


def test_a_curve_is_straight_between_and_in_proportion_beyond() -> None:
    curve = Curve()
    assert curve.seconds(5, 1.0) is None
    curve.add(100, 3.0)
    curve.add(300, 7.0)
    assert curve.seconds(0, 1.0) == 1.0
    assert curve.seconds(50, 1.0) == 2.0
    assert curve.seconds(100, 1.0) == 3.0
    assert curve.seconds(200, 1.0) == 5.0
    assert curve.seconds(600, 1.0) == 14.0
    assert curve.most == 300
