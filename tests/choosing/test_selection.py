"""Step 5: against brute force, the closed form against bisection, and what must hold of every plan."""

from __future__ import annotations

import dataclasses
import re
from math import nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import ranp
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection, max_sparsity, select
from ranp.errors import InfeasibleError, PlanMismatchError, UnsupportedError
from ranp.scoring.scores import Scores
from ranp.tracing.trace import Trace
from tests.support import selection_oracle as oracle
from tests.support import traces
from tests.support.traces import (
    chain,
    grouped,
    inverted,
    random_scores,
    random_trace,
    repeated,
    residual,
    scores_of,
    split,
)

seeds = st.integers(0, 2**32 - 1)
fractions = st.floats(0, 1, exclude_max=True)
ties = st.sampled_from(["max", "union"])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Trace, Scores]:
    trace = random_trace(draw(seeds))
    excluded = {}
    if draw(st.booleans()) and len(trace.layers) > 2:
        excluded = {draw(st.sampled_from([layer.name for layer in trace.layers])): "no gradient"}
    return trace, random_scores(trace, draw(seeds), levels=draw(st.sampled_from([0, 0, 3])), excluded=excluded)


def attempt(scores: Scores, trace: Trace, **options: Any) -> Plan | None:
    try:
        return select(scores, trace, **options)
    except InfeasibleError:
        return None


@given(problems(), fractions, ties, st.integers(1, 4), st.integers(1, 4), st.booleans(), st.data())
@settings(max_examples=200)
def test_select_equals_brute_force(
    problem: tuple[Trace, Scores],
    sparsity: float,
    tie: str,
    min_channels: int,
    round_to: int,
    layerwise: bool,
    data: st.DataObject,
) -> None:
    trace, scores = problem
    keep = tuple(data.draw(st.lists(st.sampled_from([layer.name for layer in trace.layers]), max_size=1)))
    if layerwise:
        ladder, rung = oracle.layer_ladder(scores, trace, sparsity)
    else:
        ladder = oracle.network_ladder(scores, trace)
        rung = oracle.network_rung(ladder, sparsity)
    options: dict[str, Any] = {"tie": tie, "keep": keep, "min_channels": min_channels, "round_to": round_to}
    expected = oracle.kept_channels(scores, trace, ladder, rung, sparsity=sparsity, **options)
    plan = attempt(scores, trace, sparsity=sparsity, scope="layer" if layerwise else "network", **options)
    assert (plan and plan.kept) == expected


@given(problems(), ties, st.sampled_from(["network", "layer", "random"]))
@settings(max_examples=50)
def test_closed_form_equals_bisection(problem: tuple[Trace, Scores], tie: str, scope: str) -> None:
    trace, scores = problem
    best = max_sparsity(scores, trace, tie=tie, scope=scope)
    assert attempt(scores, trace, sparsity=best, tie=tie, scope=scope) is not None
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        feasible = attempt(scores, trace, sparsity=middle, tie=tie, scope=scope) is not None
        low, high = (middle, high) if feasible else (low, middle)
    count = trace.channels - sum(trace.layer(name).channels for name in scores.excluded)
    assert best <= low + 1e-5
    assert low - best <= 1 / max(count, 1) + 1e-5
    stuck = Selection.of(scores, trace, tie=tie, scope=scope).coupling.stuck
    if scope != "layer" and best + 1 / count < 1 and not stuck:
        message = re.compile(r"The largest feasible sparsity here is (\d\.\d{4})\.")
        with pytest.raises(InfeasibleError, match=message) as refused:
            select(scores, trace, sparsity=best + 1 / count, tie=tie, scope=scope)
        stated = float(message.search(str(refused.value)).group(1))  # type: ignore[union-attr]
        assert best - 1e-4 < stated + 1e-12
        assert stated <= best + 1e-12
        assert attempt(scores, trace, sparsity=stated, tie=tie, scope=scope) is not None


