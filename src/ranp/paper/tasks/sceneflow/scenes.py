"""Procedural stereo, from the ground up: textured layers before two cameras, with exact disparity and occlusion.

A layer is a plane, perhaps slanted, cut out by an outline and painted. Everything about it is a function of the left
view's coordinates, so both views are point samples of the same description: the left camera sees a layer's point (x, y)
at (x, y), the right one at (x - d, y), d being the layer's disparity there, which is affine and so can be inverted.
What is nearer has the larger disparity and hides the rest, in both views. Nothing is warped or filled in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_REACH = 0.72  # largest disparity relative to the height: below 192 at the paper's 256
_TILE = 32  # edge of the noise that all paints are mixed from
_WAVES = (14.0, 6.0, 2.6)  # pixels from one random value to the next, of each octave of a paint


def limit(height: int) -> float:
    """No disparity of a scene of that height is larger."""
    return _REACH * height


@dataclass(frozen=True, slots=True)
class Outline:
    """A convex shape: an ellipse, or where all of some half planes meet.

    Attributes:
        centre: (x, y), in pixels of the left view.
        axes: (2, 2): rows turn an offset from the centre into the shape's own coordinates, of radius 1.
        edges: (N, 3) of (nx, ny, reach): inside is ``nx * u + ny * v <= reach``; None for an ellipse.
    """

    centre: tuple[float, float]
    axes: Floats
    edges: Floats | None

    def covers(self, x: Floats, y: Floats) -> Flags:
        """Which points lie inside."""
        across, down = x - self.centre[0], y - self.centre[1]
        if self.edges is None:
            u = self.axes[0, 0] * across + self.axes[0, 1] * down
            v = self.axes[1, 0] * across + self.axes[1, 1] * down
            return np.asarray(u * u + v * v <= 1.0)
        inside = np.ones(np.broadcast(x, y).shape, dtype=np.bool_)
        for (over, under), reach in zip(self.edges[:, :2] @ self.axes, self.edges[:, 2], strict=True):
            inside &= over * across + under * down <= reach
        return inside


@dataclass(frozen=True, slots=True)
class Paint:
    """The colour of a layer's points, a continuous function of them.

    Attributes:
        colour: (3,), from 0 to 1.
        turn: Angle of the noise.
        stretch: Factor on the wavelengths of the noise.
        offsets: (octaves, 2): where in the tile of noise each octave begins.
        amounts: (octaves, 3): the colour that each adds at its peak.
        stripes: (kx, ky, phase) of a sine.
        stripe_colour: (3,): what a stripe adds at its peak; zero for a layer without stripes.
    """

    colour: Floats
    turn: float
    stretch: float
    offsets: Floats
    amounts: Floats
    stripes: tuple[float, float, float]
    stripe_colour: Floats

    def at(self, x: Floats, y: Floats, tile: Floats) -> Floats:
        """(N, 3) colours of N points."""
        cos, sin = math.cos(self.turn), math.sin(self.turn)
        u, v = cos * x + sin * y, cos * y - sin * x
        parts = [np.ones(len(x))]
        for wave, (first, second) in zip(_WAVES, self.offsets, strict=True):
            scale = 1.0 / (wave * self.stretch)
            parts.append(_between(tile, u * scale + first, v * scale + second))
        across, down, phase = self.stripes
        parts.append(np.sin(across * x + down * y + phase))
        colours: Floats = np.stack(parts, axis=1) @ np.vstack((self.colour, self.amounts, self.stripe_colour))
        return colours


@dataclass(frozen=True, slots=True)
class Layer:
    """A painted piece of a plane.

    Attributes:
        plane: (a, b, c): disparity ``a + b * x + c * y`` at (x, y) of the left view; b below 1.
        outline: Where the layer is; None for everywhere.
        paint: How it looks.
    """

    plane: tuple[float, float, float]
    outline: Outline | None
    paint: Paint

    def disparity(self, x: Floats, y: Floats) -> Floats:
        """Disparity of points of the left view."""
        a, b, c = self.plane
        return a + b * x + c * y

    def seen_from_right(self, column: Floats, y: Floats) -> Floats:
        """The x of the left view whose point the right view has at ``column``: solves ``x - disparity(x) = column``."""
        a, b, c = self.plane
        return (column + a + c * y) / (1.0 - b)

    def covers(self, x: Floats, y: Floats) -> Flags:
        """Where the layer is, of points of the left view."""
        return np.ones(np.broadcast(x, y).shape, dtype=np.bool_) if self.outline is None else self.outline.covers(x, y)


@dataclass(frozen=True, slots=True)
class Scene:
    """Layers before two cameras of ``height`` by ``width`` pixels; the first layer is everywhere.

    Attributes:
        tile: (T, T) of noise from -1 to 1 that repeats.
    """

    height: int
    width: int
    layers: tuple[Layer, ...]
    tile: Floats

    def left(self) -> tuple[Floats, Floats, Flags]:
        """The left view (H, W, 3), its disparity (H, W), and which of its points the right camera cannot see (H, W)."""
        column, row = self._grid()
        which, disparity = self._nearest(row, [column] * len(self.layers))
        return self._painted(which, [column] * len(self.layers), row), disparity, self._hidden(which, disparity)

    def right(self) -> Floats:
        """The right view (H, W, 3)."""
        column, row = self._grid()
        places = [layer.seen_from_right(column, row) for layer in self.layers]
        which, _ = self._nearest(row, places)
        return self._painted(which, places, row)

    def _grid(self) -> tuple[Floats, Floats]:
        """Columns (1, W) and rows (H, 1): what is affine in them needs few operations."""
        return np.arange(float(self.width))[None, :], np.arange(float(self.height))[:, None]

    def _nearest(self, row: Floats, places: list[Floats]) -> tuple[Numbers, Floats]:
        """Number and disparity of the layer that a camera sees, if it sees the layers at those places."""
        which = np.zeros((self.height, self.width), dtype=np.int64)
        best = np.full(which.shape, -np.inf)
        for number, (layer, x) in enumerate(zip(self.layers, places, strict=True)):
            disparity = layer.disparity(x, row)
            nearer = layer.covers(x, row) & (disparity > best)
            np.copyto(which, number, where=nearer)
            np.copyto(best, disparity, where=nearer)
        return which, best

    def _hidden(self, which: Numbers, disparity: Floats) -> Flags:
        """Points of the left view that lie outside of the right one, or behind another layer there."""
        column, row = self._grid()
        target = column - disparity
        hidden = (target < 0) | (target > self.width - 1)
        for number, layer in enumerate(self.layers):
            x = layer.seen_from_right(target, row)
            hidden |= (which != number) & (layer.disparity(x, row) > disparity) & layer.covers(x, row)
        return hidden

    def _painted(self, which: Numbers, places: list[Floats], row: Floats) -> Floats:
        view = np.empty((self.height, self.width, 3))
        for number, (layer, x) in enumerate(zip(self.layers, places, strict=True)):
            rows, columns = np.nonzero(which == number)
            if len(rows):
                there = np.broadcast_to(x, which.shape)[rows, columns]
                view[rows, columns] = layer.paint.at(there, row[rows, 0], self.tile)
        return view


def draw_scene(rng: np.random.Generator, height: int, width: int) -> Scene:
    """A random scene: a slanted background and three to seven shapes before it, or cutting through it."""
    low, high = min(1.0, 0.03 * height), limit(height)
    behind = rng.uniform(0.05, 0.3) * height
    middle = ((width - 1) / 2, (height - 1) / 2)
    layers = [Layer(_plane(rng, behind, middle, (width / 2, height / 2), low, high), None, _paint(rng, height))]
    for _ in range(int(rng.integers(3, 8))):
        radius = rng.uniform(0.12, 0.5) * height
        radii = (radius, radius * rng.uniform(0.2, 1.0))
        centre = (rng.uniform(0, width), rng.uniform(0, height))
        nearness = behind + (0.97 * high - behind) * rng.uniform(0.05, 1.0) ** 1.5
        plane = _plane(rng, nearness, centre, (radius, radius), low, high)
        layers.append(Layer(plane, _outline(rng, centre, radii), _paint(rng, height)))
    return Scene(height, width, tuple(layers), rng.uniform(-1.0, 1.0, (_TILE, _TILE)))


def _plane(
    rng: np.random.Generator,
    disparity: float,
    centre: tuple[float, float],
    half: tuple[float, float],
    low: float,
    high: float,
) -> tuple[float, float, float]:
    """A plane of that disparity at the centre, slanted no more than keeps it between the bounds within half extents."""
    room = min(disparity - low, high - disparity, 0.3 * min(half))
    share = rng.uniform(-1.0, 1.0)
    b = room * rng.uniform(-1.0, 1.0) * abs(share) / half[0]
    c = room * math.copysign(1.0 - abs(share), share) * rng.uniform() / half[1]
    return disparity - b * centre[0] - c * centre[1], b, c


def _outline(rng: np.random.Generator, centre: tuple[float, float], radii: tuple[float, float]) -> Outline:
    """An ellipse, or a polygon of three to six edges within it."""
    angle = rng.uniform(0, math.pi)
    cos, sin = math.cos(angle), math.sin(angle)
    axes = np.array([[cos / radii[0], sin / radii[0]], [-sin / radii[1], cos / radii[1]]])
    if rng.uniform() < 0.4:
        return Outline(centre, axes, None)
    count = int(rng.integers(3, 7))
    corners = 2 * math.pi * (np.arange(count + 1) + rng.uniform(-0.25, 0.25, count + 1)) / count
    corners[-1] = corners[0] + 2 * math.pi
    facing, reach = (corners[1:] + corners[:-1]) / 2, np.cos((corners[1:] - corners[:-1]) / 2)
    return Outline(centre, axes, np.stack((np.cos(facing), np.sin(facing), reach), axis=1))


def _paint(rng: np.random.Generator, height: int) -> Paint:
    """Rough, nearly plain or striped: what is easy, hard and ambiguous to match."""
    kind = rng.choice(3, p=(0.6, 0.2, 0.2))
    amounts = rng.uniform(-1.0, 1.0, (len(_WAVES), 3)) * (0.45, 0.06, 0.15)[kind]
    wave, angle = rng.uniform(5.0, 5.0 + 0.15 * height), rng.uniform(0, math.pi)
    stripe = rng.uniform(-0.25, 0.25, 3) if kind == 2 else np.zeros(3)
    return Paint(
        colour=rng.uniform(0.2, 0.8, 3),
        turn=rng.uniform(0, 2 * math.pi),
        stretch=rng.uniform(0.9, 1.6),
        offsets=rng.uniform(0, _TILE, (len(_WAVES), 2)),
        amounts=amounts,
        stripes=(2 * math.pi * math.cos(angle) / wave, 2 * math.pi * math.sin(angle) / wave, rng.uniform(0, 6.28)),
        stripe_colour=stripe,
    )


def _between(tile: Floats, u: Floats, v: Floats) -> Floats:
    """(N,) values of a tile that repeats, bilinear between its points."""
    edge = len(tile)
    flat = tile.ravel()
    left, top = np.floor(u), np.floor(v)
    across, down = u - left, v - top
    i, j = left.astype(np.int64) % edge, top.astype(np.int64) % edge
    i_next, j, j_next = (i + 1) % edge, j * edge, (j + 1) % edge * edge
    upper = flat[j + i] * (1 - across) + flat[j + i_next] * across
    lower = flat[j_next + i] * (1 - across) + flat[j_next + i_next] * across
    mixed: Floats = upper * (1 - down) + lower * down
    return mixed
