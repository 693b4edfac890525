"""Sixteen categories of procedural shapes with the parts of ShapeNet's: x is forward, y is left, z is up.

Every proportion, and every joint (a laptop's hinge, a lamp's arm, a wing's sweep), is drawn anew for each object.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ranp.paper.tasks.shapenet.solids import Solid, ball, box, ring, tube

Draw = Callable[[float, float], float]
"""A number between two bounds."""

_FLAT = (math.pi / 2, 0, 0)  # turns the axis of a tube or ring from z to -y
_AHEAD = (0, math.pi / 2, 0)  # turns it from z to x


def _sides(*solids: Callable[[int], Solid]) -> list[Solid]:
    """Each solid on the right (-1) and on the left (1)."""
    return [make(side) for make in solids for side in (-1, 1)]


def airplane(draw: Draw) -> list[Solid]:
    """0 body, 1 wings, 2 tail, 3 engines."""
    girth, span, chord, sweep = draw(0.1, 0.16), draw(0.5, 0.9), draw(0.12, 0.22), draw(0.1, 0.6)
    engine, back, side = draw(0.3, 0.6) * span, math.sin(sweep) * span / 2, math.cos(sweep) * span / 2
    return [
        ball(0, (0, 0, 0), (1, girth, girth)),
        *_sides(
            lambda s: box(1, (-back, s * side, 0), (chord, span / 2, 0.025), (0, 0, s * sweep)),
            lambda s: box(2, (-0.88, s * 0.18, 0.04), (0.09, 0.18, 0.02), (0, 0, s * sweep)),
            lambda s: tube(3, (0.05 - math.tan(sweep) * engine, s * engine, -0.09), 0.07, 0.06, 0.15, _AHEAD),
        ),
        box(2, (-0.88, 0, 0.2), (0.1, 0.02, draw(0.14, 0.22)), (0, -0.4, 0)),
    ]


def bag(draw: Draw) -> list[Solid]:
    """0 handle, 1 body."""
    depth, width, height = draw(0.15, 0.3), draw(0.4, 0.7), draw(0.3, 0.5)
    loop = width * draw(0.4, 0.8)
    return [
        ring(0, (0, 0, height), loop, 0.035, (0, -math.pi / 2, 0), arc=math.pi),
        box(1, (0, 0, 0), (depth, width, height)),
    ]


def cap(draw: Draw) -> list[Solid]:
    """0 crown, 1 peak."""
    radius, height, length = draw(0.5, 0.65), draw(0.4, 0.6), draw(0.25, 0.45)
    return [
        ball(0, (0, 0, 0), (radius, radius, height), cut=0.0),
        box(1, (radius + length / 2, 0, 0.02), (length / 2 + 0.08, radius * 0.7, 0.025), (0, draw(0.0, 0.3), 0)),
    ]


def car(draw: Draw) -> list[Solid]:
    """0 roof, 1 hood, 2 wheels, 3 body."""
    length, width, height = draw(0.75, 0.95), draw(0.32, 0.42), draw(0.13, 0.2)
    hood, wheel = draw(0.2, 0.3), draw(0.13, 0.19)
    return [
        box(0, (-0.1, 0, height + 0.15), (length * draw(0.4, 0.55), width * 0.85, 0.14)),
        box(1, (length - hood, 0, height + 0.03), (hood, width * 0.95, 0.03), (0, draw(0.0, 0.15), 0)),
        box(3, (0, 0, 0), (length, width, height)),
        *_sides(
            lambda s: tube(2, (0.6 * length, s * width, -height), wheel, wheel, 0.06, _FLAT),
            lambda s: tube(2, (-0.6 * length, s * width, -height), wheel, wheel, 0.06, _FLAT),
        ),
    ]


def chair(draw: Draw) -> list[Solid]:
    """0 back, 1 seat, 2 legs, 3 arms (not always)."""
    depth, width, back, leg = draw(0.32, 0.45), draw(0.32, 0.45), draw(0.35, 0.55), draw(0.25, 0.45)
    lean, foot = draw(-0.3, 0.0), draw(0.03, 0.05)
    solids = [
        box(0, (-depth + back * math.sin(lean), 0, back * math.cos(lean)), (0.04, width, back), (0, lean, 0)),
        box(1, (0, 0, 0), (depth, width, 0.05)),
    ]
    if draw(0, 1) < 0.7:
        solids += _sides(
            lambda s: tube(2, (depth - 0.06, s * (width - 0.06), -leg), foot, foot, leg),
            lambda s: tube(2, (-depth + 0.06, s * (width - 0.06), -leg), foot, foot, leg),
        )
    else:
        solids += [tube(2, (0, 0, -leg), foot, foot, leg), tube(2, (0, 0, -2 * leg), depth * 0.8, depth * 0.8, 0.03)]
    if draw(0, 1) < 0.6:
        high = draw(0.16, 0.26)
        solids += _sides(lambda s: box(3, (0, s * width, high), (depth * 0.8, 0.04, 0.035)))
    return solids


def earphone(draw: Draw) -> list[Solid]:
    """0 ear pads, 1 band, 2 cable."""
    radius, pad = draw(0.45, 0.6), draw(0.16, 0.26)
    cable = draw(0.25, 0.45)
    return [
        *_sides(lambda s: tube(0, (0, s * radius, 0), pad, pad * 0.8, 0.09, _FLAT)),
        ring(1, (0, 0, 0), radius, 0.04, (0, -math.pi / 2, 0), arc=math.pi),
        tube(2, (0, radius, -pad - cable), 0.025, 0.025, cable, (draw(-0.3, 0.3), draw(-0.3, 0.3), 0)),
    ]


def guitar(draw: Draw) -> list[Solid]:
    """0 head, 1 neck, 2 body."""
    neck, lower, upper = draw(0.35, 0.5), draw(0.26, 0.36), draw(0.18, 0.26)
    thick = draw(0.06, 0.1)
    return [
        box(0, (0.25 + 2 * neck + 0.1, 0, 0), (0.12, draw(0.06, 0.1), 0.03), (0, draw(0.0, 0.4), 0)),
        box(1, (0.25 + neck, 0, 0), (neck, 0.035, 0.03)),
        tube(2, (-0.25, 0, 0), lower, lower, thick),
        tube(2, (0.1, 0, 0), upper, upper, thick),
    ]


def knife(draw: Draw) -> list[Solid]:
    """0 blade, 1 handle."""
    blade, grip = draw(0.45, 0.7), draw(0.25, 0.4)
    fold = draw(-0.5, 0.5) if draw(0, 1) < 0.3 else 0.0  # a clasp knife, half open
    return [
        box(0, (blade * math.cos(fold), 0, -blade * math.sin(fold)), (blade, 0.015, draw(0.06, 0.11)), (0, fold, 0)),
        ball(1, (-grip, 0, 0), (grip * 1.05, draw(0.04, 0.07), draw(0.06, 0.1))),
    ]


def lamp(draw: Draw) -> list[Solid]:
    """0 foot, 1 shade, 2 bulb, 3 arm."""
    lower, upper, bend = draw(0.3, 0.5), draw(0.15, 0.4), draw(0.0, 1.3)
    shade, height = draw(0.2, 0.32), draw(0.12, 0.2)
    top = (2 * upper * math.sin(bend), 0, 2 * lower + 2 * upper * math.cos(bend))
    return [
        tube(0, (0, 0, 0), draw(0.2, 0.35), draw(0.1, 0.2), 0.05),
        tube(1, top, shade, shade * draw(0.3, 0.7), height),
        ball(2, (top[0], 0, top[2] - height - 0.04), (0.09, 0.09, 0.09)),
        tube(3, (0, 0, lower), 0.03, 0.03, lower),
        tube(3, (upper * math.sin(bend), 0, 2 * lower + upper * math.cos(bend)), 0.03, 0.03, upper, (0, bend, 0)),
    ]


def laptop(draw: Draw) -> list[Solid]:
    """0 keyboard, 1 screen."""
    depth, width, hinge = draw(0.35, 0.5), draw(0.5, 0.7), draw(-0.9, 0.9)
    lid = depth * draw(0.9, 1.0)
    return [
        box(0, (depth, 0, 0), (depth, width, 0.03)),
        box(1, (lid * math.sin(hinge), 0, lid * math.cos(hinge)), (0.02, width, lid), (0, hinge, 0)),
    ]


def motorbike(draw: Draw) -> list[Solid]:
    """0 tank, 1 seat, 2 wheels, 3 handlebar, 4 light, 5 frame."""
    base, wheel, high = draw(0.55, 0.7), draw(0.24, 0.32), draw(0.3, 0.4)
    fork = draw(0.2, 0.5)
    return [
        ball(0, (0.18, 0, high), (0.22, 0.12, 0.12)),
        box(1, (-0.28, 0, high + 0.02), (0.24, 0.1, 0.05), (0, draw(-0.2, 0.2), 0)),
        tube(2, (base, 0, 0), wheel, wheel, 0.06, _FLAT),
        tube(2, (-base, 0, 0), wheel, wheel, 0.06, _FLAT),
        tube(3, (base - fork * 0.5, 0, high + 0.2), 0.03, 0.03, draw(0.22, 0.34), _FLAT),
        ball(4, (base - fork * 0.5 + 0.13, 0, high + 0.06), (0.08, 0.08, 0.08)),
        box(5, (0, 0, 0.1), (base * 0.6, 0.07, 0.14)),
        tube(5, (base - fork * 0.25, 0, high / 2 + 0.05), 0.035, 0.035, high / 2 + 0.1, (0, -fork * 0.6, 0)),
    ]


def mug(draw: Draw) -> list[Solid]:
    """0 handle, 1 cup."""
    radius, height, loop = draw(0.35, 0.5), draw(0.35, 0.6), draw(0.2, 0.3)
    return [
        ring(0, (radius, 0, draw(-0.1, 0.1)), loop, 0.05, _FLAT, arc=math.pi),
        tube(1, (0, 0, 0), radius * draw(0.8, 1.0), radius, height),
    ]


def pistol(draw: Draw) -> list[Solid]:
    """0 barrel, 1 grip, 2 trigger and guard."""
    length, high, grip, lean = draw(0.55, 0.75), draw(0.08, 0.13), draw(0.25, 0.38), draw(0.05, 0.45)
    return [
        box(0, (0, 0, 0), (length, 0.07, high)),
        box(1, (-length + 0.15 - grip * math.sin(lean), 0, -high - grip), (0.12, 0.07, grip), (0, lean, 0)),
        ring(2, (-length + 0.42, 0, -high - 0.05), draw(0.1, 0.15), 0.025, _FLAT),
    ]


def rocket(draw: Draw) -> list[Solid]:
    """0 body, 1 fins, 2 nose."""
    radius, length, nose, fin = draw(0.1, 0.2), draw(0.45, 0.65), draw(0.15, 0.25), draw(0.1, 0.2)
    count = int(draw(3, 5.999))
    around = [2 * math.pi * index / count for index in range(count)]
    reach = radius + fin
    return [
        tube(0, (0, 0, 0), radius, radius, length),
        *(
            box(1, (reach * math.cos(a), reach * math.sin(a), -length * 0.85), (fin, 0.02, fin * 1.2), (0, 0, a))
            for a in around
        ),
        tube(2, (0, 0, length + nose), radius, draw(0, 0.3) * radius, nose),
    ]


def skateboard(draw: Draw) -> list[Solid]:
    """0 wheels, 1 deck, 2 trucks."""
    length, width, wheel = draw(0.6, 0.75), draw(0.2, 0.28), draw(0.06, 0.09)
    lift, axle = draw(0.1, 0.6), length * draw(0.6, 0.8)
    ends = (-1, 1)
    return [
        *(tube(0, (e * axle, s * width * 0.8, -0.17), wheel, wheel, 0.05, _FLAT) for e in ends for s in ends),
        box(1, (0, 0, 0), (length, width, 0.025)),
        *(
            box(1, (e * (length + 0.12), 0, 0.12 * math.sin(lift)), (0.13, width, 0.025), (0, -e * lift, 0))
            for e in ends
        ),
        *(box(2, (e * axle, 0, -0.1), (0.05, width * 0.7, 0.04)) for e in ends),
    ]


def table(draw: Draw) -> list[Solid]:
    """0 top, 1 legs, 2 shelf or drawer (not always)."""
    depth, width, leg, foot = draw(0.35, 0.6), draw(0.5, 0.8), draw(0.25, 0.45), draw(0.03, 0.06)
    top = (
        box(0, (0, 0, 0), (depth, width, 0.04))
        if draw(0, 1) < 0.7
        else tube(0, (0, 0, 0), width * 0.8, width * 0.8, 0.04)
    )
    reach = 0.55 if top.kind == "tube" else 0.88
    solids = [
        top,
        *_sides(
            lambda s: box(1, (reach * depth, s * reach * width, -leg), (foot, foot, leg)),
            lambda s: box(1, (-reach * depth, s * reach * width, -leg), (foot, foot, leg)),
        ),
    ]
    if draw(0, 1) < 0.6:
        solids.append(box(2, (0, 0, -leg * draw(0.3, 1.4)), (0.7 * reach * depth, 0.8 * reach * width, 0.05)))
    return solids


CATEGORIES: tuple[Callable[[Draw], list[Solid]], ...] = (
    airplane,
    bag,
    cap,
    car,
    chair,
    earphone,
    guitar,
    knife,
    lamp,
    laptop,
    motorbike,
    mug,
    pistol,
    rocket,
    skateboard,
    table,
)
"""In ShapeNet's order."""

NAMES = tuple(category.__name__.capitalize() for category in CATEGORIES)
"""As ShapeNet writes them."""

PARTS = (4, 2, 2, 4, 4, 3, 3, 2, 4, 2, 6, 2, 3, 3, 3, 3)
"""Parts of each category; labels count on from one category to the next, 50 in all."""

FIRST = tuple(sum(PARTS[:category]) for category in range(len(PARTS)))
"""Label of each category's first part."""
