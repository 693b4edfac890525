"""Drawing weights: the right spread for each kind of layer, the same for the same seed, and nothing else touched."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ranp.errors import UnsupportedError
from ranp.slimming.initialisation import initialise


def std(layer: nn.Module, how: str) -> float:
    initialise(layer, how, seed=3)
    assert abs(layer.weight.mean().item()) < 0.05 * layer.weight.std().item()
    return layer.weight.std().item()


# (layer, inputs of one group * kernel, outputs * kernel)
FANS = [
    (nn.Conv3d(32, 48, 3), 32 * 27, 48 * 27),
    (nn.Conv2d(64, 32, (3, 5), groups=4), 16 * 15, 32 * 15),
    (nn.Conv1d(64, 64, 9), 64 * 9, 64 * 9),
    (nn.ConvTranspose3d(64, 16, 3), 64 * 27, 16 * 27),
    (nn.ConvTranspose2d(64, 128, 4, groups=2), 32 * 16, 128 * 16),
    (nn.Linear(300, 200), 300, 200),
]


@pytest.mark.parametrize(("layer", "fan_in", "fan_out"), FANS)
def test_glorot_spread(layer: nn.Module, fan_in: int, fan_out: int) -> None:
    assert std(layer, "glorot") == pytest.approx(math.sqrt(2 / (fan_in + fan_out)), rel=0.03)


@pytest.mark.parametrize(("layer", "fan_in", "fan_out"), FANS)
def test_kaiming_spread_counts_inputs_also_of_a_transposed_layer(layer: nn.Module, fan_in: int, fan_out: int) -> None:
    assert std(layer, "kaiming") == pytest.approx(math.sqrt(2 / fan_in), rel=0.03)


def test_glorot_is_torchs_for_ordinary_and_depthwise_convolutions() -> None:
    for layer in (nn.Conv3d(24, 40, 3), nn.Conv3d(600, 600, 3, groups=600)):
        torch_std = nn.init.xavier_normal_(torch.empty_like(layer.weight)).std().item()
        assert std(layer, "glorot") == pytest.approx(torch_std, rel=0.03)


@pytest.mark.parametrize(
    "layer", [nn.Conv3d(4, 24, 3), nn.ConvTranspose3d(4, 24, 3), nn.ConvTranspose2d(8, 6, 3, groups=2), nn.Linear(9, 5)]
)
def test_orthogonal_output_channels(layer: nn.Module) -> None:
    layer = layer.double()
    initialise(layer, "orthogonal")
    weight = layer.weight.detach()
    if isinstance(layer, (nn.ConvTranspose2d, nn.ConvTranspose3d)):
        per_group = weight.unflatten(0, (layer.groups, -1)).transpose(1, 2)  # groups, outputs, inputs, kernel
        weight = per_group.flatten(0, 1)
    rows = weight.flatten(1)
    assert torch.allclose(rows @ rows.T, torch.eye(len(rows), dtype=torch.float64), atol=1e-12)


def test_orthogonal_inputs_where_outputs_outnumber_them() -> None:
    layer = nn.Linear(5, 9).double()
    initialise(layer, "orthogonal")
    assert torch.allclose(layer.weight.T @ layer.weight, torch.eye(5, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("norm", [nn.BatchNorm3d(4000), nn.InstanceNorm2d(4000, affine=True), nn.GroupNorm(4, 4000)])
def test_norms_start_near_one(norm: nn.Module) -> None:
    nn.init.constant_(norm.weight, 7.0)
    nn.init.constant_(norm.bias, 7.0)
    if isinstance(norm, nn.BatchNorm3d):
        norm.running_mean.fill_(3.0)
        norm.running_var.fill_(3.0)
        norm.num_batches_tracked.fill_(3)
    initialise(norm)
    assert norm.weight.mean().item() == pytest.approx(1.0, abs=2e-3)
    assert norm.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not norm.bias.any()
    if isinstance(norm, nn.BatchNorm3d):
        assert not norm.running_mean.any()
        assert (norm.running_var == 1).all()
        assert norm.num_batches_tracked == 0


def mixed() -> nn.Sequential:
    convs = nn.Conv3d(2, 6, 3), nn.BatchNorm3d(6), nn.PReLU(6), nn.ConvTranspose3d(6, 4, 2)
    return nn.Sequential(*convs, nn.GRU(4, 3), nn.Embedding(5, 2))


@pytest.mark.parametrize("how", ["glorot", "kaiming", "orthogonal", lambda m: m.apply(_uniform)])
def test_same_seed_same_weights_whatever_was_drawn_before(how: object) -> None:
    first, second, other = mixed(), mixed(), mixed()
    state = torch.random.get_rng_state()
    initialise(first, how, seed=5)  # type: ignore[arg-type]
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(17)
    initialise(second, how, seed=5)  # type: ignore[arg-type]
    initialise(other, how, seed=6)  # type: ignore[arg-type]
    assert torch.equal(first[0].weight, second[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)


def _uniform(module: nn.Module) -> None:
    if isinstance(module, nn.Conv3d):
        nn.init.uniform_(module.weight)


def test_named_initialisations_reset_every_kind_of_module() -> None:
    first, second = mixed(), mixed()
    for model in (first, second):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(5, 6)
        initialise(model, "glorot", seed=1)
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert a.abs().max() < 5, name
    assert not first[0].bias.any()
    assert not first[3].bias.any()


def test_two_modules_of_one_kind_do_not_get_equal_weights() -> None:
    model = nn.Sequential(nn.GRU(4, 3), nn.GRU(4, 3), nn.Linear(4, 3), nn.Linear(4, 3))
    initialise(model)
    assert not torch.equal(model[0].weight_ih_l0, model[1].weight_ih_l0)
    assert not torch.equal(model[2].weight, model[3].weight)


def test_a_function_sees_children_before_parents_once_each() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    seen: list[nn.Module] = []
    initialise(model, seen.append)
    assert seen == [model[0], model[1][0], model[1], model]


def test_values_do_not_depend_on_dtype() -> None:
    single, half = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3).to(torch.bfloat16)
    initialise(single)
    initialise(half)
    assert torch.equal(single.weight.to(torch.bfloat16), half.weight)
    assert single.weight.requires_grad
    assert single.weight.grad_fn is None


class ResetsChildren(nn.Module):
    """A module whose ``reset_parameters`` reaches into another one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.inner = nn.Linear(3, 3)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.scale)
        self.inner.reset_parameters()


