"""Scopes: layer-wise and random NP against the paper's tables, SNIP NP against brute force, scopes of your own."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranp.choosing.plan import Plan
from ranp.choosing.selection import max_sparsity, select
from ranp.errors import InfeasibleError, PlanMismatchError
from ranp.scoring.scores import Scores
from ranp.tracing.trace import Trace
from tests.support import traces
from tests.support.traces import Wiring, chain, inverted, random_scores, random_trace, residual, scores_of

MEGABYTE = 1024**2 / 4

# ---------------------------------------------------------------- the paper's tables

UNET = (32, 64, 64, 128, 128, 256, 256, 512, 256, 256, 128, 128, 64, 64)


def unet3d(widths: tuple[int, ...] = UNET, classes: int = 50) -> Trace:
    """The 15-layer 3D-UNet: four levels down, three up, skips concatenated first."""
    wiring, skips, x, names = Wiring(), [], None, iter(range(len(widths)))
    for _ in range(4):
        for index in (next(names), next(names)):
            x = wiring.conv(f"conv{index}", x, widths[index])
        skips.append(x)
    x = skips.pop()
    for _ in range(3):
        x = np.concatenate([skips.pop(), x])
        for index in (next(names), next(names)):
            x = wiring.conv(f"conv{index}", x, widths[index])
    wiring.output("final", x, classes)
    return wiring.trace()


def unet3d_row(plan: Plan, *, inputs: int, size: int, softmax: bool) -> tuple[str, str, str]:
    """Parameters, multiply-adds and memory in the paper's convention, from the widths alone."""
    widths = [plan.widths[f"conv{index}"] for index in range(14)]
    reads = [inputs, *widths[:7], widths[5] + widths[7], widths[8], widths[3] + widths[9], widths[10]]
    reads += [widths[1] + widths[11], widths[12]]
    voxels = [(size // 2**level) ** 3 for level in (0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 1, 1, 0, 0)]
    classes, last = plan.widths["final"], widths[13]
    params = sum(27 * i * o + 2 * o for i, o in zip(reads, widths, strict=True)) + last * classes + classes
    flops = sum((27 * i + 4) * o * v for i, o, v in zip(reads, widths, voxels, strict=True))
    flops += (last + 1) * classes * voxels[0] + (3 * classes - 1) * softmax
    memory = sum(3 * o * v for o, v in zip(widths, voxels, strict=True)) + (1 + softmax) * classes * voxels[0]
    memory += sum(widths[index] * voxels[index + 1] for index in (1, 3, 5))
    return f"{params / MEGABYTE:.2f}", f"{flops / 1e9:.2f}", f"{memory / MEGABYTE:.2f}"


STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenetv2() -> Trace:
    """MobileNetV2-3D: depthwise layers follow, projections of one residual chain share their channels."""
    wiring = Wiring()
    x, number = wiring.conv("stem", None, 32), 0
    for expansion, width, repeats, stride in STAGES:
        for repeat in range(repeats):
            wide = x if expansion == 1 else wiring.conv(f"expand{number}", x, expansion * len(x))
            wiring.depthwise(f"depthwise{number}", wide)
            added = repeat > 0 or (stride == 1 and len(x) == width)
            x = wiring.conv(f"project{number}", wide, x if added else width)
            number += 1
    wiring.output("classifier", wiring.conv("head", x, 1280), 101)
    return wiring.trace()


def mobilenetv2_row(plan: Plan) -> tuple[str, str, str]:
    """As ``unet3d_row``, for clips of 16 frames of 112 x 112."""
    widths, size, number = plan.widths, (16, 56, 56), 0
    voxels, x = prod(size), widths["stem"]
    params, flops, memory = (81 + 2) * x, (81 + 4) * x * voxels, 3 * x * voxels
    for expansion, _, repeats, stride in STAGES:
        for repeat in range(repeats):
            wide, out = widths[f"depthwise{number}"], widths[f"project{number}"]
            if expansion > 1:
                params, flops, memory = (
                    params + (x + 2) * wide,
                    flops + (x + 4) * wide * voxels,
                    memory + 3 * wide * voxels,
                )
            if repeat == 0 and stride == 2:
                size = tuple(-(-length // 2) for length in size)
                voxels = prod(size)
            params += (27 + 2) * wide + (wide + 2) * out
            flops += ((27 + 4) * wide + (wide + 4) * out) * voxels
            memory += (3 * wide + 2 * out) * voxels
            x, number = out, number + 1
    head, classes = widths["head"], widths["classifier"]
    params += (x + 2) * head + (head + 1) * classes
    flops += (x + 4) * head * voxels + 2 * head * classes
    memory += 3 * head * voxels + head + classes
    return f"{params / MEGABYTE:.2f}", f"{flops / 1e9:.2f}", f"{memory / MEGABYTE:.2f}"


@pytest.mark.parametrize(
    ("scope", "row"), [("layer", ("2.99", "11.63", "296.22")), ("random", ("3.05", "10.36", "267.95"))]
)
def test_shapenet_rows_of_the_paper(scope: str, row: tuple[str, str, str]) -> None:
    trace = unet3d()
    plan = select(random_scores(trace, 0, spread=0), trace, sparsity=0.782, scope=scope)
    assert unet3d_row(plan, inputs=1, size=64, softmax=True) == row


@pytest.mark.parametrize(
    ("scope", "row"), [("layer", ("0.75", "24.09", "836.88")), ("random", ("0.75", "22.59", "817.59"))]
)
def test_brats_rows_of_the_paper(scope: str, row: tuple[str, str, str]) -> None:
    trace = unet3d(tuple(width // 2 for width in UNET), classes=5)
    plan = select(random_scores(trace, 0, spread=0), trace, sparsity=0.7817, scope=scope)
    assert unet3d_row(plan, inputs=4, size=128, softmax=False) == row


@pytest.mark.parametrize(
    ("scope", "row"),
    # The paper prints 4.56 MB for layer-wise NP; one channel more in one of the last layers, such as a kept tie, makes
    # that difference of 0.0003 MB. The random row and the other figures are the paper's.
    [("layer", ("4.55", "0.33", "106.92")), ("random", ("4.58", "0.34", "106.68"))],
)
def test_mobilenetv2_rows_of_the_paper(scope: str, row: tuple[str, str, str]) -> None:
    trace = mobilenetv2()
    scores = random_scores(trace, 0, spread=0)
    assert trace.channels == 17157
    assert mobilenetv2_row(select(scores, trace, sparsity=0, scope=scope)) == ("9.47", "0.58", "157.47")
    plan = select(scores, trace, sparsity=0.3315, scope=scope)
    assert mobilenetv2_row(plan) == row
    assert plan.widths["depthwise5"] == plan.widths["expand5"]
    assert plan.kept["project4"] == plan.kept["project5"]


def test_random_removes_what_the_recipe_draws() -> None:
    trace = unet3d()
    plan = select(random_scores(trace, 3, spread=0), trace, sparsity=0.4, scope="random", seed=7)
    gone = set(np.random.RandomState(7).choice(2386, floor(2386 * 0.4), replace=False).tolist())
    start = 0
    for layer in trace.layers:
        expected = tuple(c for c in range(layer.channels) if layer.pinned or start + c not in gone)
        assert plan.kept[layer.name] == expected
        start += layer.channels
    other = select(random_scores(trace, 3, spread=0), trace, sparsity=0.4, scope="random", seed=8)
    assert other.kept != plan.kept
    assert plan.settings["seed"] == 7


# ---------------------------------------------------------------- SNIP NP


def weight_scores(trace: Trace, seed: int, *, kernel: int = 2, levels: int = 0, **changes: Any) -> Scores:
    """Per-weight scores; channel scores are their sums."""
    generator = np.random.default_rng(seed)
    weights = {}
    for layer in trace.layers:
        reads = len(trace.dims.get((layer.weight, layer.in_dim), (0,)))
        drawn = generator.random((layer.channels, reads, kernel)) ** 4
        weights[layer.name] = torch.from_numpy(generator.integers(levels, size=drawn.shape) / 1.0 if levels else drawn)
    sums = {name: value.sum((1, 2)).tolist() for name, value in weights.items()}
    return scores_of(trace, sums, weights=weights, criterion="snip", **changes)


def dense_neurons(scores: Scores, trace: Trace, sparsity: float, *, keep: tuple[str, ...] = ()) -> set[tuple[str, int]]:
    """The channels left by SNIP NP, one weight and one channel at a time."""
    whole = {*keep, *scores.excluded}
    numbers = [
        (-float(value), index, place, layer.name)
        for index, layer in enumerate(trace.layers)
        if layer.name not in scores.excluded
        for place, value in enumerate(scores.weights[layer.name].flatten())
    ]
    top = {(name, place) for *_, place, name in sorted(numbers)[: floor(len(numbers) * (1 - sparsity) + 1e-9)]}
    fixed = {int(c) for layer in trace.layers if layer.name in whole for c in layer.classes} | {0}
    fixed |= {int(c) for layer in trace.layers for c in layer.classes} - {
        int(c) for layer in trace.layers if layer.votes for c in layer.classes
    }
    links: dict[str, list[tuple[int, int]]] = {}  # layer -> (output channel, class it reads)
    for layer in trace.layers:
        reads = trace.dims.get((layer.weight, layer.in_dim), np.zeros(1, dtype=np.int64))
        _, inputs, kernel = scores.weights[layer.name].shape
        links[layer.name] = [
            (out, int(reads[i]))
            for out in range(layer.channels)
            for i in range(inputs)
            if int(layer.classes[out]) in fixed
            or any((layer.name, (out * inputs + i) * kernel + j) in top for j in range(kernel))
        ]
    readable = {int(c) for layer in trace.layers for c in trace.dims.get((layer.weight, layer.in_dim), ())}
    alive = {(layer.name, c) for layer in trace.layers for c in range(layer.channels)}
    while True:
        voters = [layer for layer in trace.layers if layer.votes]
        living = fixed | {int(la.classes[c]) for la in voters for c in range(la.channels) if (la.name, c) in alive}
        feeding = [(name, out, number) for name, pairs in links.items() for out, number in pairs if number in living]
        read = {number for name, out, number in feeding if (name, out) in alive}
        after = {
            (layer.name, c)
            for layer in trace.layers
            for c in range(layer.channels)
            if int(layer.classes[c]) in fixed
            or (
                (layer.name, c) in alive
                and int(layer.classes[c]) in living
                and (int(layer.classes[c]) not in readable or int(layer.classes[c]) in read)
                and any(out == c and number in living for out, number in links[layer.name])
            )
        }
        if after == alive:
            return alive
        alive = after


@given(st.integers(0, 2**32 - 1), st.floats(0, 1, exclude_max=True), st.sampled_from([0, 3]), st.booleans())
@settings(max_examples=60)
def test_snip_equals_brute_force(seed: int, sparsity: float, levels: int, keeping: bool) -> None:
    trace = random_trace(seed)
    keep = (trace.layers[seed % len(trace.layers)].name,) if keeping else ()
    excluded = {trace.layers[0].name: "no gradient"} if seed % 5 == 0 and len(trace.layers) > 2 else {}
    scores = weight_scores(trace, seed, levels=levels, excluded=excluded)
    granted = dense_neurons(scores, trace, sparsity, keep=keep)

    def same(_scores: Scores, _trace: Trace, _sparsity: float) -> dict[str, list[bool]]:
        return {la.name: [(la.name, c) in granted for c in range(la.channels)] for la in trace.layers}

    outcomes = []
    scopes: tuple[str | Callable[..., Any], ...] = ("weights", same)
    for scope in scopes:
        try:
            outcomes.append(select(scores, trace, sparsity=sparsity, scope=scope, tie="union", keep=keep).kept)
        except InfeasibleError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


def test_snip_on_a_chain_keeps_the_neurons_with_a_living_weight() -> None:
    trace = chain((3, 3), out=1)
    weights = {
        "conv0": torch.tensor([[[9.0]], [[8.0]], [[1.0]]]),
        "conv1": torch.tensor([[[7.0], [1], [1]], [[1], [1], [6]], [[1], [1], [1]]]),
        "final": torch.tensor([[[0.0], [0], [0]]]),
    }
    scores = scores_of(trace, {}, weights=weights, criterion="snip")
    plan = select(scores, trace, sparsity=1 - 4 / 15, scope="weights")  # 9, 8, 7, 6 survive
    # conv0[2] has no weight, so conv1[1], which reads only it, dies; conv0[1] then has no reader.
    assert plan.kept == {"conv0": (0,), "conv1": (0,), "final": (0,)}


def test_snip_transposed_and_grouped_weights_are_read_by_their_output() -> None:
    wiring = Wiring()
    x = wiring.conv("conv", None, 4)
    y = wiring.new(6)
    layer = traces.Layer("up", "transposed", "up.weight", 1, 0, 2, 6, y)
    wiring.layers.append(layer)
    wiring.output("final", y, 1)
    trace = wiring.trace()
    up = torch.zeros(4, 3, 1)
    up[1, 2] = up[2, 0] = 5.0  # group 0: input 1 to output 2; group 1: input 2 to output 3 + 0
    weights = {"conv": torch.full((4, 1, 1), 9.0), "up": up, "final": torch.zeros(1, 6, 1)}
    plan = select(scores_of(trace, {}, weights=weights), trace, sparsity=1 - 6 / 22, scope="weights")
    assert plan.kept["up"] == (2, 3)
    assert len(x) == 4


def test_snip_at_its_largest_sparsity() -> None:
    trace = residual(6, 4, 2)
    scores = weight_scores(trace, 1)
    best = max_sparsity(scores, trace, scope="weights")
    total = sum(value.numel() for value in scores.weights.values())
    assert select(scores, trace, sparsity=best, scope="weights").sparsity.achieved > 0
    with pytest.raises(InfeasibleError, match="largest feasible sparsity"):
        select(scores, trace, sparsity=best + 1 / total, scope="weights")


def test_snip_needs_weights() -> None:
    trace = chain()
    with pytest.raises(PlanMismatchError, match="criterion='snip'"):
        select(random_scores(trace, 0), trace, sparsity=0.5, scope="weights")


def test_exact_works_for_every_scope() -> None:
    trace = inverted(16, 8)
    scores = weight_scores(trace, 4)
    for scope in ("network", "layer", "random", "weights"):
        plan = select(scores, trace, sparsity=0.3, scope=scope, exact=True)
        assert abs(plan.sparsity.achieved - 0.3) < 0.1, scope


# ---------------------------------------------------------------- scopes of your own


def test_a_function_as_scope_keeps_what_it_grants() -> None:
    trace = chain((4, 4), out=2)

    def every_other(scores: Scores, trace: Trace, sparsity: float) -> dict[str, Any]:
        return {layer.name: np.arange(layer.channels) % 2 == 1 for layer in trace.layers}

    plan = select(random_scores(trace, 0), trace, sparsity=0.5, scope=every_other)
    assert plan.kept == {"conv0": (1, 3), "conv1": (1, 3), "final": (0, 1)}
    assert plan.settings["scope"] == "every_other"


def test_a_function_that_forgets_a_layer_is_named() -> None:
    trace = chain((4, 4))

    def forgets(scores: Scores, trace: Trace, sparsity: float) -> dict[str, Any]:
        return {"conv0": [True] * 4}

    with pytest.raises(PlanMismatchError, match=r"scope 'forgets'.*\(0,\) for layer 'conv1'.*each of its 4 channels"):
        select(random_scores(trace, 0), trace, sparsity=0.5, scope=forgets)