@given(problems(), fractions, fractions, ties, st.sampled_from(["network", "layer", "random"]))
@settings(max_examples=50)
def test_a_higher_sparsity_keeps_a_subset(
    problem: tuple[Trace, Scores], one: float, other: float, tie: str, scope: str
) -> None:
    trace, scores = problem
    low, high = sorted((one, other))
    options: dict[str, Any] = {"tie": tie, "scope": scope, "round_to": 2}
    more, fewer = (attempt(scores, trace, sparsity=value, **options) for value in (low, high))
    assume(fewer is not None)
    assert more is not None and fewer is not None  # what is feasible at a sparsity is so at a lower one  # noqa: PT018
    for layer, kept in fewer.kept.items():
        assert set(kept) <= set(more.kept[layer])


@given(problems(), fractions, ties, st.booleans())
@settings(max_examples=100)
def test_a_plan_is_consistent_with_its_trace(
    problem: tuple[Trace, Scores], sparsity: float, tie: str, exact: bool
) -> None:
    trace, scores = problem
    most = 1.0 if exact else max_sparsity(scores, trace, tie=tie)
    plan = attempt(scores, trace, sparsity=sparsity * most, tie=tie, exact=exact)
    assume(exact is False or plan is not None)
    assert plan is not None
    gone = {
        int(layer.classes[channel])
        for layer in trace.layers
        for channel in range(layer.channels)
        if channel not in plan.kept[layer.name]
    }
    assert 0 not in gone
    for layer in trace.layers:
        assert plan.kept[layer.name] == tuple(c for c in range(layer.channels) if int(layer.classes[c]) not in gone)
    assert plan.cuts.keys() <= {name for name, _ in trace.dims}
    for (name, dim), classes in trace.dims.items():
        keep = tuple(index for index, number in enumerate(classes.tolist()) if number not in gone)
        cut = plan.cuts.get(name, {}).get(dim)
        assert (cut.keep if cut else tuple(range(len(classes)))) == keep
        assert cut is None or (cut.size == len(classes) > len(keep))
    for entry in trace.pieces:
        assert len({sum(int(number) not in gone for number in piece) for piece in entry}) == 1
    assert plan.sparsity.removed == trace.channels - sum(plan.widths.values())
    assert plan.sparsity.channels == trace.channels


@given(problems(), fractions, ties, st.integers(1, 3))
@settings(max_examples=50)
def test_exact_is_as_near_as_any_threshold(
    problem: tuple[Trace, Scores], sparsity: float, tie: str, round_to: int
) -> None:
    trace, scores = problem
    options: dict[str, Any] = {"tie": tie, "round_to": round_to}
    count = trace.channels - sum(trace.layer(name).channels for name in scores.excluded)
    plans = [attempt(scores, trace, sparsity=1 - budget / count, **options) for budget in range(1, count + 1)]
    removed = [plan.sparsity.removed for plan in plans if plan]
    plan = attempt(scores, trace, sparsity=sparsity, exact=True, **options)
    target = sparsity * sum(
        int(np.count_nonzero(layer.classes)) for layer in trace.layers if layer.name not in scores.excluded
    )
    if plan is None:
        assert target > max(removed, default=0)
    else:
        nearest = min((abs(value - target) for value in removed), default=target)
        assert abs(plan.sparsity.removed - target) <= nearest + 1e-9
        assert plan.sparsity.achieved == plan.sparsity.of_prunable


@pytest.mark.parametrize(
    ("target", "plain", "kept"),
    [
        # Three channels of the stream and ten others go first (70), then one of the stream would (90).
        pytest.param(80, [0.35] * 10 + [7.0] * 30, (3, 20), id="a large step stays, smaller ones after it go"),
        # All others but one go first (39), then the stream's (59, 79).
        pytest.param(68, [0.01] * 39 + [0.02], (4, 12), id="a large step goes, smaller ones before it stay"),
    ],
)
def test_exact_makes_up_for_steps_that_are_too_large(target: int, plain: list[float], kept: tuple[int, int]) -> None:
    wiring = traces.Wiring()
    stream = wiring.conv("stem", None, 6)
    for number in range(19):
        wiring.conv(f"added{number}", stream, stream)  # so one channel of the stream is 20 of all 160
    wiring.output("last", wiring.conv("plain", stream, 40), 2)
    trace = wiring.trace()
    added = {layer.name: [0.1, 0.2, 0.3, 5.0, 6.0, 9.0] for layer in trace.layers if layer.channels == 6}
    plan = select(scores_of(trace, {**added, "plain": plain, "last": [1, 1]}), trace, sparsity=target / 160, exact=True)
    assert plan.sparsity.removed == target
    assert (plan.widths["stem"], plan.widths["plain"]) == kept
    assert plan.kept["stem"] == tuple(range(6 - kept[0], 6))


