"""The predicted peak of a training step against the one that PyTorch's allocator reports, and against a peer's."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import ranp
from benchmarks.pairs import table
from ranp.costs.memory import measured_peak, training_memory
from ranp.costs.step import TrainingStep
from ranp.costs.step.cpu import this_cpu
from ranp.costs.step.losses import stand_in_loss
from ranp.costs.step.stand_ins import stand_in_inputs, stand_in_network
from ranp.paper import models

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """A network at a size, and the step that it takes.

    Attributes:
        name: What the table calls it.
        build: Makes it.
        shapes: Shapes of the inputs, batch first.
        step: Optimiser, precision, checkpointing.
        sparsity: Fraction of channels removed by magnitude, 0 for the full network; as far as feasible.
    """

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[Shape, ...]
    step: TrainingStep = field(default_factory=TrainingStep)
    sparsity: float = 0.0

    def network(self) -> nn.Module:
        """The network, slim if it shall be."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = self.build()
        if not self.sparsity:
            return model
        example = tuple(torch.empty(shape, device="meta") for shape in self.shapes)
        trace = ranp.trace(model, example)
        scores = ranp.balance(
            ranp.score(model, [], torch.nn.functional.cross_entropy, trace=trace, criterion="magnitude")
        )
        sparsity = min(self.sparsity, ranp.max_sparsity(scores, trace))
        return ranp.slim(model, ranp.select(scores, trace, sparsity=sparsity))

    @property
    def size(self) -> str:
        return " + ".join("x".join(str(extent) for extent in shape) for shape in self.shapes)

    @property
    def label(self) -> str:
        marks = [self.step.optimiser, self.step.precision] + ["checkpoints"] * self.step.checkpointing
        return ", ".join(marks)


def run(*, quick: bool) -> None:
    rows, errors, peers = [], [], []
    for case in _quick(cases()) if quick else cases():
        model, inputs = case.network(), tuple(torch.randn(shape) for shape in case.shapes)
        predicted = training_memory(model, inputs, step=case.step).peak
        measured = measured_peak(model, inputs, step=case.step)
        peer = _peer(model, inputs, case.step)
        errors.append(100 * (predicted - measured) / measured)
        if peer is not None:
            peers.append(100 * (peer - measured) / measured)
        rows.append(
            (
                case.name + (f", {case.sparsity:.0%} removed" if case.sparsity else ""),
                case.size,
                case.label,
                f"{predicted / 2**20:.2f}",
                f"{measured / 2**20:.2f}",
                f"{errors[-1]:+.2f}",
                "-" if peer is None else f"{peers[-1]:+.2f}",
            )
        )
        del model, inputs
        gc.collect()
    header = ("network", "inputs", "step", "predicted MiB", "measured MiB", "error %", "MemTracker error %")
    notes = (
        f"Error over {len(errors)} cases: median {_typical(errors):.2f} %, worst {max(map(abs, errors)):.2f} %, "
        f"most under {min(0.0, *errors):.2f} %. MemTracker over {len(peers)} cases: median {_typical(peers):.2f} %, "
        f"worst {max(map(abs, peers)):.2f} %, most under {min(0.0, *peers):.2f} %.",
        f"OneDNN uses {this_cpu().isa}.",
        "Measured: all that PyTorch's CPU allocator reports during one step in its steady state, added up. "
        "MemTracker: `torch.distributed._tools.mem_tracker` under `FakeTensorMode`, on the same step, Adam fused.",
    )
    print(table("Predicted against measured training memory", header, rows, notes))


def _typical(errors: list[float]) -> float:
    return statistics.median(map(abs, errors))


def _quick(every: Iterator[MemoryCase]) -> list[MemoryCase]:
    return list(every)[::6]


def cases() -> Iterator[MemoryCase]:
    """The paper's networks and MONAI's, full and slim, at sizes that a core runs in seconds."""
    yield from _paper_cases()
    yield from _monai_cases()


