"""The video world's networks, written after the implementations that people use."""

from __future__ import annotations

from zoo import (
    video_attention,
    video_c3d,
    video_densenet,
    video_efficient,
    video_hara,
    video_i3d,
    video_masked,
    video_movinet,
    video_predrnn,
    video_recurrent,
    video_s3d,
    video_slowfast,
    video_swin,
    video_temporal,
    video_torchvision,
    video_uniformer,
    video_vae,
    video_x3d,
)
from zoo.entry import Entry

NETWORKS: tuple[Entry, ...] = (
    *video_c3d.NETWORKS,
    *video_torchvision.NETWORKS,
    *video_s3d.NETWORKS,
    *video_hara.NETWORKS,
    *video_densenet.NETWORKS,
    *video_slowfast.NETWORKS,
    *video_i3d.NETWORKS,
    *video_x3d.NETWORKS,
    *video_efficient.NETWORKS,
    *video_temporal.NETWORKS,
    *video_recurrent.NETWORKS,
    *video_attention.NETWORKS,
    *video_swin.NETWORKS,
    *video_uniformer.NETWORKS,
    *video_masked.NETWORKS,
    *video_movinet.NETWORKS,
    *video_predrnn.NETWORKS,
    *video_vae.NETWORKS,
)
