"""Slicing errors with legal shapes, injected one at a time: verification must notice every single one.

An error is made on the slim network itself: one dimension of one tensor is cut with other indices, or in another order,
or a norm gets another number of groups or its statistics in the wrong places, or code gets another number for a
constant that it puts into a tensor. Shapes stay legal, so nothing crashes; some of them hardly move the output.
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
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.choosing.plan import ChannelClasses, Cut, Plan
from ranp.errors import RanpError
from ranp.slimming.verification import check
from ranp.tracing.tracer import Tracer
from tests.support.oracles import random_plan, randomise, slim_error, tensors
from tests.support.topologies import TOPOLOGIES
from tests.support.topologies.topology import tensor as drawn

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
PER_NETWORK = 3
"""Errors tried in each network and condition in the ordinary run; the slow one tries all of them."""
SUBTLE = 1
"""Up to so many of them are errors in statistics or groups of norms, which hardly move the output."""
AT_LEAST = 1000
"""Errors in the slow run."""


class Scaled(nn.Module):
    """Features divided by a number in a tensor; which one, an attribute says."""

    HOWS = ("tensor", "new tensor", "full", "ones", "large ones", "seeded")

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.number = how, 6

    def forward(self, x: Tensor) -> Tensor:
        made = {
            "tensor": lambda: torch.tensor(float(self.number)).sqrt(),
            "new tensor": lambda: x.new_tensor(self.number),
            "full": lambda: torch.full((1,), float(self.number)),
            "ones": lambda: torch.ones(self.number).sum(),
            "large ones": lambda: torch.ones(self.number, 1, 1, 1, 1).expand(self.number, 9, 99, 99, 9).sum() / 793881,
            "seeded": lambda: torch.rand(self.number, generator=torch.Generator().manual_seed(1)).sum() + 1,
        }
        return x / made[self.how]()


class Regrouped(nn.Module):
    """Channels in another order, in groups of as many as an attribute says."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.groups = how, 2

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "norm":
            return F.group_norm(x, self.groups)
        y = x.unflatten(1, (self.groups, x.shape[1] // self.groups))
        return (y.transpose(1, 2) if self.how == "shuffle" else y.flip(1)).flatten(1, 2)


def with_attributes(middle: nn.Module) -> nn.Module:
    """Three convolutions with code between them that an attribute steers."""
    return nn.Sequential(
        nn.Conv3d(2, 12, 3, padding=1), nn.BatchNorm3d(12), middle, nn.Conv3d(12, 8, 1), nn.ReLU(), nn.Conv3d(8, 2, 1)
    )


STEERED: dict[str, Callable[[], nn.Module]] = {
    **{f"scaled by {how}": functools.partial(Scaled, how) for how in Scaled.HOWS},
    **{f"regrouped by {how}": functools.partial(Regrouped, how) for how in ("shuffle", "flip", "norm")},
}
"""Networks whose code is wrong as soon as an attribute is."""


class Under(nn.Module):
    """A network under conditions in which the numeric check cannot do as it likes."""

    def __init__(self, network: nn.Module, condition: str, inputs: Any) -> None:
        super().__init__()
        self.network, self.condition = network, condition
        self.shapes = [tuple(t.shape[2:]) for t in tensors(inputs)]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = tensors([args, kwargs])
        if self.condition == "not in float64" and any(t.dtype == torch.float64 for t in found):
            raise TypeError("no kernel for float64")
        if self.condition == "too large" and [tuple(t.shape[2:]) for t in found] != self.shapes:
            raise ValueError("made for one size")
        return self.network(*args, **kwargs)


CONDITIONS = ("ordinary", "not in float64", "too large")


@dataclass(frozen=True)
class Mutation:
    """One slicing error: what it is, and how it is made on a slim network."""

    what: str
    inject: Callable[[nn.Module], None]


@dataclass(frozen=True)
class Prepared:
    """A network without equal values anywhere, traced, and a plan that removes about half of it."""

    model: nn.Module
    plan: Plan
    tracer: Tracer
    budget: float | None

    def verdict(self, slim: nn.Module) -> bool | None:
        """What verification says of a slim network."""
        return check(self.tracer, self.plan, slim, budget=self.budget).ok


@functools.lru_cache(maxsize=4)
def prepared(name: str, condition: str = "ordinary") -> Prepared:
    torch.manual_seed(0)
    if name in STEERED:
        model, inputs = with_attributes(STEERED[name]()), drawn(2, 2, 5, 5, 5)
    else:
        model, inputs = TOPOLOGIES[name].build(), TOPOLOGIES[name].inputs()
    model = Under(randomise(model), condition, inputs)
    tracer = Tracer(model, inputs)
    plan = random_plan(tracer.trace(), np.random.default_rng(3), 0.4, scope="layer")
    assert plan.cuts
    return Prepared(model, plan, tracer, 1.0 if condition == "too large" else None)


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
    """Every dimension that is cut, once with another index and once in another order; then what code and norms hold.

    Wrong numbers of groups, other numbers in attributes, statistics that changed places.
    """
    for name, by_dim in plan.cuts.items():
        if name not in dict((*model.named_parameters(), *model.named_buffers())):
            continue
        for dim, cut in by_dim.items():
            keep = other_indices(cut, rng)
            yield Mutation(f"{name}[{dim}] keeps another index: {keep}", recut(model, plan, name, dim, keep))
            if len(cut.keep) > 1:
                keep = other_order(cut, rng)
                yield Mutation(f"{name}[{dim}] in another order: {keep}", recut(model, plan, name, dim, keep))
    slim = ranp.slim(model, plan)
    for name, module in slim.named_modules():
        if isinstance(module, nn.GroupNorm):
            for groups in range(1, module.num_channels + 1):
                if module.num_channels % groups == 0 and groups != module.num_groups:
                    yield Mutation(f"{name} with {groups} groups", set_attribute(name, "num_groups", groups))
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None:
            yield Mutation(f"{name} with swapped statistics", functools.partial(swap_statistics, name))
        if isinstance(module, Scaled):
            for number in (1, 2, 3, 4, 5, 7, 8, 12, 24):
                yield Mutation(f"{name} with the constant {number}", set_attribute(name, "number", number))
        if isinstance(module, Regrouped):
            for groups in (1, 3, 4, 6, 8):
                if plan.widths["network.0"] % groups == 0:
                    yield Mutation(f"{name} with {groups} groups", set_attribute(name, "groups", groups))


def set_attribute(name: str, attribute: str, value: int) -> Callable[[nn.Module], None]:
    """Changes what a module knows by itself."""
    return lambda slim: setattr(slim.get_submodule(name), attribute, value)


def swap_statistics(name: str, slim: nn.Module) -> None:
    """Takes the mean for the variance."""
    norm = slim.get_submodule(name)
    norm.running_mean, norm.running_var = norm.running_var, norm.running_mean


@functools.cache
def possible(name: str) -> list[Mutation]:
    """All errors that are tried in a network, no two alike, in random order, always the same."""
    case, rng = prepared(name), np.random.default_rng(len(name))
    found = [mutation for _ in range(2) for mutation in mutations(case.model, case.plan, rng)]
    unique = list({mutation.what: mutation for mutation in found}.values())
    rng.shuffle(unique)
    return unique


def chosen(name: str) -> list[Mutation]:
    """A few of the errors, the subtle ones first."""
    words = ("running", "groups", "statistics", "constant")
    subtle = [mutation for mutation in possible(name) if any(word in mutation.what for word in words)][:SUBTLE]
    return [*subtle, *(mutation for mutation in possible(name) if mutation not in subtle)][:PER_NETWORK]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("name", [*NETWORKS, *STEERED])
def test_correct_slim_network_is_accepted_and_errors_are_not(name: str, condition: str) -> None:
    case = prepared(name, condition)
    assert case.verdict(ranp.slim(case.model, case.plan)) is True
    assert not returned_as_ok(case, chosen(name))


def returned_as_ok(case: Prepared, errors: list[Mutation]) -> list[str]:
    """Errors that verification does not notice."""
    missed = []
    for mutation in errors:
        slim = copy.deepcopy(ranp.slim(case.model, case.plan))
        mutation.inject(slim)
        if case.verdict(slim):
            missed.append(mutation.what)
    return missed


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("name", [*NETWORKS, *STEERED])
def test_every_error_is_caught(name: str, condition: str) -> None:
    assert not returned_as_ok(prepared(name, condition), possible(name))


@pytest.mark.slow
def test_there_are_at_least_a_thousand_errors() -> None:
    names = [*NETWORKS, *STEERED]
    assert sum(len(possible(name)) for name in names) >= AT_LEAST
    kinds = " ".join(mutation.what for name in names for mutation in possible(name))
    for kind in (
        "running_var",
        "running_mean",
        ".bias",
        ".weight[0]",
        ".weight[1]",
        "order",
        "another index",
        "groups",
        "constant",
        "statistics",
    ):
        assert kind in kinds


@pytest.mark.parametrize("name", NETWORKS)
def test_plan_with_one_wrong_cut_is_refused(name: str) -> None:
    """A plan that was edited in one place and not in the others: refused outright, or found out."""
    case = prepared(name)
    plan = case.plan
    rng = np.random.default_rng(7)
    entries = [(tensor, dim) for tensor, by_dim in plan.cuts.items() for dim in by_dim]
    for index in rng.choice(len(entries), min(3, len(entries)), replace=False):
        tensor, dim = entries[index]
        cut = plan.cuts[tensor][dim]
        wrong = dataclasses.replace(cut, keep=other_indices(cut, rng))
        cuts = {**plan.cuts, tensor: {**plan.cuts[tensor], dim: wrong}}
        try:
            verification = check(case.tracer, dataclasses.replace(plan, cuts=cuts, classes=ChannelClasses()))
        except RanpError:
            continue
        assert not verification.ok, f"{tensor}[{dim}]"


@pytest.mark.parametrize("name", ["conv3d_chain", "grouped", "group_norm_fewer_groups", "concatenation_of_additions"])
def test_the_independent_oracle_sees_every_wrong_cut(name: str) -> None:
    """The judge of the other test files is no rubber stamp."""
    case = prepared(name)
    model, plan, inputs = case.model, case.plan, case.tracer.example
    rng = np.random.default_rng(8)
    assert slim_error(model, plan, inputs) < 1e-9
    for tensor, by_dim in plan.cuts.items():
        for dim, cut in by_dim.items():
            wrong = dataclasses.replace(cut, keep=other_indices(cut, rng))
            cuts = {**plan.cuts, tensor: {**by_dim, dim: wrong}}
            assert slim_error(model, dataclasses.replace(plan, cuts=cuts, classes=ChannelClasses()), inputs) > 1e-6, (
                f"{tensor}[{dim}]"
            )