def _paper_cases() -> Iterator[MemoryCase]:
    def build(name: str, **options: Any) -> Callable[[], nn.Module]:
        return lambda: models.build(name, **options)

    sgd, momentum, adam = (TrainingStep(optimiser=name) for name in ("sgd", "momentum", "adam"))
    amp = TrainingStep(optimiser="momentum", precision="amp-bfloat16")
    thrifty = TrainingStep(optimiser="sgd", checkpointing=True)
    shapenet, brats = build("unet3d-shapenet"), build("unet3d-brats")
    yield MemoryCase("3D-UNet 15, ShapeNet", shapenet, ((1, 1, 32, 32, 32),), adam)
    yield MemoryCase("3D-UNet 15, ShapeNet", shapenet, ((2, 1, 32, 32, 32),), sgd)
    yield MemoryCase("3D-UNet 15, ShapeNet", shapenet, ((2, 1, 32, 32, 32),), sgd, 0.5)
    yield MemoryCase("3D-UNet 15, ShapeNet", shapenet, ((2, 1, 32, 32, 32),), adam, 0.78)
    yield MemoryCase("3D-UNet 15, ShapeNet", shapenet, ((4, 1, 24, 24, 24),), amp, 0.5)
    yield MemoryCase("3D-UNet 23, ShapeNet", build("unet3d-shapenet-23"), ((2, 1, 32, 32, 32),), momentum)
    yield MemoryCase("3D-UNet 15, BraTS", brats, ((1, 4, 48, 48, 48),), momentum)
    yield MemoryCase("3D-UNet 15, BraTS", brats, ((2, 4, 32, 40, 24),), adam, 0.8)
    yield MemoryCase("3D-UNet 15, BraTS", brats, ((1, 4, 48, 48, 48),), thrifty, 0.5)
    mobile, clip = build("mobilenetv2-ucf101"), ((2, 3, 16, 56, 56),)
    yield MemoryCase("MobileNetV2-3D", mobile, clip, momentum)
    yield MemoryCase("MobileNetV2-3D", mobile, clip, adam, 0.33)
    yield MemoryCase("MobileNetV2-3D", mobile, clip, thrifty)
    yield MemoryCase("I3D", build("i3d-ucf101"), ((1, 3, 16, 224, 224),), sgd, 0.5)
    stereo = build("psm-sceneflow", disparities=32, windows=(32, 16, 8, 4))
    yield MemoryCase("PSM", stereo, ((2, 3, 128, 128),) * 2, adam)
    yield MemoryCase("PSM", stereo, ((2, 3, 128, 128),) * 2, sgd, 0.46)


