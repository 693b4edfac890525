"""Slim networks inside MONAI: sliding windows, dict batches, training loops, metrics, and what training loops do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ranp
from ranp.errors import DataError

pytest.importorskip("monai")
from monai.data import DataLoader, Dataset, MetaTensor, decollate_batch
from monai.inferers import SlidingWindowInferer, sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss
from monai.metrics import DiceMetric
from monai.networks.nets import DynUNet, SegResNet, UNet
from monai.transforms import AsDiscrete, Compose, RandFlipd, RandSpatialCropSamplesd

from ranp.integrations.monai import deep_supervision, pairs

SIZE = 16


def unet() -> nn.Module:
    torch.manual_seed(0)
    return UNet(3, 1, 2, channels=(8, 16, 32), strides=(2, 2), num_res_units=1)


def segresnet() -> nn.Module:
    torch.manual_seed(0)
    return SegResNet(3, init_filters=8, in_channels=1, out_channels=2, blocks_down=(1, 1), blocks_up=(1,))


NETWORKS: dict[str, Callable[[], nn.Module]] = {"unet": unet, "segresnet": segresnet}


def balls(count: int, size: int = SIZE) -> list[dict[str, Tensor]]:
    """Balls in noise, with the metadata a reader would give."""
    generator = torch.Generator().manual_seed(0)
    axis = torch.arange(size, dtype=torch.float32)
    samples = []
    for _ in range(count):
        centre = size / 4 + torch.rand(3, generator=generator) * size / 2
        grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
        label = ((grid - centre).norm(dim=-1) < size / 4).float()[None]
        image = label + 0.3 * torch.randn(label.shape, generator=generator)
        samples.append({"image": MetaTensor(image), "label": MetaTensor(label)})
    return samples


def loader(count: int = 4, **options: Any) -> DataLoader:
    return DataLoader(Dataset(balls(count), options.pop("transform", None)), batch_size=2, **options)


def dice_ce() -> nn.Module:
    return DiceCELoss(to_onehot_y=True, softmax=True)


def pruned(name: str = "unet", **options: Any) -> ranp.Pruned:
    return ranp.prune(NETWORKS[name](), pairs(loader()), dice_ce(), **{"sparsity": 0.4, "exact": True, **options})


def test_pairs_are_plain_tensors_that_can_be_gone_through_again() -> None:
    source = pairs(loader())
    assert len(source) == 2
    first, again = list(source), list(source)
    for (image, label), (image2, label2) in zip(first, again, strict=True):
        assert type(image) is type(label) is Tensor
        assert image.shape == label.shape == (2, 1, SIZE, SIZE, SIZE)
        assert torch.equal(image, image2)
        assert torch.equal(label, label2)
    raw = next(iter(loader()))
    assert torch.equal(first[0][0], raw["image"].as_tensor())


def test_pairs_with_several_keys_no_target_a_device_and_crops() -> None:
    batch = {"t1": MetaTensor(torch.ones(1, 2)), "t2": torch.zeros(1, 2), "seg": torch.ones(1)}
    ((inputs, target),) = pairs([batch], image=("t1", "t2"), label=None, device="meta")
    assert isinstance(inputs, tuple)
    assert [type(x) for x in inputs] == [Tensor, Tensor]
    assert all(x.device.type == "meta" for x in inputs)
    assert target is None
    crops = RandSpatialCropSamplesd(["image", "label"], 8, num_samples=3, random_size=False)
    images, labels = next(iter(pairs(loader(transform=crops))))  # a DataLoader flattens lists of crops by itself
    assert images.shape == labels.shape == (6, 1, 8, 8, 8)
    part = {"image": torch.ones(2, 1), "label": torch.ones(2)}
    assert next(iter(pairs([[part, part]])))[0].shape == (4, 1)
    with pytest.raises(DataError, match=r"no 'label'. Its keys: t1, t2, seg"):
        list(pairs([batch], image="t1"))
    with pytest.raises(DataError, match="not a dict"):
        list(pairs([torch.ones(1)]))


def test_pairs_prune_as_plain_pairs_do() -> None:
    plain = [(batch["image"].as_tensor(), batch["label"].as_tensor()) for batch in loader()]
    expected = ranp.prune(unet(), plain, dice_ce(), sparsity=0.4, exact=True)
    found = pruned()
    assert found.plan == expected.plan
    assert found.plan.sparsity.removed > 0
    assert found.verification.ok


@pytest.mark.parametrize("name", NETWORKS)
def test_sliding_windows(name: str) -> None:
    model = pruned(name).model.eval()
    volume = balls(1, size=24)[0]["image"][None]
    plain = volume.as_tensor()
    with torch.no_grad():
        whole = model(plain)
        one_window = sliding_window_inference(plain, (24, 24, 24), 1, model)
        assert torch.equal(one_window, whole)
        windows = SlidingWindowInferer(roi_size=(16, 16, 16), sw_batch_size=2, overlap=0.5, mode="gaussian")(
            volume, model
        )
        assert isinstance(windows, MetaTensor)
        assert windows.shape == (1, 2, 24, 24, 24)
        assert torch.isfinite(windows).all()
        tiles = sliding_window_inference(
            plain[..., :16, :16, :], (16, 16, 8), 1, model, overlap=0
        )  # apart: no blending
        for z in (0, 8, 16):
            torch.testing.assert_close(tiles[..., z : z + 8], model(plain[..., :16, :16, z : z + 8]))


def accuracy(model: nn.Module) -> float:
    """MONAI's validation: windows, decollated predictions, Dice."""
    metric = DiceMetric(include_background=False, num_classes=2)
    prediction, truth = Compose([AsDiscrete(argmax=True, to_onehot=2)]), Compose([AsDiscrete(to_onehot=2)])
    model.eval()
    with torch.no_grad():
        for batch in loader():
            output = sliding_window_inference(batch["image"], (SIZE, SIZE, SIZE), 2, model)
            metric(
                y_pred=[prediction(item) for item in decollate_batch(output)],
                y=[truth(item) for item in decollate_batch(batch["label"])],
            )
    return float(metric.aggregate())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_slim_network_learns_in_a_monai_loop(name: str) -> None:
    found = pruned(name, sparsity=0.3)
    model, loss = found.model, dice_ce()
    before = accuracy(model)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    batches = loader(transform=RandFlipd(["image", "label"], prob=0.5, spatial_axis=0))
    for _ in range(8):
        model.train()
        for batch in batches:
            optimiser.zero_grad()
            value = loss(model(batch["image"]), batch["label"])
            value.backward()
            optimiser.step()
            losses.append(value.item())
    assert sum(losses[-2:]) < 0.6 * sum(losses[:2])
    assert accuracy(model) > max(before, 0.7)


