"""Procedural scenes: disparity and occlusion against geometry done another way, ray by ray, and against the views."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from ranp.paper.tasks.sceneflow.scenes import Layer, Outline, Scene, draw_scene, limit


def scene_of(number: int, height: int = 32) -> Scene:
    return draw_scene(np.random.default_rng((7, number)), height, 2 * height)


def warp(view: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The view's colours at fractional columns, linear between pixels."""
    width = view.shape[1]
    rows = np.arange(view.shape[0])[:, None]
    columns = columns.clip(0, width - 1)
    left = np.floor(columns).astype(int).clip(max=width - 2)
    share = (columns - left)[..., None]
    return view[rows, left] * (1 - share) + view[rows, left + 1] * share


def inside(outline: Outline | None, x: float, y: float) -> bool:
    """By corners and cross products, or by the foci of the ellipse, not as the code does it."""
    if outline is None:
        return True
    back = np.linalg.inv(outline.axes)
    if outline.edges is None:
        u, _, _ = np.linalg.svd(back)
        long, short = sorted(np.linalg.svd(back, compute_uv=False), reverse=True)
        focus = u[:, 0] * math.sqrt(long**2 - short**2)
        point = np.array([x, y]) - outline.centre
        return bool(np.linalg.norm(point - focus) + np.linalg.norm(point + focus) <= 2 * long)
    corners = []
    for one, two in zip(outline.edges, np.roll(outline.edges, -1, axis=0), strict=True):
        corners.append(back @ np.linalg.solve([one[:2], two[:2]], [one[2], two[2]]) + outline.centre)
    sides = [
        (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])
        for a, b in zip(corners, corners[1:] + corners[:1], strict=True)
    ]
    return all(side >= 0 for side in sides) or all(side <= 0 for side in sides)


def right_rays(scene: Scene, row: int, column: float) -> list[tuple[float, int]]:
    """(disparity, layer) of everything the right camera's ray at a column meets: x is found by bisection."""
    met = []
    for number, layer in enumerate(scene.layers):
        a, b, c = layer.plane
        low, high = column - 4000.0, column + 4000.0
        for _ in range(80):
            middle = (low + high) / 2
            if middle - (a + b * middle + c * row) < column:
                low = middle
            else:
                high = middle
        if inside(layer.outline, low, row):
            met.append((a + b * low + c * row, number))
    return met


@pytest.mark.parametrize("number", range(4))
def test_disparity_and_occlusion_are_those_of_rays(number):
    scene = scene_of(number)
    _, disparity, hidden = scene.left()
    rng = np.random.default_rng(number)
    for row, column in zip(rng.integers(0, 32, 150), rng.integers(0, 64, 150), strict=True):
        seen = [
            (layer.plane[0] + layer.plane[1] * column + layer.plane[2] * row, index)
            for index, layer in enumerate(scene.layers)
            if inside(layer.outline, column, row)
        ]
        wanted, which = max(seen)
        assert disparity[row, column] == pytest.approx(wanted, abs=1e-9)
        target = column - wanted
        behind = any(other > wanted + 1e-6 and index != which for other, index in right_rays(scene, row, target))
        assert hidden[row, column] == (target < 0 or behind)


@pytest.mark.parametrize("number", range(8))
def test_right_view_warped_by_disparity_is_left_view_where_visible_and_only_there(number):
    """Medians, since a warp that interpolates mixes layers at every edge."""
    scene = scene_of(number, 64)
    left, disparity, hidden = scene.left()
    columns = np.arange(128)[None, :] - disparity
    explained = np.abs(warp(scene.right(), columns) - left).mean(axis=-1)
    unmoved = np.abs(scene.right() - left).mean(axis=-1)
    wrong_way = np.abs(warp(scene.right(), np.arange(128)[None, :] + disparity) - left).mean(axis=-1)
    assert np.median(explained[~hidden]) < 0.25 * np.median(unmoved[~hidden])
    assert np.median(explained[~hidden]) < 0.25 * np.median(wrong_way[~hidden])
    assert np.median(explained[hidden]) > 4 * np.median(explained[~hidden])


def whole(scene: Scene) -> Scene:
    """The scene with every layer upright and at a whole disparity, so that a warp needs no interpolation."""
    layers = tuple(
        dataclasses.replace(layer, plane=(float(3 + 2 * number), 0.0, 0.0)) for number, layer in enumerate(scene.layers)
    )
    return dataclasses.replace(scene, layers=layers)


@pytest.mark.parametrize("number", range(6))
def test_with_whole_disparities_the_warp_is_exact(number):
    scene = whole(scene_of(number))
    left, disparity, hidden = scene.left()
    right = scene.right()
    rows, columns = np.nonzero(~hidden)
    there = right[rows, columns - disparity[rows, columns].astype(int)]
    np.testing.assert_allclose(there, left[rows, columns], atol=1e-12)
    rows, columns = np.nonzero(hidden & (np.arange(64) >= disparity))
    other = right[rows, columns - disparity[rows, columns].astype(int)]
    assert (np.abs(other - left[rows, columns]).max(axis=1) > 1e-9).all()


def test_a_square_before_a_wall_hides_what_it_should():
    """By hand: a wall at 2, a square of columns 10 to 15 at 6; wall columns 6 to 9 and the first two are hidden."""
    paint = scene_of(0).layers[0].paint
    box = np.array([[1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, -1.0, 1.0]])
    square = Outline((12.5, 8.0), np.diag([1 / 2.6, 1 / 20]), box)
    scene = Scene(
        4, 32, (Layer((2.0, 0.0, 0.0), None, paint), Layer((6.0, 0.0, 0.0), square, paint)), np.zeros((32, 32))
    )
    _, disparity, hidden = scene.left()
    assert (disparity == np.where((np.arange(32) >= 10) & (np.arange(32) <= 15), 6, 2)).all()
    assert [int(column) for column in np.nonzero(hidden[0])[0]] == [0, 1, 6, 7, 8, 9]


@pytest.mark.parametrize(("height", "disparities"), [(16, 16), (32, 32), (48, 48), (64, 48), (128, 96), (256, 192)])
def test_disparities_stay_within_what_a_network_of_that_size_searches(height, disparities):
    assert limit(height) < disparities - 1
    for number in range(30 if height < 128 else 3):
        _, disparity, _ = scene_of(number, height).left()
        assert disparity.min() > 0
        assert disparity.max() <= limit(height)


def test_scenes_are_hard():
    """Disparities spread wide, some of the picture is hidden, some layers are nearly plain and some are striped."""
    scenes = [scene_of(number, 48) for number in range(40)]
    views = [scene.left() for scene in scenes]
    spread = np.mean([np.abs(disparity - np.median(disparity)).mean() for _, disparity, _ in views])
    assert spread > 0.05 * 48
    assert 0.1 < np.mean([hidden.mean() for _, _, hidden in views]) < 0.4
    paints = [layer.paint for scene in scenes for layer in scene.layers]
    assert sum(np.abs(paint.amounts).max() < 0.07 for paint in paints) > 10
    assert sum(bool(paint.stripe_colour.any()) for paint in paints) > 10
    fractions = np.concatenate([(disparity % 1).ravel() for _, disparity, _ in views])
    assert np.histogram(fractions, 10, (0, 1))[0].min() > 0.05 * len(fractions)
