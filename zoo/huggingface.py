"""Networks of two packages that most people take them from: transformers (SegFormer, Swin) and diffusers (U-Nets)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.entry import Entry


def _segformer() -> nn.Module:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    return SegformerForSemanticSegmentation(
        SegformerConfig(
            num_labels=4, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 4, 8],
            decoder_hidden_size=32,
        )
    )  # fmt: skip


def _swin() -> nn.Module:
    from transformers import SwinConfig, SwinForImageClassification

    return SwinForImageClassification(
        SwinConfig(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[3, 6], window_size=4, num_labels=5)
    )


def _unet2d() -> nn.Module:
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=16, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


def _unet3d() -> nn.Module:
    from diffusers import UNet3DConditionModel

    return UNet3DConditionModel(
        sample_size=8, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=16,
        attention_head_dim=8, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
    )  # fmt: skip


def _pixels(tensors: list[Tensor]) -> dict[str, Any]:
    return {"pixel_values": tensors[0]}


def _noisy(tensors: list[Tensor]) -> dict[str, Any]:
    """A noisy sample, how noisy it is, and what it shall show, if anything."""
    sample, *conditions = tensors
    told = {"sample": sample, "timestep": torch.arange(len(sample)) + 3}
    return {**told, "encoder_hidden_states": conditions[0]} if conditions else told


# Two samples of SegFormer, so that stochastic depth silences no block.
NETWORKS = (
    Entry("SegFormer, transformers", "image", _segformer, ((2, 3, 64, 64),), inputs=_pixels),
    Entry("Swin, transformers", "image", _swin, ((1, 3, 64, 64),), inputs=_pixels),
    Entry("UNet2DModel, diffusers", "image", _unet2d, ((1, 3, 16, 16),), inputs=_noisy),
    Entry("UNet3DConditionModel, diffusers", "video", _unet3d, ((1, 4, 3, 8, 8), (1, 5, 16)), inputs=_noisy),
)