def pretrained() -> nn.Sequential:
    parts = nn.Conv3d(2, 6, 3), nn.BatchNorm3d(6), nn.GRU(4, 3), nn.Embedding(5, 2), nn.PReLU(6), ResetsChildren()
    model = nn.Sequential(*parts, nn.ConvTranspose3d(6, 4, 2), nn.BatchNorm3d(4, affine=False))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 3)
    return model


@pytest.mark.parametrize("how", ["glorot", "kaiming", "orthogonal"])
@pytest.mark.parametrize("frozen", ["all", "half", "other half"])
def test_what_is_frozen_keeps_its_values_and_changes_no_other_draw(how: str, frozen: str) -> None:
    before, drawn, model = pretrained(), pretrained(), pretrained()
    initialise(drawn, how, seed=4)
    for index, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(frozen != "all" and index % 2 == (frozen == "half"))
    initialise(model, how, seed=4)
    for (name, now), old, new in zip(model.named_parameters(), before.parameters(), drawn.parameters(), strict=True):
        assert torch.equal(now, new if now.requires_grad else old), name


def test_statistics_of_a_norm_stay_with_its_frozen_parameters() -> None:
    def fresh(norm: nn.Module) -> bool:
        return not norm.running_mean.any()

    whole, part, bare, loose = (pretrained() for _ in range(4))
    whole[1].requires_grad_(False)
    part[1].weight.requires_grad_(False)
    for model in (whole, part, loose):
        initialise(model)
    assert [fresh(model[1]) for model in (whole, part, loose)] == [False, True, True]
    bare.requires_grad_(False)  # a norm without parameters belongs to what is around it
    nested = nn.Sequential(bare, nn.Conv3d(2, 2, 1))
    initialise(nested)
    assert not fresh(bare[7])
    assert fresh(loose[7])


def test_the_log_tells_what_is_left_frozen(caplog: pytest.LogCaptureFixture) -> None:
    model = pretrained()
    model[0].requires_grad_(False)
    with caplog.at_level("INFO", "ranp.slimming.initialisation"):
        initialise(model)
    assert "leaves frozen parameters as they are: 0.weight, 0.bias" in caplog.text
    caplog.clear()
    initialise(pretrained())
    assert "frozen" not in caplog.text


def test_meta_parameters_are_passed_over() -> None:
    with torch.device("meta"):
        model = mixed()
    initialise(model)
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize("how", ["golrot", 3])
def test_unknown_names_are_refused(how: object) -> None:
    with pytest.raises(UnsupportedError, match=r"unknown initialisation .* Allowed: glorot, kaiming, orthogonal"):
        initialise(nn.Linear(2, 2), how)  # type: ignore[arg-type]
