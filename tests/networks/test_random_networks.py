"""Some random networks, thousands in the slow run: slim equals masked, and verification agrees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ranp
from ranp.slimming.verification import certify
from ranp.slimming.verification import check as verify_traced
from ranp.tracing.tracer import Tracer
from tests.support.oracles import forward_backward, random_plan, slim_error
from tests.support.random_networks import Node, Program, programs

TOLERANCE = 1e-9


def check(program: Program, sparsity: float, scope: str, seed: int, *, numbers: bool) -> None:
    """Prunes one network at random and judges the result; without ``numbers`` the certificate stands alone."""
    torch.manual_seed(seed)
    model, inputs = program.build(), program.inputs()
    tracer = Tracer(model, inputs)
    trace = tracer.trace()
    assert not trace.unknown
    plan = random_plan(trace, np.random.default_rng(seed), sparsity, scope)
    error = slim_error(model, plan, inputs, seed=seed)
    if not numbers:
        certificate = certify(tracer, plan, None)
        assert certificate.agrees is not False, certificate.note
        assert error < TOLERANCE
        return
    verification = verify_traced(tracer, plan)
    assert verification.ok, verification
    assert verification.max_error < TOLERANCE
    assert error < TOLERANCE
    assert forward_backward(ranp.slim(model, plan), inputs) == forward_backward(model, inputs)


drawn = given(
    programs(), st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.99]), st.sampled_from(["network", "layer"]), st.integers(0, 1000)
)
calm = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=25, derandomize=True, suppress_health_check=calm)
@drawn
def test_random_networks(program: Program, sparsity: float, scope: str, seed: int) -> None:
    check(program, sparsity, scope, seed, numbers=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("numbers", [False, True], ids=["certificate alone", "with numbers"])
def test_new_random_networks(numbers: bool) -> None:
    @settings(max_examples=2000, suppress_health_check=calm, deadline=None)
    @drawn
    def judge(program: Program, sparsity: float, scope: str, seed: int) -> None:
        check(program, sparsity, scope, seed, numbers=numbers)

    judge()


def test_numbers_drawn_from_a_seed_are_seen_where_few_channels_are_left() -> None:
    """The first of them are the same however many are drawn, so a trial cut must not keep the first channels."""
    plain = (1, False, 1, "none", 1, "none")
    program = Program(
        dims=3,
        in_channels=1,
        nodes=(
            Node("conv", (0,), 6, plain),
            Node("conv", (0,), 11, plain),
            Node("cat", (1, 0), 7),
            Node("conv", (1,), 7, plain),
            Node("hand-written norm", (2,), 11),
            Node("conv", (1,), 3, plain),
            Node("counted", (6,), 3, ("seeded",)),
            Node("add", (1, 1), 6),
            Node("add", (1, 1), 6),
            Node("gate", (1,), 6),
        ),
        heads=((10,),),
        pooled=False,
    )
    for numbers in (False, True):
        check(program, 0.1, "network", 803, numbers=numbers)


def test_a_view_before_which_operators_are_missing_is_not_taken_for_a_mistake() -> None:
    """A shuffle that needs no copy once every group has one channel moves all operators behind it."""
    plain = (1, False, 1, "none", 1, "none")
    program = Program(
        dims=3,
        in_channels=1,
        nodes=(
            Node("conv", (0,), 4, plain),
            Node("conv", (0,), 9, plain),
            Node("shuffle", (2,), 9, (3,)),
            Node("cat", (1, 0), 5, ()),
            Node("conv", (1,), 2, plain),
            Node("shuffle", (1,), 4, (2,)),
            Node("conv", (1,), 2, plain),
        ),
        heads=((3, 4, 5, 6, 7),),
        pooled=False,
    )
    for numbers in (False, True):
        check(program, 0.7, "layer", 0, numbers=numbers)


def test_a_grouped_transposed_convolution_of_which_each_group_keeps_one_channel_is_not_taken_for_a_mistake() -> None:
    """It looks like a depthwise one then, whose outputs carry the labels of its inputs."""
    plain, depthwise = (1, False, 1, "none", 1, "none"), (1, False, 9, "none", 1, "none")
    program = Program(
        dims=3,
        in_channels=1,
        nodes=(
            Node("conv", (0,), 9, plain),
            Node("conv", (0,), 3, plain),
            Node("add", (1, 1), 9, ()),
            Node("conv", (1,), 9, depthwise),
            Node("shuffle", (1,), 9, (3,)),
            Node("conv", (1,), 9, depthwise),
            Node("transposed", (3,), 6, (3, False)),
            Node("conv", (1,), 2, plain),
            Node("conv", (1,), 2, plain),
        ),
        heads=((2, 4, 5, 6, 7, 8, 9),),
        pooled=False,
    )
    for numbers in (False, True):
        check(program, 0.7, "network", 0, numbers=numbers)


def test_pairs_that_keep_equal_counts_are_not_only_tried_from_their_ends() -> None:
    """Numbers drawn for each of two channels stay right while the first one stays: a trial must take that one."""
    plain = (1, False, 1, "none", 1, "none")
    program = Program(
        dims=3,
        in_channels=1,
        nodes=(
            Node("conv", (0,), 9, plain),
            Node("counted", (1,), 9, ("tensor",)),
            Node("conv", (1,), 2, plain),
            Node("conv", (1,), 2, plain),
            Node("swap", (1,), 9, (3,)),
            Node("shuffle", (1,), 9, (3,)),
            Node("conv", (1,), 2, plain),
            Node("product", (1, 1), 9, ()),
            Node("conv", (1,), 3, (1, False, 3, "none", 1, "none")),
            Node("counted", (3,), 2, ("seeded",)),
            Node("conv", (1,), 2, plain),
        ),
        heads=((2, 4, 5, 6, 7, 8, 9, 10, 11),),
        pooled=False,
    )
    check(program, 0.3, "network", 88, numbers=True)