def test_exact_states_the_largest_share_it_can_reach() -> None:
    trace = chain((10, 10))
    scores = random_scores(trace, 3)
    with pytest.raises(InfeasibleError, match="largest feasible share of prunable channels here is") as refused:
        select(scores, trace, sparsity=0.999, exact=True)
    stated = float(re.search(r"here is (\d\.\d{4})", str(refused.value)).group(1))  # type: ignore[union-attr]
    plan = select(scores, trace, sparsity=stated, exact=True)
    assert abs(plan.sparsity.achieved - stated) <= 0.05


@given(problems(), fractions, ties)
@settings(max_examples=50)
def test_exact_leaves_every_layer_and_tensor_something(
    problem: tuple[Trace, Scores], sparsity: float, tie: str
) -> None:
    trace, scores = problem
    plan = attempt(scores, trace, sparsity=sparsity, tie=tie, exact=True)
    assume(plan is not None)
    assert plan is not None
    assert all(plan.widths.values())
    assert all(cut.keep for cuts in plan.cuts.values() for cut in cuts.values())


def test_exact_reaches_its_share_though_a_layer_scores_lowest_throughout() -> None:
    trace = chain((10, 10), out=2)
    scores = scores_of(trace, {"conv0": [1e-9] * 10, "conv1": list(range(1, 11)), "final": [1, 1]})
    with pytest.raises(InfeasibleError, match="or exact=True"):
        select(scores, trace, sparsity=0.6)
    plan = select(scores, trace, sparsity=0.6, exact=True)
    assert plan.widths == {"conv0": 1, "conv1": 7, "final": 2}


# ---------------------------------------------------------------- small cases, by hand


def test_threshold_keeps_exactly_k_with_ties_in_layer_then_channel_order() -> None:
    trace = chain((3, 3), out=2)
    plan = select(scores_of(trace, {}), trace, sparsity=0.5)  # 8 equal scores, 4 granted: three of conv0, one of conv1
    assert plan.kept == {"conv0": (0, 1, 2), "conv1": (0,), "final": (0, 1)}
    assert plan.sparsity.removed == 2
    assert plan.sparsity.achieved == 2 / 8
    assert plan.sparsity.of_prunable == 2 / 6
    assert list(plan.cuts["conv1.weight"]) == [0]
    assert plan.cuts["norm1.running_var"][0].keep == (0,)
    assert plan.cuts["final.weight"] == {1: plan.cuts["conv1.weight"][0]}
    assert plan.notes == ("final: makes the model's output",)


def test_the_hungriest_member_decides_how_many_and_the_best_scores_which() -> None:
    trace = residual(width=4, inner=2, blocks=1)
    scores = scores_of(trace, {"stem": [9, 8, 1, 1], "inner0": [7, 7], "outer0": [1, 1, 20, 1], "final": [6, 6]})
    half = select(scores, trace, sparsity=0.5)  # 12 channels, 6 granted: outer0[2], stem[0, 1], inner0, final[0]
    assert half.kept["stem"] == half.kept["outer0"] == (0, 2)
    assert select(scores, trace, sparsity=0.5, tie="union").kept["stem"] == (0, 1, 2)


def test_depthwise_has_no_vote_and_follows() -> None:
    trace = inverted(width=4, narrow=2)
    scores = scores_of(
        trace,
        {"expand0": [1, 5, 1, 1], "depthwise0": [90, 1, 90, 90], "expand1": [5, 1, 1, 1], "stem": [5, 1]},
    )
    plan = select(scores, trace, sparsity=1 - 6 / 24)
    assert plan.kept["expand0"] == plan.kept["depthwise0"] == (1,)


def test_a_layer_without_any_vote_is_kept_whole_with_its_reason() -> None:
    wiring = traces.Wiring()
    x = wiring.conv("alone", None, 3, votes=False)
    wiring.output("final", wiring.conv("conv", x, 4), 1)
    trace = wiring.trace()
    plan = select(random_scores(trace, 0), trace, sparsity=0.6)
    assert plan.kept["alone"] == (0, 1, 2)
    assert any(note.startswith("alone: ") for note in plan.notes)