def test_deep_supervision_of_a_stacked_output() -> None:
    torch.manual_seed(0)
    model = DynUNet(
        3, 1, 2, kernel_size=[3, 3, 3, 3], strides=[1, 2, 2, 2], upsample_kernel_size=[2, 2, 2],
        filters=[8, 16, 24, 32],
        deep_supervision=True, deep_supr_num=2,
    )  # fmt: skip
    loss = deep_supervision(dice_ce())
    found = ranp.prune(model, pairs(loader(2)), loss, sparsity=0.3)
    assert found.verification.ok
    image, label = next(iter(pairs(loader(2))))
    stacked = found.model.train()(image)
    assert stacked.shape == (2, 3, 2, SIZE, SIZE, SIZE)
    single, heads = dice_ce(), stacked.unbind(1)
    expected = single(heads[0], label) + 0.5 * single(heads[1], label) + 0.25 * single(heads[2], label)
    torch.testing.assert_close(loss(stacked, label), expected)
    torch.testing.assert_close(loss(list(heads), label), expected)
    torch.testing.assert_close(loss(heads[0], label), single(heads[0], label))
    small = torch.zeros(2, 2, 8, 8, 8)
    half = nn.functional.interpolate(label, size=8, mode="nearest-exact")
    torch.testing.assert_close(loss([heads[0], small], label), single(heads[0], label) + 0.5 * single(small, half))


