"""Plans to test with: one of two layers, and ways to draw others."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ranp.choosing.plan import ChannelClasses, Cut, Plan, Sparsity

CLASSES = (1, 2, 3, 4, 5)


def small_plan(**changes: Any) -> Plan:
    """Layer ``a`` keeps three of five channels, which ``b`` reads; ``b`` makes the output."""
    values: dict[str, Any] = {
        "kept": {"a": (0, 2, 3), "b": (0, 1)},
        "channels": {"a": 5, "b": 2},
        "cuts": {"a.weight": {0: Cut(5, (0, 2, 3))}, "b.weight": {1: Cut(5, (0, 2, 3))}},
        "sparsity": Sparsity(0.3, 2, 7, 5),
        "settings": {"method": "ranp-f", "keep": ("x", "y"), "nested": {"pair": (1, 2)}},
        "notes": ("'b': makes the model's output",),
        "classes": ChannelClasses({"a": CLASSES}, {"a.weight": {0: CLASSES}, "b.weight": {1: CLASSES}}),
    }
    return Plan(**{**values, **changes})


def cut_plan(**kept: tuple[int, ...]) -> Plan:
    """Layers of four, six and three channels; those that are not named keep all."""
    channels = {"a": 4, "b": 6, "head": 3}
    whole = {name: kept.get(name, tuple(range(count))) for name, count in channels.items()}
    return Plan(whole, channels, {}, Sparsity(0.5, 0, 13, 10))


@st.composite
def indices(draw: st.DrawFn) -> tuple[int, tuple[int, ...]]:
    """A size, and increasing indices below it."""
    size = draw(st.integers(1, 60))
    return size, tuple(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1))))


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans that know nothing of classes."""
    layers = draw(st.dictionaries(names, indices(), max_size=4))
    cuts = draw(st.dictionaries(names, st.dictionaries(st.integers(0, 4), indices(), min_size=1), max_size=4))
    kept = {layer: keep for layer, (_, keep) in layers.items()}
    channels = {layer: size for layer, (size, _) in layers.items()}
    total = sum(channels.values())
    removed = total - sum(map(len, kept.values()))
    return Plan(
        kept,
        channels,
        {name: {dim: Cut(*cut) for dim, cut in by_dim.items()} for name, by_dim in cuts.items()},
        Sparsity(draw(st.floats(0, 0.99)), removed, total, total, draw(st.sampled_from(["channels", "prunable"]))),
        draw(st.dictionaries(names, st.none() | st.integers() | st.floats(-9, 9) | st.lists(names))),
        tuple(draw(st.lists(names))),
    )


@st.composite
def places(draw: st.DrawFn) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """For a few layers the class of each channel and what is kept, at odds with one another or not."""
    stays = draw(st.lists(st.booleans(), min_size=1, max_size=5))
    stays[0] = True
    found = {}
    for name in "abc"[: draw(st.integers(1, 3))]:
        classes = tuple(draw(st.lists(st.integers(0, len(stays) - 1), min_size=1, max_size=6)))
        keep = {at for at, number in enumerate(classes) if stays[number]}
        if draw(st.integers(0, 3)) == 0:
            keep ^= {draw(st.integers(0, len(classes) - 1))}
        found[name] = (classes, tuple(sorted(keep or {0})))
    used = {number: at for at, number in enumerate(sorted({0, *(n for classes, _ in found.values() for n in classes)}))}
    return {name: (tuple(used[number] for number in classes), keep) for name, (classes, keep) in found.items()}
