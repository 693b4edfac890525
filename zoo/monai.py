"""MONAI's 3D networks, as its users build them; widths are those of MONAI's own tests and tutorials or smaller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from zoo.entry import Entry, Shape

CUBE8, CUBE16, CUBE32, CUBE96 = ((1, 1, size, size, size) for size in (8, 16, 32, 96))
BEAM32, BEAM64 = (1, 1, 32, 16, 16), (1, 1, 64, 32, 32)
"""Long enough that instance norm finds two values at the bottom of a network that halves four or five times."""


def _net(name: str, *positional: Any, **options: Any) -> Callable[[], nn.Module]:
    """Builds ``monai.networks.nets.<name>``; MONAI is imported when a network is built, not when the zoo is listed."""

    def make() -> nn.Module:
        import monai.networks.nets as nets

        return getattr(nets, name)(*positional, **options)

    return make


def _entry(name: str, make: Callable[[], nn.Module], shape: Shape = CUBE16, *, ordinary: Shape = CUBE96) -> Entry:
    return Entry(name, "monai", make, (shape,), (ordinary,))


def _batch(shape: Shape, size: int) -> Shape:
    return (size, *shape[1:])


def _dints() -> nn.Module:
    import monai.networks.nets as nets
    import numpy as np

    depths, blocks = 3, 4
    paths = 3 * depths - 2  # from every depth to the ones next to it
    code = [np.ones((blocks, paths)), np.full((blocks, paths), 2)]  # every path, with the plain 3D cell
    space = nets.TopologyInstance(
        arch_code=code, channel_mul=0.25, num_blocks=blocks, num_depths=depths, use_downsample=True
    )
    return nets.DiNTS(space, in_channels=1, num_classes=3, use_downsample=True)


class First(nn.Module):
    """The first of several outputs, as a caller reads it who needs no hidden states."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.net(x)[0]
        return first


def _vit() -> nn.Module:
    sizes = {"hidden_size": 96, "mlp_dim": 192, "num_layers": 3, "num_heads": 6}
    return _net("ViT", 1, (16, 16, 16), (8, 8, 8), **sizes, classification=True)()


def _diffusion() -> nn.Module:
    """MONAI sets the last layer and one of every block to zero, so that no gradient tells anything before a step."""
    import torch

    model = _net(
        "DiffusionModelUNet",
        3,
        1,
        1,
        num_res_blocks=1,
        channels=(16, 32, 32),
        attention_levels=(False, True, True),
        norm_num_groups=8,
    )()
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.02)
    return model


def _resnet(depth: int, shortcut: str) -> Callable[[], nn.Module]:
    options = {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 4, "shortcut_type": shortcut}
    return _net(f"resnet{depth}", **options)


UNET = {
    "spatial_dims": 3,
    "in_channels": 1,
    "out_channels": 3,
    "channels": (16, 32, 64, 128),
    "strides": (2, 2, 2),
}
DYNUNET = {
    "spatial_dims": 3,
    "in_channels": 1,
    "out_channels": 3,
    "kernel_size": (3, 3, 3, 3),
    "strides": (1, 2, 2, 2),
    "upsample_kernel_size": (2, 2, 2),
    "filters": (16, 32, 64, 96),
}
SEGRESNET = {"spatial_dims": 3, "init_filters": 16, "in_channels": 1, "out_channels": 3}
IN_OUT = {"spatial_dims": 3, "in_channels": 1, "out_channels": 3}

