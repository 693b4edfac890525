"""Slim networks: what is cut, what is kept, and plans carried to other sizes, inputs and classes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.choosing.plan import ChannelClasses
from ranp.errors import PlanMismatchError, UnsupportedError
from ranp.paper.models.unet3d import UNet3d
from tests.support.oracles import assert_untouched, random_scores, snapshot


def planned(model: nn.Module, example: torch.Tensor, sparsity: float = 0.5) -> ranp.Plan:
    trace = ranp.trace(model, example)
    return ranp.select(random_scores(trace, np.random.default_rng(0)), trace, sparsity=sparsity)


def classifier(size: int = 4, inputs: int = 1, classes: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 6, 3, padding=1), nn.Flatten(),
        nn.Linear(6 * size**3, 10), nn.ReLU(), nn.Linear(10, classes),
    )  # fmt: skip


def test_kept_weights_are_the_full_networks() -> None:
    model, x = classifier(), torch.randn(2, 1, 4, 4, 4)
    plan = planned(model, x)
    slim = ranp.slim(model, plan)
    kept = list(plan.kept["0"]), list(plan.kept["2"])
    assert torch.equal(slim[0].weight, model[0].weight[kept[0]])
    assert torch.equal(slim[2].weight, model[2].weight[kept[1]][:, kept[0]])
    linear = model[4].weight.view(10, 6, 64)[list(plan.kept["4"])][:, kept[1]].flatten(1)
    assert torch.equal(slim[4].weight, linear)


@pytest.mark.parametrize("init", ["glorot", "orthogonal", "kaiming"])
def test_a_frozen_layer_keeps_its_kept_weights_and_stays_frozen(init: str) -> None:
    model = classifier()
    model[0].requires_grad_(False)
    plan = planned(model, torch.randn(2, 1, 4, 4, 4))
    copied, drawn = ranp.slim(model, plan), ranp.slim(model, plan, init=init)
    assert torch.equal(drawn[0].weight, copied[0].weight)
    assert torch.equal(drawn[0].bias, copied[0].bias)
    assert not any(parameter.requires_grad for parameter in drawn[0].parameters())
    assert not torch.equal(drawn[2].weight, copied[2].weight)


def test_attributes_mirror_the_tensors() -> None:
    model = nn.Sequential(
        nn.Conv3d(1, 8, 1), nn.BatchNorm3d(8), nn.Conv3d(8, 16, 1, groups=8), nn.GroupNorm(4, 16), nn.PReLU(16),
        nn.InstanceNorm3d(16), nn.ConvTranspose3d(16, 6, 2), nn.Conv3d(6, 2, 1),
    )  # fmt: skip
    slim = ranp.slim(model, planned(model, torch.randn(2, 1, 3, 3, 3), 0.6))
    width = slim[0].out_channels
    assert width < 8
    assert (slim[1].num_features, slim[2].in_channels, slim[2].groups) == (width, width, width)
    wide = slim[2].out_channels
    assert wide == 2 * width == slim[3].num_channels == slim[4].num_parameters == slim[5].num_features
    assert (slim[6].in_channels, slim[6].out_channels) == (wide, slim[7].in_channels)


def test_the_full_network_is_left_alone() -> None:
    model, x = classifier().eval(), torch.randn(2, 1, 4, 4, 4)
    before = snapshot(model)
    slim = ranp.slim(model, planned(model, x))
    with torch.no_grad():
        for parameter in slim.parameters():
            parameter.add_(1)
    assert_untouched(before, model)
    assert not slim.training


@pytest.mark.parametrize("init", ["glorot", "orthogonal", "kaiming"])
def test_new_weights_are_drawn_by_seed(init: str) -> None:
    model, x = classifier(), torch.randn(2, 1, 4, 4, 4)
    plan = planned(model, x)
    copied = ranp.slim(model, plan)
    one, same, other = (ranp.slim(model, plan, init=init, seed=seed) for seed in (1, 1, 2))
    assert one[2].weight.shape == copied[2].weight.shape
    assert torch.equal(one[2].weight, same[2].weight)
    assert not torch.equal(one[2].weight, other[2].weight)
    assert not torch.equal(one[2].weight, copied[2].weight)


def test_an_own_initialisation_sees_every_module() -> None:
    model, x = classifier(), torch.randn(2, 1, 4, 4, 4)

    def zero(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Conv3d):
            nn.init.zeros_(module.weight)

    slim = ranp.slim(model, planned(model, x), init=zero)
    assert not slim[4].weight.any()
    with pytest.raises(UnsupportedError, match="glorot"):
        ranp.slim(model, planned(model, x), init="gloroot")


@pytest.mark.parametrize(("inputs", "classes", "size"), [(1, 5, 8), (4, 3, 8), (1, 50, 12), (2, 1, 4)])
def test_a_plan_fits_other_inputs_classes_and_sizes(inputs: int, classes: int, size: int) -> None:
    plan = planned(UNet3d(1, 5, widths=(8, 16)), torch.randn(1, 1, 8, 8, 8))
    other = UNet3d(inputs, classes, widths=(8, 16))
    slim = ranp.slim(other, plan)
    x = torch.randn(1, inputs, size, size, size)
    assert slim(x).shape == (1, classes, size, size, size)
    assert ranp.verify(other, plan, x).ok
    assert {n: m.out_channels for n, m in slim.named_modules() if isinstance(m, nn.Conv3d)} == {
        **plan.widths, list(plan.widths)[-1]: classes
    }  # fmt: skip


def test_flatten_to_linear_at_another_size_needs_an_example() -> None:
    plan = planned(classifier(4), torch.randn(1, 1, 4, 4, 4))
    other, x = classifier(6), torch.randn(2, 1, 6, 6, 6)
    with pytest.raises(PlanMismatchError, match=r"'4\.weight' has size 1296, the plan was made for 384.*pass example="):
        ranp.slim(other, plan)
    slim = ranp.slim(other, plan, example=x)
    assert slim(x).shape == (2, 3)
    assert slim[4].in_features == plan.widths["2"] * 6**3
    assert ranp.verify(other, plan, x).ok


def test_a_plan_of_another_network_is_refused() -> None:
    plan = planned(classifier(), torch.randn(1, 1, 4, 4, 4))
    with pytest.raises(PlanMismatchError, match="which this network does not have"):
        ranp.slim(nn.Sequential(nn.Linear(2, 2)), plan)
    wider = nn.Sequential(nn.Conv3d(1, 9, 3, padding=1), *classifier()[1:])
    with pytest.raises(PlanMismatchError, match=r"dimension 0 of '0\.weight' has size 9, the plan was made for 8"):
        ranp.slim(wider, plan)


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv2d(1, 6, 1)
            self.a, self.b = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
            self.b.weight = self.a.weight
            self.leave = nn.Conv2d(6, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.leave(self.b(self.a(self.enter(x))))

    model, x = Tied(), torch.randn(1, 1, 4, 4)
    plan = planned(model, x, 0.4)
    slim = ranp.slim(model, plan)
    assert slim.a.weight is slim.b.weight
    assert slim.a.weight.shape[0] == slim.a.weight.shape[1] < 6
    assert ranp.verify(model, plan, x).ok


def test_channels_last_and_low_precision_survive() -> None:
    model = nn.Sequential(nn.Conv3d(2, 8, 3), nn.Conv3d(8, 8, 3), nn.Conv3d(8, 2, 1)).to(torch.bfloat16)
    model = model.to(memory_format=torch.channels_last_3d)
    slim = ranp.slim(model, planned(model, torch.randn(1, 2, 6, 6, 6, dtype=torch.bfloat16)))
    assert slim[1].weight.dtype == torch.bfloat16
    assert slim[1].weight.is_contiguous(memory_format=torch.channels_last_3d)


def test_frozen_parameters_stay_frozen() -> None:
    model = classifier()
    model[0].requires_grad_(False)
    slim = ranp.slim(model, planned(model, torch.randn(1, 1, 4, 4, 4)))
    assert not slim[0].weight.requires_grad
    assert slim[2].weight.requires_grad


def test_a_saved_plan_applies(tmp_path) -> None:
    model, x = classifier(), torch.randn(2, 1, 4, 4, 4)
    plan = planned(model, x)
    plan.save(tmp_path / "plan.json")
    again = ranp.Plan.load(tmp_path / "plan.json")
    assert again == plan
    emptied = dataclasses.replace(again, cuts={}, classes=ChannelClasses())
    assert sum(p.numel() for p in ranp.slim(model, emptied).parameters()) == sum(p.numel() for p in model.parameters())
