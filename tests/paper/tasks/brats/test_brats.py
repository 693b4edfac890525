"""Tumour segmentation: the paper's settings, loss and metrics against slow loops and MONAI, the sliding window."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from monai.losses import DiceLoss
from monai.metrics import compute_dice, compute_iou
from torch import Tensor, nn

from ranp.errors import DataError, UnsupportedError
from ranp.paper import models, tasks
from ranp.paper.tasks.brats import REGIONS, loss, predict

TASK = tasks.get("brats")


def batch(seed: int, count: int = 3, edge: int = 6, classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    output = 2 * torch.randn(count, classes, edge, edge, edge, generator=generator)
    return output, torch.randint(0, classes, (count, edge, edge, edge), generator=generator)


def test_the_task_is_the_papers() -> None:
    recipe = TASK.recipe
    assert (TASK.name, TASK.network, TASK.classes, TASK.strength) == ("brats", "unet3d-brats", 5, 15)
    assert TASK.sparsity == 0.9624
    assert (recipe.size, recipe.batch, recipe.epochs, recipe.valid_batch) == (128, 2, 200, 1)
    assert (recipe.optimiser, recipe.amsgrad, recipe.weight_decay) == ("adam", True, 1e-4)
    assert [recipe.rate(epoch) for epoch in (0, 149, 150, 199)] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])
    assert (len(TASK.train_data(24)), len(TASK.valid_data(24))) == (228, 57)
    assert TASK.source.options == {"in_channels": 4}


def test_the_small_recipes_network_takes_the_tasks_samples() -> None:
    recipe = TASK.cpu
    model = models.build(recipe.network, **{**TASK.source.options, **recipe.options})
    volumes, targets = (
        torch.stack(part) for part in zip(*(TASK.train_data(recipe.size)[i] for i in (0, 1)), strict=True)
    )
    assert loss(model(volumes), targets).isfinite()


def slow_loss(output: Tensor, target: Tensor) -> float:
    """The equation, one voxel and one class at a time."""
    samples, classes = output.shape[:2]
    entropy, dices = 0.0, []
    for scores, labels in zip(output.double(), target, strict=True):
        columns = scores.reshape(classes, -1).T.tolist()
        wanted = labels.flatten().tolist()
        shares = []
        for column, label in zip(columns, wanted, strict=True):
            total = sum(math.exp(value) for value in column)
            shares.append([math.exp(value) / total for value in column])
            entropy -= math.log(shares[-1][label]) / (len(wanted) * samples)
        for k in range(classes):
            common = sum(share[k] for share, label in zip(shares, wanted, strict=True) if label == k)
            both = sum(share[k] for share in shares) + wanted.count(k)
            dices.append((2 * common + 1e-5) / (both + 1e-5))
    return entropy + 0.25 * (1 - sum(dices) / len(dices))


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_cross_entropy_and_a_quarter_of_one_minus_dice(seed: int) -> None:
    output, target = batch(seed, edge=5)
    assert float(loss(output, target)) == pytest.approx(slow_loss(output, target), rel=1e-5)


def test_the_dice_term_is_monais() -> None:
    output, target = batch(5)
    dice = DiceLoss(softmax=True, to_onehot_y=True, include_background=True, batch=False)(output, target[:, None])
    entropy = nn.CrossEntropyLoss()(output, target)
    torch.testing.assert_close(loss(output, target), entropy + dice / 4)


def test_a_better_prediction_has_a_smaller_loss_and_a_perfect_one_none() -> None:
    _, target = batch(1)
    sure = nn.functional.one_hot(target, 5).movedim(-1, 1).float()
    values = [float(loss(scale * sure, target)) for scale in (0, 1, 4, 40)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(0, abs=1e-5)


def test_the_loss_of_a_batch_is_that_of_its_weighted_parts() -> None:
    output, target = (part.double() if part.is_floating_point() else part for part in batch(2, count=5))
    parts = [(output[:1], target[:1]), (output[1:3], target[1:3]), (output[3:], target[3:])]
    weights = [TASK.weight(part[1]) for part in parts]
    joined = sum(w * loss(*part) for w, part in zip(weights, parts, strict=True)) / sum(weights)
    torch.testing.assert_close(joined, loss(output, target), rtol=1e-12, atol=0)


def test_half_precision_is_summed_in_full() -> None:
    output, target = batch(4, edge=24)
    wanted = loss(output.bfloat16().float(), target)
    found = loss(output.bfloat16(), target)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted)


def test_the_loss_has_a_gradient_everywhere() -> None:
    output, target = batch(3)
    loss(output.requires_grad_(), target).backward()
    assert output.grad is not None
    assert output.grad.isfinite().all()
    assert (output.grad.flatten(2).abs().amax(dim=2) > 0).all()


@pytest.mark.parametrize("label", [-1, 5])
@pytest.mark.parametrize("use", [loss, TASK.metrics], ids=["loss", "metrics"])
def test_a_label_out_of_range_is_refused(use: object, label: int) -> None:
    output, target = batch(0)
    target[1, 2, 3, 4] = label
    with pytest.raises(DataError, match=rf"target has label {label}; allowed are 0 to 4"):
        use(output, target)  # type: ignore[operator]


@pytest.mark.parametrize("use", [loss, TASK.metrics], ids=["loss", "metrics"])
def test_shapes_that_do_not_fit_are_refused(use: object) -> None:
    output, target = batch(0)
    with pytest.raises(DataError, match=r"output \(3, 5, 6, 6, 6\) and target \(3, 6, 6, 5\) do not fit"):
        use(output, target[..., :5])  # type: ignore[operator]
    with pytest.raises(DataError, match=r"do not fit: an output of \(B, 5, D, H, W\)"):
        use(output[:, 0], target)  # type: ignore[operator]


def slow_metrics(output: Tensor, target: Tensor) -> dict[str, float]:
    regions = {"wt": {1, 2, 3, 4}, "tc": {1, 3, 4}, "et": {4}}
    sums: dict[str, float] = {}
    for scores, labels in zip(output, target, strict=True):
        found = [column.index(max(column)) for column in scores.reshape(len(scores), -1).T.tolist()]
        for name, members in regions.items():
            given = {place for place, label in enumerate(found) if label in members}
            wanted = {place for place, label in enumerate(labels.flatten().tolist()) if label in members}
            dice = 2 * len(given & wanted) / (len(given) + len(wanted)) if given | wanted else 1.0
            iou = len(given & wanted) / len(given | wanted) if given | wanted else 1.0
            for kind, value in (("dice", dice), ("iou", iou)):
                sums[f"{kind}_{name}"] = sums.get(f"{kind}_{name}", 0.0) + value / len(target)
    for kind in ("dice", "iou"):
        sums[kind] = sum(sums[f"{kind}_{name}"] for name in regions) / 3
    return sums


@pytest.mark.parametrize("seed", range(4))
def test_metrics_agree_with_sets_of_voxels(seed: int) -> None:
    output, target = batch(seed)
    target[0][target[0] == 4] = 1  # a case without enhancing tumour
    output[1, 4] = -100  # and a prediction without
    assert TASK.metrics(output, target) == pytest.approx(slow_metrics(output, target))


def test_metrics_agree_with_monais() -> None:
    output, target = batch(7)
    found = output.argmax(dim=1)
    figures = TASK.metrics(output, target)
    for region, labels in REGIONS.items():
        given, wanted = (torch.isin(x, torch.tensor(labels)).float()[:, None] for x in (found, target))
        assert figures[f"dice_{region}"] == pytest.approx(float(compute_dice(given, wanted).mean()))
        assert figures[f"iou_{region}"] == pytest.approx(float(compute_iou(given, wanted).mean()))


def test_a_region_that_is_not_there() -> None:
    target = torch.zeros(1, 4, 4, 4, dtype=torch.long)
    target[0, :2] = 2
    right = nn.functional.one_hot(target, 5).movedim(-1, 1).float()
    assert set(TASK.metrics(right, target).values()) == {1.0}
    wrong = right.clone()
    wrong[0, 4, 0, 0, 0] = 2  # one voxel of edema is called enhancing: still whole tumour, but a core from nowhere
    figures = TASK.metrics(wrong, target)
    assert (figures["dice_wt"], figures["dice_tc"], figures["dice_et"]) == (1, 0, 0)
    assert figures["dice"] == pytest.approx(1 / 3)


def test_batches_add_up_to_the_whole() -> None:
    output, target = batch(9, count=5)
    parts = [(output[:2], target[:2]), (output[2:], target[2:])]
    assert TASK.evaluate(parts) == pytest.approx(TASK.metrics(output, target))
    assert TASK.metrics.main in TASK.metrics(output, target)


class Pointwise(nn.Module):
    """Five channels that depend on their voxel alone; remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, volume: Tensor) -> Tensor:
        self.shapes.append(tuple(volume.shape[2:]))
        return torch.stack([(k + 1) * volume[:, k % volume.shape[1]] for k in range(5)], dim=1)


@pytest.mark.parametrize("shape", [(20, 17, 13), (8, 8, 8), (6, 12, 5)])
def test_windows_of_the_training_size_are_put_together_in_their_places(shape: tuple[int, int, int]) -> None:
    volume = torch.randn(2, 4, *shape, generator=torch.Generator().manual_seed(0))
    model = Pointwise()
    output = predict(model, volume, 8)
    assert set(model.shapes) == {(8, 8, 8)}
    torch.testing.assert_close(output, Pointwise()(volume), rtol=1e-4, atol=1e-4)


def test_without_monai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    output, target = batch(0)
    monkeypatch.setitem(sys.modules, "monai.losses.dice", None)
    monkeypatch.setitem(sys.modules, "monai.inferers.utils", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'ranp\[medical\]'"):
        loss(output, target)
    with pytest.raises(UnsupportedError, match=r"pip install 'ranp\[medical\]'"):
        predict(Pointwise(), output, 8)
    assert TASK.metrics(output, target)  # these need nothing