def test_infeasible_names_the_layer_and_the_way_out() -> None:
    trace = chain((3, 3), out=2)
    scores = scores_of(trace, {"conv0": [1, 2, 3], "conv1": [10, 20, 30], "final": [40, 50]})
    assert max_sparsity(scores, trace) == pytest.approx(1 - 6 / 8)
    with pytest.raises(InfeasibleError) as refused:
        select(scores, trace, sparsity=0.5)
    assert str(refused.value) == (
        "sparsity=0.5 removes all 3 channels of 'conv0'. The largest feasible sparsity here is 0.2500. "
        "Lower it, pass keep=['conv0'], or exact=True, so that every layer keeps a channel."
    )
    assert select(scores, trace, sparsity=0.5, keep=["conv0"]).widths == {"conv0": 3, "conv1": 2, "final": 2}


def test_a_tensor_that_would_be_empty_is_infeasible_too() -> None:
    trace = split(8)
    high = {"partner": [9.0] * 4, "first": [9.0] * 3, "second": [9.0] * 3}
    scores = scores_of(trace, {"both": [9, 9, 9, 9, 0, 0, 0, 0], **high})
    with pytest.raises(InfeasibleError, match=r"dimension 1 of 'second\.weight', 4 channels of 'both'"):
        select(scores, trace, sparsity=0.4)
    assert select(scores, trace, sparsity=max_sparsity(scores, trace)).kept["both"][-1] >= 4


def test_split_layers_share_only_the_part_that_is_added() -> None:
    trace = split(8)
    plan = select(random_scores(trace, 5), trace, sparsity=0.3)
    first_half = tuple(channel for channel in plan.kept["both"] if channel < 4)
    assert plan.kept["partner"] == first_half


def test_a_class_that_is_held_twice_keeps_both_places() -> None:
    trace = repeated(4)
    for twice, kept in (([1, 9, 1, 1, 8, 1, 1, 1], (0,)), ([9, 9, 1, 1, 8, 1, 1, 1], (0,))):
        plan = select(scores_of(trace, {"twice": twice, "once": [1] * 4}), trace, sparsity=1 - 2 / 14)
        assert plan.kept["once"] == kept
        assert plan.kept["twice"] == tuple(place for channel in kept for place in (2 * channel, 2 * channel + 1))


def test_widths_are_bounded_and_rounded_by_channels_where_several_go_at_once() -> None:
    model = nn.Sequential(nn.Conv2d(1, 24, 1), nn.GroupNorm(8, 24), nn.Conv2d(24, 2, 1))
    trace = ranp.trace(model, torch.zeros(1, 1, 4, 4))  # eight groups of three
    scores = Scores({"0": torch.arange(1.0, 25.0), "2": torch.ones(2)})

    def width(**options: int) -> int:
        return select(scores, trace, sparsity=1 - 4 / 26, **options).widths["0"]

    assert width() == 6
    assert [width(min_channels=least) for least in (6, 7, 9, 10)] == [6, 9, 9, 12]
    assert [width(round_to=multiple) for multiple in (2, 3, 4, 6, 9)] == [6, 6, 12, 6, 9]


def test_pieces_keep_equal_numbers_and_reach_the_sparsity() -> None:
    trace = grouped(12, 3)
    scores = scores_of(trace, {"conv": list(range(1, 13)), "final": [0, 0]})
    plan = select(scores, trace, sparsity=1 - 5 / 14)  # 5 granted, all in the last two pieces: 2 in each of three
    assert plan.kept["conv"] == (2, 3, 6, 7, 10, 11)
    assert select(scores, trace, sparsity=0.8, round_to=4).widths["conv"] == 12
    assert select(scores, trace, sparsity=0.8, min_channels=4).widths["conv"] == 6


def test_pieces_over_several_layers_share_what_the_layers_were_granted() -> None:
    trace = grouped(12, 3, also=6)
    scores = scores_of(trace, {"conv": list(range(1, 13)), "other": [0.6, 0.5, 0.4, 0.3, 0.2, 0.1], "final": [0, 0]})
    plan = select(scores, trace, sparsity=1 - 4 / 20)  # 4 granted, all to the second piece
    assert plan.kept["conv"] == (4, 5, 10, 11)
    assert plan.kept["other"] == (0, 1)


