"""The networks that were written for the zoo run, train, and have as many parameters as the published ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.support.oracles import tensors
from zoo import (
    audio,
    audio_wav2vec,
    image,
    image_restormer,
    medical,
    medical_segformer,
    medical_unetrpp,
    medical_uxnet,
    stereo,
    stereo_acvnet,
    stereo_groupwise,
    video,
    video_c3d,
    video_efficient,
    video_hara,
    video_i3d,
    video_masked,
    video_s3d,
    video_slowfast,
    video_swin,
    video_temporal,
    video_torchvision,
    video_uniformer,
    video_vae,
    video_x3d,
)
from zoo.entry import Entry, loss

FAMILIES = {"medical": medical, "video": video, "stereo": stereo, "image": image, "audio": audio}
ENTRIES = tuple(entry for family in FAMILIES.values() for entry in family.NETWORKS)

PUBLISHED: dict[str, tuple[Callable[[], nn.Module], int]] = {
    # torchvision's documentation, to the parameter, for 400 classes
    "r3d_18": (video_torchvision.r3d_18, 33_371_472),
    "mc3_18": (video_torchvision.mc3_18, 11_695_440),
    "r2plus1d_18": (video_torchvision.r2plus1d_18, 31_505_325),
    "s3d": (video_s3d.S3D, 8_320_048),
    "swin3d_t": (video_swin.SwinTransformer3d, 28_158_070),
    "resnet50": (image.ResNet, 25_557_032),
    "convnext_tiny": (image.ConvNeXt, 28_589_128),
}

IN_MILLIONS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    # PyTorchVideo's model zoo, for 400 classes
    "SlowFast R50 8x8": (video_slowfast.SlowFast, "34.57"),
    "SlowFast R50 4x16": (lambda: video_slowfast.SlowFast(alpha=8, fusion_kernel=5), "34.48"),
    "I3D R50": (video_i3d.I3DResNet, "28.04"),
    "CSN R101": (lambda: video_torchvision.csn(video_torchvision.Conv3DDepthwise, (3, 4, 23, 3)), "22.21"),
    "X3D-S": (video_x3d.X3D, "3.79"),
    "X3D-L": (lambda: video_x3d.X3D(depth_factor=5.0), "6.15"),
    # MMAction2's model zoo
    "I3D NL R50": (lambda: video_i3d.I3DResNet(nonlocal_inds=video_i3d.NONLOCAL), "35.4"),
    "C3D": (lambda: video_c3d.C3D(101), "78.4"),
    # Resource efficient 3D convolutional neural networks (Köpüklü 2019), 600 classes
    "3D-ShuffleNetV1": (lambda: video_efficient.ShuffleNet(num_classes=600), "1.52"),
    "3D-ShuffleNetV2": (video_efficient.ShuffleNetV2, "1.91"),
    "3D-MobileNetV1": (video_efficient.MobileNet, "3.91"),
    "3D-SqueezeNet": (lambda: video_efficient.SqueezeNet(112, 16), "2.15"),
    "3D-ResNeXt-101": (lambda: video_hara.resnext((3, 4, 23, 3), 600), "48.75"),
    # the papers
    "TSM": (video_temporal.TSN, "24.3"),
    "GST": (video_temporal.GST, "21.0"),
    "GwcNet-gc": (lambda: stereo_groupwise.GwcNet(use_concat_volume=True), "6.91"),
    "ACVNet": (stereo_acvnet.ACVNet, "6.23"),
    "Restormer": (image_restormer.Restormer, "26.13"),
    "UNETR++": (medical_unetrpp.UNETRPP, "42.6"),
    "3D UX-Net": (medical_uxnet.UXNET, "53.0"),
    "SegFormer3D": (medical_segformer.SegFormer3D, "4.5"),
    "wav2vec 2.0": (audio_wav2vec.Wav2Vec2ForCTC, "94.4"),
    "Wan 2.1's autoencoder": (video_vae.WanVAE, "126.9"),
    "UniFormer-S": (video_uniformer.Uniformer, "21.4"),
    "VideoMAE, ViT-B": (video_masked.VideoMAE, "87"),
    "Hiera-B": (video_masked.Hiera, "51"),
}


def count(make: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make().parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_full_network_has_the_published_parameters(name: str) -> None:
    make, parameters = PUBLISHED[name]
    assert count(make) == parameters


@pytest.mark.parametrize("name", IN_MILLIONS)
def test_the_full_network_has_the_published_millions(name: str) -> None:
    make, millions = IN_MILLIONS[name]
    digits = len(millions.partition(".")[2])
    assert f"{count(make) / 1e6:.{digits}f}" == millions


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_network_runs_in_both_modes_and_trains_every_parameter(entry: Entry) -> None:
    model = entry.build()
    for training in (False, True):
        model.train(training).zero_grad()
        outputs = tensors(model(*entry.example()))
        assert outputs
        assert all(torch.isfinite(tensor).all() for tensor in outputs)
        loss(outputs).backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert gradients
        assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]


def test_names_are_unique_and_families_known() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    for name, family in FAMILIES.items():
        assert {entry.family for entry in family.NETWORKS} == {name}


@pytest.mark.parametrize("name", ["GwcNet-G", "StereoNet"])
def test_stereo_networks_return_more_while_training(name: str) -> None:
    entry = next(entry for entry in ENTRIES if entry.name == name)
    model = entry.build()
    assert len(tensors(model.train()(*entry.example()))) == 4
    assert len(tensors(model.eval()(*entry.example()))) == 1
