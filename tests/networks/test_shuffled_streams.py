"""ShuffleNetV2's units in a row, where halves are shuffled again and again: which choices of channels can be right?

What is cut must be right. And for a small stream all ordered choices are tried: there are more widths than are cut, but
no choice of one lies within a choice of the next, so that no order of channels, however it is made, leads through them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ranp
from tests.support.oracles import random_scores
from tests.support.topologies.patterns import shuffled
from tests.support.topologies.topology import Net, conv

Channel = tuple[int, int]
"""Number of its layer, and its number there."""
Choice = tuple[tuple[int, ...], ...]
"""What each layer keeps."""

LAYERS = ("stem", "enter", "first", "second", "third")


def network(width: int, units: int) -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        x = shuffled(torch.cat([x, m.enter(x)], 1), 2)
        for name in LAYERS[2 : 2 + units]:
            passing, worked = x.chunk(2, 1)
            x = shuffled(torch.cat([passing, getattr(m, name)(worked)], 1), 2)
        return m.head(x)

    layers = {name: conv(width, width, 1, dims=2) for name in LAYERS[1 : 2 + units]}
    return Net(body, stem=conv(2, width, dims=2), **layers, head=conv(2 * width, 2, dims=2))


def streams(choice: Choice) -> list[list[Channel]]:
    """What the network shuffles together, step by step, where each layer has these channels."""
    outputs = [[(layer, channel) for channel in kept] for layer, kept in enumerate(choice)]
    found, passing = [], outputs[0]
    for worked in outputs[1:]:
        found.append([channel for pair in zip(passing, worked, strict=True) for channel in pair])
        passing = found[-1][: len(passing)]
    return found


def are_right(slim: list[list[Channel]], full: list[list[Channel]]) -> bool:
    """Whether each stream is the full one less what was removed, and all but the last are halved at the same place."""
    for step, (some, every) in enumerate(zip(slim, full, strict=False)):
        at = [every.index(channel) if channel in every else -1 for channel in some]
        half = len(at) // 2
        if at != sorted(at) or at[0] < 0 or (step + 1 < len(full) and not at[half - 1] < len(every) // 2 <= at[half]):
            return False
    return True


def right_choices(width: int, full: list[list[Channel]]) -> Iterator[Choice]:
    """All that keep so many channels of each layer; two parts that a shuffle deals are equally wide."""
    every = range(len(full[0]) // 2)

    def longer(made: Choice) -> Iterator[Choice]:
        if not are_right(streams(made), full):
            return
        if len(made) > len(full):
            yield made
            return
        for kept in combinations(every, width):
            yield from longer((*made, kept))

    for two in product(combinations(every, width), repeat=2):
        yield from longer(two)


def test_what_is_cut_is_right() -> None:
    width, units = 16, 3
    torch.manual_seed(0)
    model, rng, widths = network(width, units), np.random.default_rng(0), set()
    trace = ranp.trace(model, torch.zeros(1, 2, 3, 3))
    full = streams((tuple(range(width)),) * (2 + units))
    for sparsity in np.linspace(0.0, 0.5, 11):
        plan = ranp.select(random_scores(trace, rng), trace, sparsity=sparsity, exact=True)
        choice = tuple(plan.kept[name] for name in LAYERS[: 2 + units])
        assert are_right(streams(choice), full)
        widths.add(len(choice[0]))
    assert widths == {8, 16}


@pytest.mark.slow
def test_no_order_of_channels_leads_through_all_widths() -> None:
    width, units = 8, 2
    full = streams((tuple(range(width)),) * (2 + units))
    right = {count: list(right_choices(count, full)) for count in range(1, 1 + width)}
    assert [count for count, choices in right.items() if choices] == [1, 2, 3, 4, 5, 6, 8]
    for count, wider in pairwise(range(2, 7)):
        others = [tuple(map(set, choice)) for choice in right[wider]]
        within = (all(set(a) <= b for a, b in zip(one, other, strict=True)) for one in right[count] for other in others)
        assert not any(within), count