def _monai_cases() -> Iterator[MemoryCase]:
    from monai.networks import nets

    sgd, momentum, adam, adamw, rmsprop = (
        TrainingStep(optimiser=name) for name in ("sgd", "momentum", "adam", "adamw", "rmsprop")
    )
    amp = TrainingStep(optimiser="adamw", precision="amp-bfloat16")
    thrifty = TrainingStep(optimiser="adam", checkpointing=True)

    def unet() -> nn.Module:
        return nets.UNet(3, 1, 3, (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2)

    def dynunet() -> nn.Module:
        return nets.DynUNet(3, 1, 3, [3] * 4, [1, 2, 2, 2], [2] * 3, filters=(16, 32, 64, 128))

    def segresnet() -> nn.Module:
        return nets.SegResNet(3, 16, in_channels=1, out_channels=3)

    def unetr() -> nn.Module:
        return nets.UNETR(1, 3, (32, 32, 32), feature_size=8, hidden_size=192, mlp_dim=384, num_heads=6)

    def swin() -> nn.Module:
        return nets.SwinUNETR(1, 3, feature_size=12)

    yield MemoryCase("MONAI UNet", unet, ((2, 1, 48, 48, 48),), adam)
    yield MemoryCase("MONAI UNet", unet, ((4, 1, 32, 32, 32),), momentum, 0.6)
    yield MemoryCase("MONAI UNet", unet, ((2, 1, 48, 48, 48),), amp)
    yield MemoryCase("MONAI BasicUNet", lambda: nets.BasicUNet(3, 1, 3), ((1, 1, 48, 48, 48),), sgd)
    yield MemoryCase("MONAI BasicUNet", lambda: nets.BasicUNet(3, 1, 3), ((2, 1, 32, 32, 32),), amp)
    yield MemoryCase("MONAI DynUNet", dynunet, ((1, 1, 40, 40, 40),), momentum)
    yield MemoryCase("MONAI DynUNet", dynunet, ((3, 1, 32, 32, 32),), adam, 0.7)
    yield MemoryCase("MONAI SegResNet", segresnet, ((1, 1, 48, 48, 48),), rmsprop)
    yield MemoryCase("MONAI SegResNet", segresnet, ((2, 1, 32, 32, 32),), sgd, 0.5)
    yield MemoryCase("MONAI SegResNet", segresnet, ((1, 1, 48, 48, 48),), thrifty)
    yield MemoryCase("MONAI VNet", lambda: nets.VNet(3, 1, 2), ((1, 1, 32, 32, 32),), sgd)
    yield MemoryCase(
        "MONAI AttentionUnet",
        lambda: nets.AttentionUnet(3, 1, 3, (16, 32, 64, 128), (2, 2, 2)),
        ((2, 1, 32, 32, 32),),
        adam,
    )
    yield MemoryCase("MONAI UNETR", unetr, ((1, 1, 32, 32, 32),), adamw)
    yield MemoryCase("MONAI SwinUNETR", swin, ((1, 1, 64, 64, 64),), sgd)
    yield MemoryCase("MONAI DenseNet121", lambda: nets.DenseNet121(3, 1, 3), ((2, 1, 32, 32, 32),), momentum)
    yield MemoryCase(
        "MONAI ResNet18",
        lambda: nets.resnet18(spatial_dims=3, n_input_channels=1, num_classes=3),
        ((2, 1, 48, 48, 48),),
        sgd,
    )
    yield MemoryCase(
        "MONAI EfficientNet-B0",
        lambda: nets.EfficientNetBN("efficientnet-b0", spatial_dims=3, in_channels=1, num_classes=3),
        ((2, 1, 32, 32, 32),),
        adam,
    )


def _peer(model: nn.Module, inputs: tuple[Any, ...], step: TrainingStep) -> int | None:
    """PyTorch's MemTracker on the second of two steps; None where it does not run or cannot be asked for this step."""
    from torch.distributed._tools.mem_tracker import MemTracker

    if step.checkpointing:
        return None
    device = torch.device("cpu")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    copy = stand_in_network(model, mode, device, None).train()
    fakes = stand_in_inputs(inputs, mode, device, None)
    try:
        with mode:
            optimiser = _peer_optimiser(step.optimiser, copy)
            labels: list[torch.Tensor] = []
            stand_in_loss(copy(*fakes), lambda *made: labels.append(_empty(*made)) or labels[-1])
            tracker = MemTracker()
            tracker.track_external(copy, optimiser, *fakes, *labels)
            with tracker as watch:
                for index in range(2):
                    queue = iter(labels)
                    with torch.autocast("cpu", torch.bfloat16, enabled=step.precision == "amp-bfloat16"):
                        output = copy(*fakes)
                        value = stand_in_loss(output, lambda *made, queue=queue: next(queue))
                    value.backward()
                    optimiser.step()
                    optimiser.zero_grad(set_to_none=True)
                    del output, value
                    if index == 0:
                        watch.reset_mod_stats()
            return int(tracker.get_tracker_snapshot("peak")[device]["Total"])
    except Exception as error:  # A peer may refuse a network in any way.
        print(f"MemTracker does not run {type(model).__name__}: {type(error).__name__}")
        return None


def _empty(shape: Shape, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def _peer_optimiser(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Fused where the ordinary one asks for the value of a tensor, which the peer's data-free mode has not."""
    parameters = list(model.parameters())
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=1e-3)
    if name in ("adam", "adamw"):
        kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
        return kind(parameters, lr=1e-3, fused=True)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9 if name == "momentum" else 0.0)
