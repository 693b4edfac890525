"""Slicing errors with legal shapes, injected one at a time: verification must notice every single one.

An error is made on the slim network itself: one dimension of one tensor is cut with other indices, or in another order,
or a norm gets another number of groups. Shapes stay legal, so nothing crashes; some of them hardly move the output.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from oracles import random_plan, randomise, slim_error
from ranp.errors import RanpError
from ranp.plan import ChannelClasses, Cut, Plan
from topologies import TOPOLOGIES

NETWORKS = (
    "conv3d_chain",
    "transposed3d_makes_output",
    "grouped",
    "grouped_transposed",
    "depthwise_multiplier",
    "batch_norm",
    "instance_norm_with_statistics",
    "group_norm_fewer_groups",
    "layer_norm_channels_first",
    "prelu_one_and_per_channel",
    "residual_chain_with_norms",
    "concatenation_of_additions",
    "unet_transposed",
    "inverted_residual",
    "chunk_gate",
    "weight_shared_by_two_layers",
    "flatten_to_linear",
    "cost_volume_by_concatenation",
    "channel_shuffle",
    "squeeze_and_excitation",
)
PER_NETWORK = 7
"""Errors tried in each network, drawn from all possible ones."""
SUBTLE = 3
"""Up to so many of them are errors in statistics or groups of norms, which hardly move the output."""


@dataclass(frozen=True)
class Mutation:
    """One slicing error: what it is, and how it is made on a slim network."""

    what: str
    inject: Callable[[nn.Module], None]


@functools.cache
def prepared(name: str) -> tuple[nn.Module, Plan, Any]:
    """A network without equal values anywhere, a plan that removes about half of it, and its inputs."""
    torch.manual_seed(0)
    model, inputs = randomise(TOPOLOGIES[name].build()), TOPOLOGIES[name].inputs()
    trace = ranp.trace(model, inputs)
    plan = random_plan(trace, np.random.default_rng(3), 0.4, scope="layer")
    assert plan.cuts
    return model, plan, inputs


def recut(model: nn.Module, plan: Plan, name: str, dim: int, keep: tuple[int, ...]) -> Callable[[nn.Module], None]:
    """Overwrites one tensor of a slim network by the full one's values, cut as planned but for one dimension."""
    full = dict((*model.named_parameters(), *model.named_buffers()))[name]

    def inject(slim: nn.Module) -> None:
        values = full.detach()
        for axis, cut in plan.cuts[name].items():
            values = values.index_select(axis, torch.tensor(keep if axis == dim else cut.keep))
        target = dict((*slim.named_parameters(), *slim.named_buffers()))[name]
        assert target.shape == values.shape, "the error must have a legal shape"
        assert not torch.equal(target, values), "the error must be one"
        with torch.no_grad():
            target.copy_(values)

    return inject


def other_indices(cut: Cut, rng: np.random.Generator) -> tuple[int, ...]:
    """As many indices, but one of them is another one."""
    removed = sorted(set(range(cut.size)) - set(cut.keep))
    gone, taken = rng.choice(cut.keep), rng.choice(removed)
    return tuple(sorted({*cut.keep, int(taken)} - {int(gone)}))


def other_order(cut: Cut, rng: np.random.Generator) -> tuple[int, ...]:
    """The same indices with two of them exchanged."""
    first, second = rng.choice(len(cut.keep), 2, replace=False)
    keep = list(cut.keep)
    keep[first], keep[second] = keep[second], keep[first]
    return tuple(keep)


def mutations(model: nn.Module, plan: Plan, rng: np.random.Generator) -> Iterator[Mutation]:
    """Every dimension that is cut, once with another index and once in another order; then wrong numbers of groups."""
    for name, by_dim in plan.cuts.items():
        if name not in dict((*model.named_parameters(), *model.named_buffers())):
            continue
        for dim, cut in by_dim.items():
            yield Mutation(f"{name}[{dim}] keeps another index", recut(model, plan, name, dim, other_indices(cut, rng)))
            if len(cut.keep) > 1:
                yield Mutation(f"{name}[{dim}] in another order", recut(model, plan, name, dim, other_order(cut, rng)))
    slim = ranp.slim(model, plan)
    for name, module in slim.named_modules():
        if isinstance(module, nn.GroupNorm):
            for groups in range(1, module.num_channels + 1):
                if module.num_channels % groups == 0 and groups != module.num_groups:
                    yield Mutation(f"{name} with {groups} groups", functools.partial(set_groups, name, groups))


