"""Groups of coupled layers: which, through what, and what must stay; and how a trace prints itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.tracing import PINNED, Group, Trace
from ranp.tracing.cutting import cut_copy
from ranp.tracing.groups import listed, places
from ranp.tracing.trace import Cause, Layer
from tests.support.oracles import slim_error
from tests.support.topologies import TOPOLOGIES


def conv(inputs: int, outputs: int, **options: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 1, **options)


class Residual(nn.Module):
    """A branch that is added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = conv(width, width), nn.BatchNorm2d(width), conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.norm(self.inner(x))))


class Joined(nn.Module):
    """Two layers side by side, and perhaps a third that is added to both."""

    def __init__(self, *, added: bool) -> None:
        super().__init__()
        self.one, self.two, self.wide, self.head = conv(1, 4), conv(1, 6), conv(1, 10), conv(10, 2)
        self.added = added

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([self.one(x), self.two(x)], 1)
        return self.head(both + self.wide(x) if self.added else torch.relu(both))


class Shuffled(nn.Module):
    """Channels of one layer that change places in two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = conv(1, 8), conv(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        b, c, h, w = x.shape
        return self.head(x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w))


class Shared(nn.Module):
    """One module that reads two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.both, self.head = conv(1, 8), conv(1, 8), conv(8, 8), conv(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([self.both(self.one(x)), self.both(self.two(x))], 1))


def traced(model: nn.Module) -> Trace:
    return ranp.trace(model, torch.zeros(1, 1, 6, 6))