def test_what_must_stay_raises_every_piece() -> None:
    wiring = traces.Wiring()
    x = wiring.conv("conv", None, 6)
    y = wiring.conv("fixed", None, np.zeros(2, dtype=np.int64))
    wiring.equal_pieces(np.concatenate([x, y]), 2)
    wiring.output("final", np.concatenate([x, y]), 1)
    trace = wiring.trace()
    plan = select(scores_of(trace, {"conv": [6, 5, 4, 3, 2, 1]}), trace, sparsity=0.7)
    assert plan.widths["conv"] == 2  # (0..3) keeps two, (4, 5, pinned, pinned) its two pinned ones
    assert plan.kept["conv"] == (0, 1)


def test_unequal_pieces_are_left_alone() -> None:
    wiring = traces.Wiring()
    x = wiring.conv("conv", None, 5)
    wiring.pieces.append((x[:2], x[2:]))
    wiring.output("final", x, 1)
    assert select(random_scores(wiring.trace(), 0), wiring.trace(), sparsity=0.5).widths["conv"] == 5


def test_widths_are_bounded_and_rounded_up_but_never_above_the_original() -> None:
    trace = chain((5, 16), out=2)
    scores = scores_of(trace, {"conv0": [9, 1, 1, 1, 1], "conv1": [8] * 3 + [1] * 13, "final": [0, 0]})
    widths = {
        (low, multiple): select(scores, trace, sparsity=1 - 4 / 23, min_channels=low, round_to=multiple).widths
        for low, multiple in ((1, 1), (4, 1), (1, 4), (6, 4), (1, 8))
    }
    assert [(found["conv0"], found["conv1"]) for found in widths.values()] == [(1, 3), (4, 4), (4, 4), (5, 8), (5, 8)]


def test_excluded_layers_are_kept_whole_and_not_counted() -> None:
    trace = chain((4, 4), out=2)
    scores = scores_of(trace, {"conv0": [0] * 4, "conv1": [4, 3, 2, 1]}, excluded={"conv0": "no gradient reaches it"})
    plan = select(scores, trace, sparsity=0.5)  # of 6: 3 granted
    assert plan.kept == {"conv0": (0, 1, 2, 3), "conv1": (0, 1, 2), "final": (0, 1)}
    assert "conv0: no gradient reaches it" in plan.notes
    assert plan.sparsity.prunable == 4


def test_layers_coupled_with_a_kept_one_are_kept_and_say_so() -> None:
    trace = residual()
    plan = select(random_scores(trace, 1, spread=0), trace, sparsity=0.4, keep=["stem"])
    assert plan.widths["outer0"] == 6
    assert "stem: kept by request (stem)" in plan.notes
    assert "outer0: coupled with a layer that is kept whole" in plan.notes


def test_where_nothing_may_go_a_sparsity_is_refused_with_the_reason() -> None:
    wiring = traces.Wiring()
    wiring.output("final", np.zeros(3, dtype=np.int64), 4)
    trace = wiring.trace()
    scores = random_scores(trace, 0)
    assert max_sparsity(scores, trace) == 0
    plan = select(scores, trace, sparsity=0)
    assert plan.cuts == {}
    assert plan.sparsity.achieved == 0
    for exact in (False, True):
        with pytest.raises(
            InfeasibleError,
            match=r"sparsity=0\.5 cannot be met: no channel .* \(4 channels: makes the model's output\)",
        ):
            select(scores, trace, sparsity=0.5, exact=exact)


@pytest.mark.parametrize("scope", ["network", "layer", "random"])
def test_a_network_kept_whole_by_request_is_no_answer_to_a_sparsity(scope: str) -> None:
    trace = random_trace(3)
    scores = random_scores(trace, 3)
    assert max_sparsity(scores, trace, keep="*", scope=scope) == 0
    assert select(scores, trace, sparsity=0, keep="*", scope=scope).sparsity.removed == 0
    with pytest.raises(InfeasibleError, match=r"no channel .* kept by request \(\*\)\).*keep="):
        select(scores, trace, sparsity=0.4, keep=["*"], scope=scope)


