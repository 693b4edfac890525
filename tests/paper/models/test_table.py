"""The networks against the paper: layers, neurons and every digit of its table of full networks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ranp.errors import UnsupportedError
from ranp.paper import models
from tests.support.paper_convention import Count, count, layers, widths

UNET15 = [32, 64, 64, 128, 128, 256, 256, 512, 256, 256, 128, 128, 64, 64]
UNET23 = [32, 64, 64, 128, 128, 256, 256, 512, 512, 1024, 1024, 1024]
UNET23 += [1024, 1024, 512, 512, 256, 256, 128, 128, 64, 64]

TABLE = {
    "unet3d-shapenet": (15, 2386, ("62.26", "237.85", "997.00")),
    "unet3d-brats": (15, 1173, ("15.57", "478.13", "3628.00")),
    "unet3d-shapenet-23": (23, 9042, ("791.31", "259.59", "1005.97")),
    "mobilenetv2-ucf101": (53, 17157, ("9.47", "0.58", "157.47")),
    "i3d-ucf101": (58, 7381, ("47.27", "27.88", "201.28")),
    "psm-sceneflow": (89, 5635, ("19.93", "771.02", "7217.37")),
}


def on_meta(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    with torch.device("meta"):
        model = models.build(name)
    example = models.example(name, device="meta")
    return model, example if isinstance(example, tuple) else (example,)


@pytest.mark.parametrize("name", TABLE)
def test_layers_and_neurons_are_the_papers(name: str) -> None:
    model, _ = on_meta(name)
    depth, neurons, _ = TABLE[name]
    assert len(layers(model)) == depth
    assert sum(widths(model)) == neurons


@pytest.mark.parametrize("name", TABLE)
def test_params_flops_and_memory_match_the_table_to_the_digit(name: str) -> None:
    model, inputs = on_meta(name)
    total = sum(count(model, inputs).values(), Count())
    assert total.params == sum(p.numel() for p in model.parameters())
    assert total.printed() == TABLE[name][2]


def test_psm_splits_into_its_2d_and_3d_parts() -> None:
    counts = count(*on_meta("psm-sceneflow"))
    flat = sum((c for m, c in counts.items() if type(m).__name__.endswith("2d")), Count())
    deep = sum((c for m, c in counts.items() if type(m).__name__.endswith("3d")), Count())
    assert flat.printed() == ("12.74", "174.94", "1902.75")
    assert deep.printed() == ("7.19", "596.08", "3595.50")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("unet3d-shapenet", [*UNET15, 50]),
        ("unet3d-brats", [*(width // 2 for width in UNET15), 5]),
        ("unet3d-shapenet-23", [*UNET23, 50]),
        ("unet3d-brats-23", [*UNET23, 5]),
    ],
)
def test_unet_widths_layer_by_layer(name: str, expected: list[int]) -> None:
    assert widths(on_meta(name)[0]) == expected


def test_psm_has_61_flat_layers_and_28_deep_ones() -> None:
    found = layers(on_meta("psm-sceneflow")[0])
    flat = [m.out_channels for m in found.values() if isinstance(m, nn.Conv2d)]
    deep = [m.out_channels for m in found.values() if isinstance(m, (nn.Conv3d, nn.ConvTranspose3d))]
    assert (len(flat), sum(flat), len(deep), sum(deep)) == (61, 4352, 28, 1283)
    assert all(m.bias is None for m in found.values())


def test_psm_layers_joined_by_additions_sit_where_the_paper_counts_them() -> None:
    order = list(layers(on_meta("psm-sceneflow")[0]).values())
    groups = [
        {2, 4, 6, 8},
        {10, 11, *range(13, 42, 2)},
        {43, 44, 46, 48, 50, 52, 54},
        {62, 64, 70, 78, 86},
        {66, 69, 74, 77, 82, 85},
    ]
    for group, width in zip(groups, (32, 64, 128, 32, 64), strict=True):
        assert {order[index].out_channels for index in group} == {width}
    transposed = {index for index, m in enumerate(order) if isinstance(m, nn.ConvTranspose3d)}
    assert transposed == {69, 70, 77, 78, 85, 86}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("unet3d-shapenet", (1, 50, 64, 64, 64)),
        ("unet3d-shapenet-23", (1, 50, 64, 64, 64)),
        ("unet3d-brats", (1, 5, 128, 128, 128)),
        ("unet3d-brats-23", (1, 5, 128, 128, 128)),
        ("mobilenetv2-ucf101", (1, 101)),
        ("i3d-ucf101", (1, 101)),
        ("psm-sceneflow", (3, 256, 512)),
    ],
)
def test_example_runs_through(name: str, shape: tuple[int, ...]) -> None:
    model, inputs = on_meta(name)
    assert model.eval()(*inputs).shape == shape


def test_every_name_of_the_contract_exists() -> None:
    assert set(models.names()) == {*TABLE, "unet3d-brats-23"}


@pytest.mark.parametrize("call", [models.build, models.example])
def test_unknown_name_is_refused_with_the_close_one(call: object) -> None:
    with pytest.raises(UnsupportedError, match="did you mean 'i3d-ucf101'"):
        call("i3d-ucf11")  # type: ignore[operator]