def test_autocast_channels_last_checkpointing_and_averages() -> None:
    found = pruned("unet")
    image, label = next(iter(pairs(loader())))
    loss = DiceLoss(to_onehot_y=True, softmax=True)

    def gradients(run: Callable[[nn.Module], Tensor]) -> tuple[Tensor, list[Tensor]]:
        model = copy.deepcopy(found.model).train()
        value = run(model)
        value.backward()
        return value.detach(), [p.grad for p in model.parameters() if p.grad is not None]

    value, grads = gradients(lambda model: loss(model(image), label))
    assert len(grads) == len(list(found.model.parameters()))
    again, same = gradients(lambda model: loss(checkpoint(model, image, use_reentrant=False), label))
    assert torch.equal(value, again)
    assert all(torch.equal(a, b) for a, b in zip(grads, same, strict=True))

    def last(model: nn.Module) -> Tensor:
        model.to(memory_format=torch.channels_last_3d)
        return loss(model(image.to(memory_format=torch.channels_last_3d)), label)

    again, close = gradients(last)
    torch.testing.assert_close(again, value, rtol=1e-4, atol=1e-5)
    for a, b in zip(grads, close, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)

    def cast(model: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(model(image).float(), label)

    again, rough = gradients(cast)
    torch.testing.assert_close(again, value, rtol=0.02, atol=0.02)
    assert all(torch.isfinite(grad).all() and grad.dtype == torch.float32 for grad in rough)

    average = torch.optim.swa_utils.AveragedModel(
        found.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    )
    average.update_parameters(found.model)
    with torch.no_grad():
        for parameter in found.model.parameters():
            parameter.add_(1.0)
    average.update_parameters(found.model)
    for mean, parameter in zip(average.module.parameters(), found.model.parameters(), strict=True):
        torch.testing.assert_close(mean, parameter - 0.5)


def test_a_channels_last_network_is_pruned_alike_and_stays_so() -> None:
    image, label = next(iter(pairs(loader())))
    plain = ranp.prune(unet(), [(image, label)], dice_ce(), sparsity=0.4)
    model = unet().to(memory_format=torch.channels_last_3d)
    found = ranp.prune(model, [(image.to(memory_format=torch.channels_last_3d), label)], dice_ce(), sparsity=0.4)
    assert found.plan.widths == plain.plan.widths
    weights = [p for p in found.model.parameters() if p.dim() == 5]
    assert all(weight.is_contiguous(memory_format=torch.channels_last_3d) for weight in weights)


def test_monais_own_engine() -> None:
    pytest.importorskip("ignite")
    from monai.engines import SupervisedTrainer

    found = pruned("segresnet", sparsity=0.3)
    before = copy.deepcopy(found.model.state_dict())
    losses: list[float] = []
    trainer = SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=3,
        train_data_loader=loader(),
        network=found.model,
        optimizer=torch.optim.Adam(found.model.parameters(), 1e-2),
        loss_function=dice_ce(),
        decollate=False,
    )
    trainer.add_event_handler("ITERATION_COMPLETED", lambda engine: losses.append(engine.state.output["loss"].item()))
    trainer.run()
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    assert not any(torch.equal(before[name], value) for name, value in found.model.named_parameters())


def test_meta_tensors_prune_without_being_converted() -> None:
    batches = [(batch["image"], batch["label"]) for batch in loader()]
    found = ranp.prune(unet(), batches, dice_ce(), sparsity=0.4, exact=True)
    assert found.plan == pruned().plan