def test_large_class_numbers_mean_the_same_as_small_ones() -> None:
    trace = random_trace(8)
    far = dataclasses.replace(
        trace,
        layers=tuple(dataclasses.replace(layer, classes=layer.classes * 10**15) for layer in trace.layers),
        dims={key: classes * 10**15 for key, classes in trace.dims.items()},
        pieces=tuple(tuple(piece * 10**15 for piece in entry) for entry in trace.pieces),
    )
    scores = random_scores(trace, 8)
    sparsity = max_sparsity(scores, trace)
    assert select(scores, trace, sparsity=sparsity) == select(scores, far, sparsity=sparsity)


def test_prepared_once_gives_the_same_plans() -> None:
    trace = residual(32, 16, 4)
    scores = random_scores(trace, 2, spread=0)
    prepared = Selection.of(scores, trace)
    for sparsity in (0.0, 0.2, prepared.max_sparsity()):
        assert prepared.plan(sparsity).kept == select(scores, trace, sparsity=sparsity).kept
    assert prepared.feasible(prepared.max_sparsity())


def test_the_plan_remembers_how_it_was_made_and_survives_the_disk(tmp_path: Any) -> None:
    trace = inverted()
    scores = random_scores(trace, 0)
    plan = select(scores, trace, sparsity=0.3, keep=("stem",), settings={"method": "vanilla", "seed": 7})
    assert plan.settings["method"] == "vanilla"
    assert plan.settings["seed"] == 7
    assert plan.settings["keep"] == ["stem"]
    assert {"criterion", "stage", "scope", "tie", "exact", "batches"} <= plan.settings.keys()
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


def test_select_does_not_touch_scores_or_trace() -> None:
    trace = residual()
    scores = random_scores(trace, 0, spread=0)
    values = {name: scores[name].clone() for name in scores}
    classes = [layer.classes.copy() for layer in trace.layers]
    select(scores, trace, sparsity=0.4, round_to=2)
    assert all((scores[name] == value).all() for name, value in values.items())
    assert all((layer.classes == before).all() for layer, before in zip(trace.layers, classes, strict=True))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, 1.5, nan, "half", None])
def test_a_sparsity_that_is_no_fraction_is_named(sparsity: Any) -> None:
    trace = chain()
    with pytest.raises(InfeasibleError, match=re.escape(f"sparsity={sparsity!r}")):
        select(random_scores(trace, 0), trace, sparsity=sparsity)


def test_wrong_options_are_named() -> None:
    trace = chain()
    scores = random_scores(trace, 0)
    with pytest.raises(PlanMismatchError, match=r"keep matches no layer.*'convo0'.*did you mean 'conv0'"):
        select(scores, trace, sparsity=0.1, keep=["convo0"])
    with pytest.raises(UnsupportedError, match=r"unknown tie 'maxx'.*'max'"):
        select(scores, trace, sparsity=0.1, tie="maxx")
    with pytest.raises(UnsupportedError, match=r"unknown scope 'net'.*Allowed: balanced, flat, layer, network, power"):
        select(scores, trace, sparsity=0.1, scope="net")
    with pytest.raises(UnsupportedError, match="scope=3"):
        select(scores, trace, sparsity=0.1, scope=3)  # type: ignore[arg-type]
    for options in ({"min_channels": 0}, {"round_to": -1}, {"round_to": 1.5}, {"min_channels": True}):
        with pytest.raises(UnsupportedError, match=re.escape(next(iter(options)))):
            select(scores, trace, sparsity=0.1, **options)  # type: ignore[arg-type]


def test_scores_of_another_network_are_refused() -> None:
    trace, other = chain((4, 6, 5)), chain((4, 6))
    with pytest.raises(PlanMismatchError, match="no scores for layer 'conv2'"):
        select(random_scores(other, 0), trace, sparsity=0.1)
    with pytest.raises(PlanMismatchError, match="scores for 'conv2', which is no layer"):
        select(random_scores(trace, 0), other, sparsity=0.1)
    with pytest.raises(PlanMismatchError, match="'conv1' has 6 channels"):
        select(random_scores(chain((4, 7)), 0), other, sparsity=0.1)
