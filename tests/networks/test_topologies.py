"""Every topology: the right channels may go, the slim network is the full one without them, and verification agrees."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.choosing.plan import Plan
from ranp.reporting.causes import what_stays
from ranp.slimming.verification import check
from ranp.tracing.trace import Trace
from tests.support.oracles import assert_priced, assert_untouched, forward_backward, random_plan, slim_error
from tests.support.topologies import TOPOLOGIES
from tests.support.topologies.topology import Topology
from tests.support.topologies.traced import built, tracer_of

TOLERANCE = 1e-9
SPARSITIES = (0.1, 0.3, 0.5, 0.7, 0.99)
"""The last one stands for the largest feasible sparsity."""

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")


@pytest.fixture(scope="module", params=TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
def topology(request: pytest.FixtureRequest) -> Topology:
    """Each in turn, with all of its tests: what is known of it is found out once, by the process that has them."""
    return request.param


def traced(name: str) -> tuple[nn.Module, Any, Trace]:
    """A topology's network, its inputs and its trace."""
    tracer, trace = tracer_of(name)
    return tracer.model, tracer.example, trace


@functools.cache
def plans(name: str) -> tuple[Plan, ...]:
    """Plans from random scores, from a little to all that is feasible."""
    _, _, trace = traced(name)
    rng = np.random.default_rng(0)
    return tuple(random_plan(trace, rng, sparsity) for sparsity in SPARSITIES)


@functools.cache
def starved(name: str) -> Plan:
    """Every layer is granted a single channel, so that whatever can go goes, as far as couplings let it."""
    _, _, trace = traced(name)
    return random_plan(trace, np.random.default_rng(1), 0.99, scope="layer")


def few(name: str) -> tuple[Plan, ...]:
    """Of those plans a usual one and the most extreme."""
    return plans(name)[2], starved(name)


def rest(name: str) -> tuple[Plan, ...]:
    """The others."""
    return tuple(plan for number, plan in enumerate(plans(name)) if number != 2)


Plans = Callable[[str], tuple[Plan, ...]]
few_and_all = pytest.mark.parametrize("some", [few, pytest.param(rest, marks=pytest.mark.slow)])


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(one, marks=() if number % 3 == 0 else pytest.mark.slow)
        for number, one in enumerate(TOPOLOGIES.values())
    ],
    ids=TOPOLOGIES.keys(),
    indirect=True,
)
def test_a_trace_alone_is_the_same_as_one_with_both_modes(topology: Topology) -> None:
    model, example, trace = traced(topology.name)
    alone = ranp.trace(model, example)
    assert str(alone) == str(trace)
    assert [layer.pins for layer in alone.layers] == [layer.pins for layer in trace.layers]
    assert alone.dims.keys() == trace.dims.keys()
    assert all(np.array_equal(alone.dims[key], trace.dims[key]) for key in trace.dims)


def test_prunable_layers_lose_channels(topology: Topology) -> None:
    plan = starved(topology.name)
    for name in topology.prunable:
        assert len(plan.kept[name]) < plan.channels[name], f"{name} keeps all of its channels"
    _, _, trace = traced(topology.name)
    for name, dim in topology.cuttable:
        assert np.any(trace.dims.get((name, dim), 0)), f"dimension {dim} of {name} cannot be cut"


def test_kept_layers_stay_whole(topology: Topology) -> None:
    for plan in (*plans(topology.name), starved(topology.name)):
        for name in topology.kept:
            assert len(plan.kept[name]) == plan.channels[name], f"{name} lost channels"


def test_coupled_layers_keep_the_same_channels(topology: Topology) -> None:
    for plan in (*plans(topology.name), starved(topology.name)):
        for group in topology.together:
            assert len({plan.kept[name] for name in group}) == 1, f"{group} differ"


def test_unknown_operators_are_reported(topology: Topology) -> None:
    _, _, trace = traced(topology.name)
    if topology.unknown is not None:
        assert bool(trace.unknown) == topology.unknown, trace.unknown


def test_slim_equals_masked(topology: Topology) -> None:
    if not topology.masked:
        pytest.skip("silenced consumers cannot stand for removal here; verification judges it")
    model, inputs, _ = traced(topology.name)
    for plan in (*plans(topology.name), starved(topology.name)):
        error = slim_error(
            model,
            plan,
            inputs,
            training=not topology.stochastic,
            consumers=topology.consumers,
            silenced=topology.silenced,
            statistics=topology.statistics,
        )
        assert error < TOLERANCE, plan.kept


@few_and_all
def test_slim_network_trains(topology: Topology, some: Plans) -> None:
    model, inputs, _ = traced(topology.name)
    reached = forward_backward(model, inputs)
    for plan in some(topology.name):
        slim = ranp.slim(model, plan)
        assert forward_backward(slim, inputs) == reached
        before = {name: value.numel() for name, value in model.named_parameters()}
        after = {name: value.numel() for name, value in slim.named_parameters()}
        assert before.keys() == after.keys()
        assert all(after[name] < before[name] for name in plan.cuts if name in before)
        assert all(after[name] == before[name] for name in before if name not in plan.cuts)


@few_and_all
def test_verified(topology: Topology, some: Plans) -> None:
    tracer, _ = tracer_of(topology.name)
    for verification in (check(tracer, plan) for plan in some(topology.name)):
        assert verification.ok, verification
        assert verification.max_error < TOLERANCE


def test_users_model_is_untouched(topology: Topology) -> None:
    """By all that this file does to it, and by a trial of most steps here, in case this test comes first."""
    model, _, before = built(topology.name)
    state = torch.get_rng_state()
    tracer, _ = tracer_of(topology.name)
    plan = few(topology.name)[0]
    ranp.slim(model, plan)
    check(tracer, plan)
    assert_untouched(before, model)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("plan_of", [starved, pytest.param(lambda name: plans(name)[2], marks=pytest.mark.slow)])
def test_costs_are_known_beforehand(topology: Topology, plan_of: Callable[[str], Plan]) -> None:
    if topology.stochastic:
        pytest.skip("runs other modules each time")
    model, inputs, trace = traced(topology.name)
    assert_priced(model, inputs, trace, plan_of(topology.name))


def test_every_channel_that_must_stay_has_one_cause(topology: Topology) -> None:
    _, _, trace = traced(topology.name)
    stays = what_stays(trace)
    held: dict[str, int] = {}
    for one in stays:
        assert one.reason
        assert one.channels == sum(one.layers.values()) > 0
        for layer, count in one.layers.items():
            if "stand or fall together" not in one.reason:
                held[layer] = held.get(layer, 0) + count
    pinned = {layer.name: int(np.count_nonzero(layer.classes == 0)) for layer in trace.layers}
    assert held == {layer: count for layer, count in pinned.items() if count}
    assert all(one.cause != "other" for one in stays), [str(one) for one in stays]
    assert all(one.op for one in stays if one.cause in ("operation", "operator"))
