"""Selection once more, channel by channel in plain Python, straight from its description.

A *ladder* is the list of the sets of granted channels from the highest sparsity to the lowest, each within the next.
"""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from math import ceil, floor

from ranp.scoring.scores import Scores
from ranp.tracing.trace import Layer, Trace

Granted = set[tuple[str, int]]


def network_ladder(scores: Scores, trace: Trace) -> list[Granted]:
    """Rung k grants k channels, highest score first, equal ones by layer then channel."""
    channels = sorted(
        (-float(scores[layer.name][channel]), index, channel, layer.name)
        for index, layer in enumerate(trace.layers)
        for channel in range(layer.channels)
        if layer.name not in scores.excluded
    )
    return [{(name, channel) for _, _, channel, name in channels[:count]} for count in range(len(channels) + 1)]


def network_rung(ladder: list[Granted], sparsity: float) -> int:
    """floor(n * (1 - sparsity)), guarded against float error."""
    return floor((len(ladder) - 1) * (1 - sparsity) + 1e-9)


def granted_by_layer(scores: Scores, trace: Trace, sparsity: float) -> Granted:
    """ceil(n_l * (1 - sparsity)) channels of each layer, highest score first."""
    result = set()
    for layer in trace.layers:
        order = sorted(range(layer.channels), key=lambda c, name=layer.name: (-float(scores[name][c]), c))
        result |= {(layer.name, channel) for channel in order[: ceil(layer.channels * (1 - sparsity) - 1e-9)]}
    return result


def layer_ladder(scores: Scores, trace: Trace, sparsity: float) -> tuple[list[Granted], int]:
    """All sets that some sparsity grants, and the place of the one that ``sparsity`` does."""
    shares = {channel / layer.channels for layer in trace.layers for channel in range(layer.channels + 1)}
    rungs = [granted_by_layer(scores, trace, 1 - share) for share in sorted(shares)]
    here = granted_by_layer(scores, trace, sparsity)
    return rungs, next(index for index, rung in enumerate(rungs) if rung == here)


def kept_channels(
    scores: Scores,
    trace: Trace,
    ladder: list[Granted],
    rung: int,
    *,
    tie: str = "max",
    keep: tuple[str, ...] = (),
    min_channels: int = 1,
    round_to: int = 1,
    sparsity: float = 0.0,
) -> dict[str, tuple[int, ...]] | None:
    """What every layer keeps, or None if something would be empty, or nothing may go though something shall."""
    whole = {layer.name for layer in trace.layers if any(fnmatchcase(layer.name, pattern) for pattern in keep)}
    whole |= set(scores.excluded)
    members: dict[int, list[Layer]] = defaultdict(list)
    for layer in trace.layers:
        for number in sorted(set(layer.classes.tolist()) - {0}):
            members[number].append(layer)
    entry_of = {int(c): e for e, entry in enumerate(trace.pieces) for piece in entry for c in piece}

    def free(number: int) -> bool:
        layers = members.get(number, [])
        return number != 0 and any(la.votes for la in layers) and not any(la.name in whole for la in layers)

    def places(layer: Layer, number: int) -> list[int]:
        return [channel for channel in range(layer.channels) if layer.classes[channel] == number]

    score = {
        number: max(float(scores[la.name][c]) for la in layers if la.votes for c in places(la, number))
        for number, layers in members.items()
        if free(number)
    }
    if sparsity > 0 and not score:
        return None
    blocks: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number in score:
        blocks[(*(layer.name for layer in members[number]), entry_of.get(number))].append(number)

    def enough(layer: Layer, ranked: list[int], granted: Granted) -> int:
        """How many classes it takes to give the layer as many channels as it was granted."""
        missing = sum((layer.name, c) in granted for n in ranked for c in places(layer, n))
        count = 0
        while missing > 0:
            missing -= len(places(layer, ranked[count]))
            count += 1
        return count

    def chosen_at(granted: Granted) -> set[int]:
        result: set[int] = set()
        for numbers in blocks.values():
            voters = [layer for layer in members[numbers[0]] if layer.votes]
            has = {
                layer.name: {n for n in numbers if any((layer.name, c) in granted for c in places(layer, n))}
                for layer in voters
            }
            ranked = sorted(numbers, key=lambda c: (-score[c], c))
            count = max(enough(layer, ranked, granted) for layer in voters)
            result |= set(ranked[:count]) if tie == "max" else set().union(*has.values())
        return result

    need = dict.fromkeys(score, len(ladder))
    for index in reversed(range(len(ladder))):
        for number in chosen_at(ladder[index]):
            need[number] = index
    order = {number: (need[number], -score[number], number) for number in score}

    wanted = {number for number in score if need[number] <= rung}
    final = set(wanted)
    for signature, numbers in blocks.items():
        if signature[-1] is None:
            width = ceil(max(len(wanted & set(numbers)), min_channels) / round_to) * round_to
            final |= set(sorted(numbers, key=order.__getitem__)[:width])
    for entry in trace.pieces:
        forced = [sum(not free(int(c)) for c in piece) for piece in entry]
        total = sum(forced) + sum(int(c) in wanted for piece in entry for c in piece)
        share = max(ceil(total / len(entry)), *forced)
        count = max(share, 1)
        while count < len(entry[0]) and (count * len(entry) < min_channels or count * len(entry) % round_to):
            count += 1
        for piece in entry:
            ranked = sorted((int(c) for c in piece), key=lambda c: order[c] if free(c) else (-1, 0.0, c))
            wanted = wanted - set(ranked) | set(ranked[:share])
            final = final - set(ranked) | set(ranked[:count])

    def stays(number: int, chosen: set[int]) -> bool:
        return not free(number) or number in chosen

    for array in [layer.classes for layer in trace.layers] + list(trace.dims.values()):
        if not any(stays(int(c), wanted) for c in array):
            return None
    return {
        layer.name: tuple(c for c in range(layer.channels) if stays(int(layer.classes[c]), final))
        for layer in trace.layers
    }