def found(model: nn.Module) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The layers of each group, and through what."""
    return {group.layers: tuple(map(str, group.through)) for group in traced(model).groups()}


def test_residual_blocks() -> None:
    trace = traced(nn.Sequential(conv(1, 8), Residual(8), Residual(8), conv(8, 2)))
    stream, inner, _, head = trace.groups()
    assert stream.layers == ("0", "1.outer", "2.outer")
    assert tuple(map(str, stream.through)) == ("add in 1", "add in 2")
    assert (stream.channels, stream.prunable, stream.classes) == (24, 24, 8)
    assert stream.readers == ("1.inner", "2.inner", "3")
    assert inner == Group(("1.inner",), 8, 8, 8, norms=("1.norm",), readers=("1.outer",))
    assert [(pin.cause, pin.channels) for pin in head.pins] == [(Cause.OUTPUT, 2)]


def test_concatenation_couples_nothing_by_itself() -> None:
    assert found(Joined(added=False)) == {("one",): (), ("two",): (), ("wide",): (), ("head",): ()}
    assert found(Joined(added=True)) == {("one", "two", "wide"): ("add",), ("head",): ()}


def test_depthwise_and_grouped_convolutions_and_norms() -> None:
    model = nn.Sequential(
        conv(1, 8), conv(8, 8, groups=8), nn.GroupNorm(2, 8), conv(8, 8), conv(8, 8, groups=2), conv(8, 2)
    )
    first, grouped_in, grouped, _ = traced(model).groups()
    assert (first.layers, tuple(map(str, first.through))) == (("0", "1"), ("depthwise convolution in 1",))
    assert tuple(map(str, first.equal)) == ("groups of a norm (2) in 2",)
    assert (grouped_in.layers, tuple(map(str, grouped_in.through))) == (("3",), ("groups of 4",))
    assert (grouped_in.channels, grouped_in.classes) == (8, 4)
    assert tuple(map(str, grouped.equal)) == ("groups of a convolution (2) in 4",)


@pytest.mark.parametrize("affine", [True, False])
def test_whole_groups_of_a_norm_go_where_there_are_many(affine: bool) -> None:
    model = nn.Sequential(conv(1, 16), nn.GroupNorm(8, 16, affine=affine), conv(16, 2))
    first, _ = traced(model).groups()
    assert tuple(map(str, first.through)) == ("groups of a norm (8) in 1",)
    assert (first.classes, first.equal) == (8, ())
    plan = ranp.select(ranp.Scores({"0": torch.arange(16.0), "2": torch.ones(2)}), traced(model), sparsity=14 / 18)
    slim = ranp.slim(model, plan)
    assert plan.kept["0"] == (12, 13, 14, 15)
    assert (slim[1].num_groups, slim[1].num_channels) == (2, 4)
    assert slim_error(model, plan, torch.randn(2, 1, 6, 6)) < 1e-12


def test_groups_of_a_norm_that_all_keep_some_stay_as_many() -> None:
    """As plans do that were made when groups could not go."""
    model = nn.Sequential(conv(1, 16), nn.GroupNorm(8, 16), conv(16, 2))
    even = range(0, 16, 2)
    slim = cut_copy(model, {"1.weight": {0: even}, "1.bias": {0: even}}, meta=False)
    assert (slim[1].num_groups, slim[1].num_channels) == (8, 8)


def test_shuffle_and_shared_module() -> None:
    assert found(Shuffled()) == {("layer",): ("view",), ("head",): ()}
    assert found(Shared()) == {("one", "two"): ("shared input of both",), ("both",): (), ("head",): ()}


def test_a_trace_prints_its_groups() -> None:
    trace = traced(nn.Sequential(conv(1, 8), Residual(8), Residual(8), conv(8, 2)))
    assert str(trace).splitlines() == [
        "6 layers in 4 groups; 40 of 42 channels can go",
        "channels  can go  layers                 joined by     must stay",
        "      24      24  0, *.outer (2 layers)  add in * (2)",
        "       8       8  1.inner",
        "       8       8  2.inner",
        "       2       0  3                                    2 output",
        "must stay: 2 output",
    ]
    assert repr(trace) == "Trace(6 layers, 40 of 42 channels can go)"
    assert str(trace.groups()[0]) == ("24 of 24 channels of 0, *.outer (2 layers) can go, joined by add in * (2)")


def test_layers_coupled_by_what_must_stay_are_one_group_too() -> None:
    (group,) = ranp.trace(Residual(2), torch.zeros(1, 2, 4, 4)).groups()[1:]
    assert group.layers == ("outer",)
    assert group.pins[0].cause in (Cause.OUTPUT, Cause.OPERATION)


def test_a_trace_made_by_hand_knows_its_groups_from_its_classes() -> None:
    layers = tuple(
        Layer(name, "conv", f"{name}.weight", 0, 1, 1, 3, np.array(classes))
        for name, classes in (("a", [1, 2, PINNED]), ("b", [3, 4, 5]), ("c", [2, 6, PINNED]))
    )
    assert [(group.layers, group.classes) for group in Trace(layers, {}).groups()] == [(("a", "c"), 3), (("b",), 3)]


@pytest.mark.parametrize("name", list(TOPOLOGIES)[::7])
def test_groups_share_no_class_and_leave_no_layer_out(name: str) -> None:
    topology = TOPOLOGIES[name]
    torch.manual_seed(0)
    trace = ranp.trace(topology.build(), topology.inputs())
    groups = trace.groups()
    names = [layer.name for layer in trace.layers]
    assert sorted(name for group in groups for name in group.layers) == sorted(names)
    homes: dict[int, tuple[str, ...]] = {}
    for group in groups:
        classes = np.concatenate([trace.layer(layer).classes for layer in group.layers])
        assert (group.channels, group.prunable) == (len(classes), int(np.count_nonzero(classes)))
        for number in set(classes.tolist()) - {PINNED}:
            assert homes.setdefault(number, group.layers) == group.layers
        if len(group.layers) > 1:
            assert group.through, group
        assert sum(pin.channels for pin in group.pins) == group.channels - group.prunable
    assert len(str(trace).splitlines()) >= len(groups) + 2


def test_names_that_differ_by_numbers_are_one_pattern() -> None:
    assert listed(["0", "1", "a.0", "a.1"]) == "0, 1, a.* (2 layers)"
    assert places([]) == ""