NETWORKS: tuple[Entry, ...] = (
    _entry("UNet, instance norm, PReLU", _net("UNet", **UNET)),
    _entry("UNet, batch norm", _net("UNet", **UNET, norm="batch", act="relu"), _batch(CUBE16, 2)),
    _entry("UNet, residual units", _net("UNet", **UNET, num_res_units=2)),
    _entry("UNet, residual units, batch norm", _net("UNet", **UNET, num_res_units=2, norm="batch"), _batch(CUBE16, 2)),
    _entry("BasicUNet", _net("BasicUNet", **IN_OUT, features=(16, 16, 32, 64, 128, 16)), BEAM32),
    _entry("BasicUNetPlusPlus", _net("BasicUNetPlusPlus", **IN_OUT, features=(16, 16, 32, 64, 128, 16)), BEAM32),
    _entry(
        "BasicUNetPlusPlus, deep supervision",
        _net("BasicUNetPlusPlus", **IN_OUT, features=(16, 16, 32, 64, 128, 16), deep_supervision=True),
        BEAM32,
    ),
    _entry("DynUNet", _net("DynUNet", **DYNUNET)),
    _entry("DynUNet, residual", _net("DynUNet", **DYNUNET, res_block=True)),
    _entry("DynUNet, deep supervision", _net("DynUNet", **DYNUNET, deep_supervision=True, deep_supr_num=2)),
    _entry("SegResNet, group norm", _net("SegResNet", **SEGRESNET)),
    _entry("SegResNet, batch norm", _net("SegResNet", **SEGRESNET, norm="batch"), _batch(CUBE16, 2)),
    _entry("SegResNetDS", _net("SegResNetDS", **SEGRESNET, dsdepth=2), _batch(CUBE16, 2)),
    _entry("SegResNetDS2", _net("SegResNetDS2", **SEGRESNET, dsdepth=2), _batch(CUBE16, 2)),
    _entry("SegResNetVAE", _net("SegResNetVAE", (16, 16, 16), **SEGRESNET), _batch(CUBE16, 2), ordinary=CUBE16),
    _entry("VNet", _net("VNet", **IN_OUT), _batch(CUBE16, 2)),
    _entry(
        "AttentionUnet",
        _net("AttentionUnet", **IN_OUT, channels=(16, 32, 64, 96), strides=(2, 2, 2)),
        _batch(CUBE16, 2),
    ),
    _entry(
        "FlexibleUNet, EfficientNet-B0",
        _net("FlexibleUNet", in_channels=1, out_channels=3, backbone="efficientnet-b0", spatial_dims=3),
        _batch(CUBE32, 2),
    ),
    _entry(
        "FlexibleUNet, ResNet-18",
        _net("FlexibleUNet", in_channels=1, out_channels=3, backbone="resnet18", spatial_dims=3),
        _batch(CUBE32, 2),
    ),
    _entry("RegUNet", _net("RegUNet", 3, in_channels=2, num_channel_initial=16, depth=3), (2, 2, 16, 16, 16)),
    _entry(
        "LocalNet",
        _net("LocalNet", 3, in_channels=2, num_channel_initial=16, extract_levels=(0, 1, 2, 3)),
        (2, 2, 8, 8, 8),
        ordinary=(1, 2, 96, 96, 96),
    ),
    Entry("VoxelMorph", "monai", _net("VoxelMorph"), (CUBE16, CUBE16), (CUBE96, CUBE96)),
    _entry("HighResNet", _net("HighResNet", **IN_OUT), _batch(CUBE8, 2)),
    _entry(
        "AHNet",
        _net("AHNet", **IN_OUT, layers=(1, 2, 2, 1), psp_block_num=3),
        (1, 1, 64, 64, 32),
        ordinary=(1, 1, 128, 128, 64),
    ),
    _entry("DiNTS", _dints),
    _entry("MedNeXt", _net("MedNeXt", 3, init_filters=16, kernel_size=3, out_channels=3), CUBE32),
    _entry(
        "MedNeXt, deep supervision, GRN",
        _net(
            "MedNeXt",
            3,
            init_filters=16,
            kernel_size=3,
            out_channels=3,
            deep_supervision=True,
            global_resp_norm=True,
            use_residual_connection=True,
        ),
        CUBE32,
    ),
    _entry("DenseNet121", _net("DenseNet121", **IN_OUT), (2, 1, 32, 32, 32)),
    _entry("ResNet-10, shortcut A", _resnet(10, "A"), (2, 1, 16, 16, 16)),
    _entry("ResNet-10, shortcut B", _resnet(10, "B"), (2, 1, 16, 16, 16)),
    _entry("ResNet-18, shortcut A", _resnet(18, "A"), (2, 1, 16, 16, 16)),
    _entry("ResNet-18, shortcut B", _resnet(18, "B"), (2, 1, 16, 16, 16)),
    _entry("ResNet-50, shortcut A", _resnet(50, "A"), (2, 1, 16, 16, 16)),
    _entry("ResNet-50, shortcut B", _resnet(50, "B"), (2, 1, 16, 16, 16)),
    _entry("SEResNet50", _net("SEResNet50", spatial_dims=3, in_channels=1, num_classes=4), (2, 1, 32, 32, 32)),
    _entry("SEResNeXt50", _net("SEResNext50", spatial_dims=3, in_channels=1, num_classes=4), (2, 1, 32, 32, 32)),
    _entry("SENet154", _net("SENet154", spatial_dims=3, in_channels=1, num_classes=4), (2, 1, 32, 32, 32)),
    _entry(
        "EfficientNet-B0",
        _net("EfficientNetBN", "efficientnet-b0", pretrained=False, spatial_dims=3, in_channels=1, num_classes=4),
        (2, 1, 32, 32, 32),
    ),
    _entry("Generator", _net("Generator", (16,), (32, 2, 2, 2), (32, 16, 1), (2, 2, 2)), (2, 16), ordinary=(2, 16)),
    _entry(
        "Discriminator",
        _net("Discriminator", (1, 16, 16, 16), (16, 32, 64), (2, 2, 2)),
        (2, 1, 16, 16, 16),
        ordinary=(2, 1, 16, 16, 16),
    ),
    _entry("PatchDiscriminator", _net("PatchDiscriminator", 3, 16, 1), (2, 1, 32, 32, 32)),
    _entry(
        "AutoEncoder",
        _net(
            "AutoEncoder",
            **IN_OUT,
            channels=(16, 32, 64),
            strides=(2, 2, 2),
            num_res_units=1,
            inter_channels=[64, 64],
        ),
    ),
    _entry(
        "VarAutoEncoder",
        _net("VarAutoEncoder", 3, (1, 16, 16, 16), 1, 8, (16, 32, 64), (2, 2, 2)),
        (2, 1, 16, 16, 16),
        ordinary=(2, 1, 16, 16, 16),
    ),
    _entry(
        "AutoencoderKL",
        _net(
            "AutoencoderKL",
            3,
            channels=(16, 32, 32),
            num_res_blocks=1,
            attention_levels=(False, False, True),
            norm_num_groups=8,
        ),
        CUBE16,
        ordinary=CUBE32,
    ),
    _entry(
        "VQVAE",
        _net(
            "VQVAE",
            3,
            in_channels=1,
            out_channels=1,
            channels=(32, 64),
            num_res_layers=1,
            num_res_channels=(32, 64),
            downsample_parameters=((2, 4, 1, 1),) * 2,
            upsample_parameters=((2, 4, 1, 1, 0),) * 2,
            num_embeddings=16,
            embedding_dim=16,
        ),
    ),
    _entry(
        "UNETR",
        _net("UNETR", 1, 3, (32, 32, 32), feature_size=16, hidden_size=96, mlp_dim=192, num_heads=6),
        CUBE32,
        ordinary=CUBE32,
    ),
    _entry("SwinUNETR", _net("SwinUNETR", 1, 3, feature_size=12), BEAM64),
    _entry("SwinUNETR v2", _net("SwinUNETR", 1, 3, feature_size=12, use_v2=True), BEAM64),
    _entry("ViT", _vit, CUBE16, ordinary=CUBE16),
    _entry("ViT, classes alone", lambda: First(_vit()), CUBE16, ordinary=CUBE16),
    _entry(
        "ViTAutoEnc",
        _net("ViTAutoEnc", 1, (16, 16, 16), (4, 4, 4), hidden_size=96, mlp_dim=192, num_layers=3, num_heads=6),
        CUBE16,
        ordinary=CUBE16,
    ),
    Entry("DiffusionModelUNet", "monai", _diffusion, (CUBE16, (1,)), (CUBE32, (1,))),
)
