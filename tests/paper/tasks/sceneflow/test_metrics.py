"""Loss and figures of stereo matching, pixel by pixel in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from ranp.errors import DataError
from ranp.paper.tasks.sceneflow.metrics import METRICS, loss, weight


def example(seed: int = 0, batch: int = 3) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Three maps, and a target with unknown pixels, pixels at 192 and beyond, and all three kinds of occlusion."""
    generator = torch.Generator().manual_seed(seed)
    disparity = torch.rand((batch, 6, 8), generator=generator) * 240 - 20
    disparity[0, 0, :4] = torch.tensor([0.0, 192.0, 191.99, -1.0])
    occlusion = torch.randint(-1, 2, (batch, 6, 8), generator=generator).float()
    noise = [torch.randn((batch, 6, 8), generator=generator) * 2 for _ in range(3)]
    return tuple(disparity + offset for offset in noise), torch.stack((disparity, occlusion), dim=1)


def by_hand(found: torch.Tensor, target: torch.Tensor) -> float:
    """Mean smooth-L1 over the pixels that count."""
    losses = []
    for got, want in zip(found.flatten().tolist(), target[:, 0].flatten().tolist(), strict=True):
        if 0 <= want < 192:
            error = abs(got - want)
            losses.append(0.5 * error**2 if error < 1 else error - 0.5)
    return sum(losses) / len(losses)


def test_loss_is_the_weighted_sum_of_three_maps():
    maps, target = example()
    wanted = 0.5 * by_hand(maps[0], target) + 0.7 * by_hand(maps[1], target) + by_hand(maps[2], target)
    assert float(loss(maps, target)) == pytest.approx(wanted, rel=1e-5)
    assert float(loss(list(maps), target)) == float(loss(maps, target))


def test_loss_of_one_map_is_plain():
    maps, target = example()
    assert float(loss(maps[2], target)) == pytest.approx(by_hand(maps[2], target), rel=1e-5)


def test_plain_target_gives_the_same_loss():
    maps, target = example()
    assert float(loss(maps, target[:, 0])) == float(loss(maps, target))
    assert weight(target[:, 0]) == weight(target)


def test_weighted_parts_are_the_whole():
    maps, target = example(batch=5)
    maps = tuple(each.double() for each in maps)
    parts = [slice(0, 1), slice(1, 4), slice(4, 5)]
    weights = [weight(target[part]) for part in parts]
    assert len(set(weights)) == 3
    losses = [float(loss(tuple(each[part] for each in maps), target[part])) for part in parts]
    mean = sum(w * value for w, value in zip(weights, losses, strict=True)) / sum(weights)
    assert mean == pytest.approx(float(loss(maps, target)), rel=1e-6)
    assert sum(weights) == weight(target)


def test_pixels_that_do_not_count_get_no_gradient():
    maps, target = example()
    found = maps[2].clone().requires_grad_()
    loss(found, target).backward()
    counts = (target[:, 0] >= 0) & (target[:, 0] < 192)
    assert (found.grad[~counts] == 0).all()
    assert (found.grad[counts] != 0).all()


@pytest.mark.parametrize("value", [-1.0, 192.0, math.nan, math.inf])
def test_a_batch_in_which_nothing_counts_gives_zero_with_a_graph(value):
    found = torch.ones((2, 4, 4), requires_grad=True)
    nothing = loss((found, found, found), torch.full((2, 4, 4), value))
    nothing.backward()
    assert nothing.item() == 0.0
    assert (found.grad == 0).all()
    assert weight(torch.full((2, 4, 4), value)) == 0


def test_half_precision_maps_are_compared_in_float32():
    maps, target = example()
    half = maps[2].to(torch.bfloat16)
    assert loss(half, target).dtype == torch.float32
    assert float(loss(half, target)) == pytest.approx(by_hand(half.float(), target), rel=1e-5)


def test_figures_are_those_of_a_loop():
    maps, target = example()
    found = METRICS(maps[2], target)
    for suffix in ("", "_visible"):
        errors = [
            abs(got - want)
            for got, want, occluded in zip(*(x.flatten().tolist() for x in (maps[2], *target.unbind(1))), strict=True)
            if 0 <= want < 192 and (not suffix or occluded == 0)
        ]
        assert found[f"epe{suffix}"] == pytest.approx(sum(errors) / len(errors), rel=1e-5)
        assert found[f"acc1{suffix}"] == pytest.approx(sum(error < 1 for error in errors) / len(errors))
        assert found[f"acc3{suffix}"] == pytest.approx(sum(error < 3 for error in errors) / len(errors))
    assert METRICS.main == "epe"
    assert not METRICS.higher_is_better


def test_an_error_of_just_one_or_three_is_not_within():
    target = torch.full((1, 1, 4), 10.0)
    figures = METRICS(target + torch.tensor([0.0, 0.5, 1.0, 3.0]), target)
    assert (figures["acc1"], figures["acc3"], figures["epe"]) == (0.5, 0.75, 1.125)


def test_batches_add_up():
    maps, target = example(batch=5)
    split = METRICS.over((maps[2][part], target[part]) for part in (slice(0, 2), slice(2, 5)))
    assert split == pytest.approx(METRICS(maps[2], target), rel=1e-9)


def test_without_masks_there_are_no_figures_of_visible_pixels():
    maps, target = example()
    assert set(METRICS(maps[2], target[:, 0])) == {"epe", "acc1", "acc3"}
    target[:, 1] = -1
    assert set(METRICS(maps[2], target)) == {"epe", "acc1", "acc3"}


def test_nan_is_never_right():
    target = torch.full((1, 2, 4), 10.0)
    found = target.clone()
    found[0, 0] = math.nan
    figures = METRICS(found, target)
    assert (figures["acc1"], figures["acc3"]) == (0.5, 0.5)
    assert math.isnan(figures["epe"])


def test_nothing_to_evaluate_is_refused():
    with pytest.raises(DataError, match="no pixel has a known disparity from 0 to below 192"):
        METRICS(torch.zeros((1, 4, 4)), torch.full((1, 4, 4), -1.0))


@pytest.mark.parametrize(
    ("output", "target", "words"),
    [
        (torch.zeros(2, 4, 4), torch.zeros(2, 2, 4, 8), ["(2, 4, 4)", "(2, 2, 4, 8)", "Crop or pad"]),
        (torch.zeros(2, 4, 4), torch.zeros(2, 3, 4, 4), ["(2, 3, 4, 4)", "(B, 2, H, W)"]),
        (torch.zeros(2, 4, 4), torch.zeros(4, 4), ["(4, 4)", "(B, H, W)"]),
        ([torch.zeros(2, 4, 4)] * 2, torch.zeros(2, 4, 4), ["2 maps", "3"]),
        ([torch.zeros(2, 4, 8), *[torch.zeros(2, 4, 4)] * 2], torch.zeros(2, 4, 4), ["(2, 4, 8)", "(2, 4, 4)"]),
        (torch.zeros(2, 4, 4), torch.full((2, 2, 4, 4), 0.5), ["occlusion 0.5", "1 (occluded), 0 (visible)"]),
    ],
)
def test_what_the_loss_cannot_use_is_refused(output, target, words):
    with pytest.raises(DataError) as caught:
        loss(output, target)
    assert all(word in str(caught.value) for word in words), str(caught.value)
