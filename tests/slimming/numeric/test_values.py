"""Values of a comparison: equal in both networks, distinct between channels, of the sign and size they had."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from ranp.slimming.numeric.values import CAREFUL, DRAWN, OWN, REDRAWN, inputs_for, networks, with_rows

KEEPS = {"0.weight": {0: (0, 2)}, "0.bias": {0: (0, 2)}, "1.weight": {0: (0, 2)}, "1.bias": {0: (0, 2)}}
KEEPS |= {"1.running_mean": {0: (0, 2)}, "1.running_var": {0: (0, 2)}, "2.weight": {1: (0, 2)}}


def full() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
    with torch.no_grad():
        model[0].bias.abs_()
    return model


def slim(model: nn.Sequential) -> nn.Sequential:
    thin = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1))
    thin.load_state_dict({name: cut(value, name) for name, value in model.state_dict().items()})
    return thin


def cut(value: torch.Tensor, name: str) -> torch.Tensor:
    for dim, keep in KEEPS.get(name, {}).items():
        value = value.index_select(dim, torch.tensor(keep))
    return value


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("values", [DRAWN, CAREFUL, OWN, REDRAWN])
@pytest.mark.parametrize("meta", [False, True], ids=["data", "no data"])
def test_both_networks_hold_the_same_values(values: str, double: bool, meta: bool) -> None:
    model = full()
    thin = slim(model)
    if meta:
        model, thin = model.to("meta"), thin.to("meta")
    generator = torch.Generator().manual_seed(0)
    wide, narrow = networks(model, thin, KEEPS, values=values, double=double, generator=generator)
    for name, value in wide.state_dict().items():
        assert torch.equal(cut(value, name), narrow.state_dict()[name]), name
        if value.is_floating_point():
            assert value.dtype == (torch.float64 if double else torch.float32)
    if not meta and values == OWN:
        assert all(torch.equal(value.to(other.dtype), other) for value, other in zip(
            model.state_dict().values(), wide.state_dict().values(), strict=True
        ))  # fmt: skip


@pytest.mark.parametrize("values", [DRAWN, CAREFUL])
def test_no_two_channels_look_alike_and_signs_stay(values: str) -> None:
    model = full()
    options = {"values": values, "double": True, "generator": torch.Generator().manual_seed(0)}
    wide, _ = networks(model, slim(model), KEEPS, **options)
    for name in ("1.weight", "1.bias", "1.running_mean", "1.running_var"):
        assert len(wide.state_dict()[name].unique()) == 4, name
    for name in ("0.bias", "1.weight", "1.running_var"):
        assert (wide.state_dict()[name] > 0).all(), name
    assert torch.equal(wide[0].weight, model[0].weight.double())


def test_in_the_type_of_the_network_weights_are_not_copied() -> None:
    model = full()
    thin = slim(model)
    options = {"values": DRAWN, "double": False, "generator": torch.Generator()}
    wide, narrow = networks(model, thin, KEEPS, **options)
    assert wide[0].weight.data_ptr() == model[0].weight.data_ptr()
    assert narrow[2].weight.data_ptr() == thin[2].weight.data_ptr()
    assert wide[1].running_var.data_ptr() != model[1].running_var.data_ptr()


@dataclass(frozen=True)
class Inputs:
    """What a user may call a network with."""

    image: torch.Tensor
    index: torch.Tensor


def test_inputs_in_an_object_are_drawn_widened_and_repeated() -> None:
    given = Inputs(torch.zeros(1, 1, 3, 3), torch.tensor([4]))
    options = {"values": CAREFUL, "double": True, "generator": torch.Generator().manual_seed(0)}
    drawn = inputs_for(given, **options)
    assert drawn.image.dtype == torch.float64
    assert (drawn.image > 0).all()
    assert torch.equal(drawn.index, given.index)
    more = with_rows(drawn, 3, values=CAREFUL)
    assert more.image.shape == (3, 1, 3, 3)
    assert more.index.tolist() == [4, 4, 4]
    assert not torch.equal(more.image[0], more.image[1])
    assert (more.image > 0).all()
    assert given.image.shape == (1, 1, 3, 3)