def set_groups(name: str, groups: int, slim: nn.Module) -> None:
    """Changes the number of groups of a norm."""
    slim.get_submodule(name).num_groups = groups


def chosen(name: str) -> list[Mutation]:
    """Some of the errors that are possible in a network, always the same."""
    model, plan, _ = prepared(name)
    rng = np.random.default_rng(len(name))
    possible = list(mutations(model, plan, rng))
    rng.shuffle(possible)
    subtle = [mutation for mutation in possible if "running" in mutation.what or "groups" in mutation.what][:SUBTLE]
    return [*subtle, *(mutation for mutation in possible if mutation not in subtle)][:PER_NETWORK]


@pytest.mark.parametrize("name", NETWORKS)
def test_correct_slim_network_is_accepted(name: str) -> None:
    model, plan, inputs = prepared(name)
    verification = ranp.verify(model, plan, inputs, slim=ranp.slim(model, plan))
    assert verification.ok, verification
    assert verification.max_error < 1e-9


@pytest.mark.parametrize("name", NETWORKS)
def test_every_slicing_error_is_caught(name: str) -> None:
    model, plan, inputs = prepared(name)
    missed = []
    for mutation in chosen(name):
        slim = copy.deepcopy(ranp.slim(model, plan))
        mutation.inject(slim)
        if ranp.verify(model, plan, inputs, slim=slim).ok:
            missed.append(mutation.what)
    assert not missed


def test_there_are_at_least_a_hundred_errors() -> None:
    counts = {name: len(chosen(name)) for name in NETWORKS}
    assert sum(counts.values()) >= 100, counts
    kinds = " ".join(mutation.what for name in NETWORKS for mutation in chosen(name))
    for kind in (
        "running_var",
        "running_mean",
        ".bias",
        ".weight[0]",
        ".weight[1]",
        "order",
        "another index",
        "groups",
    ):
        assert kind in kinds


@pytest.mark.parametrize("name", NETWORKS)
def test_plan_with_one_wrong_cut_is_refused(name: str) -> None:
    """A plan that was edited in one place and not in the others: refused outright, or found out."""
    model, plan, inputs = prepared(name)
    rng = np.random.default_rng(7)
    entries = [(tensor, dim) for tensor, by_dim in plan.cuts.items() for dim in by_dim]
    for index in rng.choice(len(entries), min(3, len(entries)), replace=False):
        tensor, dim = entries[index]
        cut = plan.cuts[tensor][dim]
        wrong = dataclasses.replace(cut, keep=other_indices(cut, rng))
        cuts = {**plan.cuts, tensor: {**plan.cuts[tensor], dim: wrong}}
        try:
            verification = ranp.verify(model, dataclasses.replace(plan, cuts=cuts, classes=ChannelClasses()), inputs)
        except RanpError:
            continue
        assert not verification.ok, f"{tensor}[{dim}]"


@pytest.mark.parametrize("name", ["conv3d_chain", "grouped", "group_norm_fewer_groups", "concatenation_of_additions"])
def test_the_independent_oracle_sees_every_wrong_cut(name: str) -> None:
    """The judge of the other test files is no rubber stamp."""
    model, plan, inputs = prepared(name)
    rng = np.random.default_rng(8)
    assert slim_error(model, plan, inputs) < 1e-9
    for tensor, by_dim in plan.cuts.items():
        for dim, cut in by_dim.items():
            wrong = dataclasses.replace(cut, keep=other_indices(cut, rng))
            cuts = {**plan.cuts, tensor: {**by_dim, dim: wrong}}
            assert slim_error(model, dataclasses.replace(plan, cuts=cuts, classes=ChannelClasses()), inputs) > 1e-6, (
                f"{tensor}[{dim}]"
            )
