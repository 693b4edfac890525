"""Edited plans: whatever stands or falls with an edited channel moves with it, and the slim network is right."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.choosing.plan import ChannelClasses, Plan
from ranp.choosing.plan.editing import edit
from ranp.errors import PlanMismatchError
from tests.support.oracles import random_plan, randomise, slim_error
from tests.support.small_plans import small_plan
from tests.support.topologies import TOPOLOGIES

NETWORKS = {
    "conv3d_chain": (),
    "residual_chain_with_norms": (),
    "concatenation_of_additions": (),
    "depthwise_multiplier": (),
    "flatten_to_linear": (),
    "grouped": ("c",),
    "group_norm_fewer_groups": ("a", "b"),
    "unet_transposed": (),
    "inverted_residual": (),
}
"""Networks, and their layers in which equally many channels must stay of every group."""


@functools.cache
def prepared(name: str) -> tuple[nn.Module, Plan, Any]:
    """A network without equal values anywhere, a plan that removes some of it, and its inputs."""
    torch.manual_seed(0)
    model, inputs = randomise(TOPOLOGIES[name].build()), TOPOLOGIES[name].inputs()
    return model, random_plan(ranp.trace(model, inputs), np.random.default_rng(3), 0.3, scope="layer"), inputs


@pytest.mark.parametrize("name", NETWORKS)
def test_an_edited_plan_gives_the_right_network(name: str) -> None:
    """Every layer that may lose channels gets another width; a few of them get channels by name."""
    model, plan, inputs = prepared(name)
    rng, done = np.random.default_rng(0), 0
    for layer in plan.classes.layers:
        for width in range(1, plan.channels[layer] + 1):
            try:
                found = plan.edited(layer=layer, keep=width)
            except PlanMismatchError:  # not every width can be had where channels are tied or counted
                continue
            assert len(found.kept[layer]) == width
            assert found.altered
            if rng.random() < 0.3:
                assert slim_error(model, found, inputs) < 1e-9, f"{layer} with {width}"
                done += 1
        if layer in NETWORKS[name]:
            continue
        drawn = set(rng.choice(plan.channels[layer], max(1, plan.channels[layer] // 2), replace=False).tolist())
        numbers = plan.classes.layers[layer]
        keep = [at for at, number in enumerate(numbers) if number in {0, *(numbers[index] for index in drawn)}]
        assert slim_error(model, plan.edited(layer=layer, keep=keep), inputs) < 1e-9, f"{layer} with {keep}"
    assert done >= 2


def test_coupled_layers_follow() -> None:
    topology = TOPOLOGIES["residual_chain_with_norms"]
    _, plan, _ = prepared(topology.name)
    (group, *_) = topology.together
    keep = [index for index in range(plan.channels[group[0]]) if index % 2]
    found = plan.edited(layer=group[0], keep=keep)
    assert {found.kept[layer] for layer in group} == {tuple(keep)}
    assert found.sparsity.removed == sum(found.channels[layer] - width for layer, width in found.widths.items())
    assert found.edited(layer=group[-1], keep=plan.kept[group[-1]]).cuts == plan.cuts


def test_a_depthwise_layer_moves_its_producer() -> None:
    _, plan, _ = prepared("inverted_residual")
    found = plan.edited(layer="dw", keep=[0, 3])
    assert found.kept["expand"] == found.kept["dw"] == found.cuts["project.weight"][1].keep == (0, 3)


def test_a_width_takes_the_lowest_kept_then_the_lowest_removed() -> None:
    plan = small_plan()
    assert plan.kept["a"] == (0, 2, 3)
    wanted = {1: (0,), 2: (0, 2), 3: (0, 2, 3), 4: (0, 1, 2, 3), 5: (0, 1, 2, 3, 4)}
    assert {width: plan.edited(layer="a", keep=width).kept["a"] for width in wanted} == wanted
    assert plan.edited(layer="a", keep="1-2, 4").kept["a"] == (1, 2, 4)
    assert plan.edited(layer="a", keep=iter([4, 1])).cuts["b.weight"][1].keep == (1, 4)
    assert plan.edited(layer="a", keep=5).cuts == {}
    assert plan.edited(layer="a", keep=np.int64(1)) == plan.edited(layer="a", keep=np.array([0]))


def test_groups_are_drawn_from_alike() -> None:
    _, plan, _ = prepared("grouped")
    (entry,) = plan.classes.equal
    for width in range(4, 13, 4):
        kept = plan.edited(layer="c", keep=width).kept["c"]
        stays = {plan.classes.layers["c"][index] for index in kept}
        assert [len(stays & set(part)) for part in entry] == [width // 4] * 4
    with pytest.raises(PlanMismatchError, match="equally many must stay"):
        plan.edited(layer="c", keep=5)
    with pytest.raises(PlanMismatchError, match="equally many must stay"):
        plan.edited(layer="c", keep=[0, 1, 2, 3])


def test_several_layers_are_checked_together() -> None:
    """Two layers whose channels a group norm counts together agree only once both are changed."""
    torch.manual_seed(0)

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.norm = nn.Conv2d(2, 4, 1), nn.Conv2d(2, 4, 1), nn.GroupNorm(2, 8)
            self.head = nn.Conv2d(8, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(torch.cat([self.a(x), self.b(x)], 1)))

    model, x = randomise(Joined()), torch.randn(2, 2, 3, 3)
    plan = random_plan(ranp.trace(model, x), np.random.default_rng(0), 0.0)
    with pytest.raises(PlanMismatchError, match=r"equally many must stay .*layers 'a', 'b'"):
        plan.edited(layer="a", keep=3)
    found = edit(plan, {"a": 3, "b": "1-3"})
    assert found.widths == {"a": 3, "b": 3, "head": 2}
    assert slim_error(model, found, x) < 1e-9
    _, chain, _ = prepared("residual_chain_with_norms")
    one, two, *_ = TOPOLOGIES["residual_chain_with_norms"].together[0]
    with pytest.raises(PlanMismatchError, match=f"channel 1 of '{two}' and channel 1 of '{one}' stand or fall"):
        edit(chain, {one: [0, 1], two: [0, 2]})


@pytest.mark.parametrize(
    ("layer", "keep", "reason"),
    [
        ("c", 1, "unknown layer 'c'"),
        ("b", 1, "layer 'b' must stay whole"),
        ("a", 0, "a number from 1 to 5"),
        ("a", 6, "a number from 1 to 5"),
        ("a", True, "cannot keep True"),
        ("a", None, "cannot keep None"),
        ("a", ["x"], "at least one channel"),
        ("a", np.array([True, False, True, False, False]), "at least one channel"),
        ("a", [True, False], "at least one channel"),
        ("a", [], "at least one channel"),
        ("a", [5], "from 0 to 4"),
        ("a", [-1], "from 0 to 4"),
        ("a", [1.0], "from 0 to 4"),
        ("a", "", "for layer 'a', '' is not"),
        ("a", "3-9", "lie in 0-4"),
        ("a", "0-10000000000", "digits"),
    ],
)
def test_wrong_edits_are_refused(layer: str, keep: Any, reason: str) -> None:
    with pytest.raises(PlanMismatchError, match=reason):
        small_plan().edited(layer=layer, keep=keep)


def test_what_must_stay_stays() -> None:
    classes = (1, 0, 0, 2, 2)
    known = ChannelClasses({"a": classes}, {"a.weight": {0: classes}, "b.weight": {1: classes}, "c.weight": {1: (1,)}})
    plan = small_plan(kept={"a": (0, 1, 2, 3, 4), "b": (0, 1)}, cuts={}, classes=known)
    with pytest.raises(PlanMismatchError, match="channel 1 of layer 'a' must stay"):
        plan.edited(layer="a", keep=[0, 2])
    with pytest.raises(PlanMismatchError, match=r"channel 4 of 'a' and channel 3 of 'a' .* 4 of 'a' to go\."):
        plan.edited(layer="a", keep=[0, 1, 2, 3])
    with pytest.raises(PlanMismatchError, match=r"leaves nothing of dimension 1 of 'c\.weight'"):
        plan.edited(layer="a", keep=[1, 2, 3, 4])
    assert plan.edited(layer="a", keep=3).kept["a"] == (0, 1, 2)
    with pytest.raises(PlanMismatchError, match=r"cannot keep 4 channels.* Ask for 3 or 5"):
        plan.edited(layer="a", keep=4)
    with pytest.raises(PlanMismatchError, match="2 channels of layer 'a' must stay"):
        plan.edited(layer="a", keep=1)
    with pytest.raises(PlanMismatchError, match="does not know"):
        small_plan(classes=ChannelClasses()).edited(layer="a", keep=1)
