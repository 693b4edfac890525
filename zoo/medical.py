"""Medical networks that are in no package here, written after their papers and published code."""

from __future__ import annotations

from zoo import medical_nnformer, medical_segformer, medical_unetrpp, medical_uxnet
from zoo.entry import Entry

NETWORKS: tuple[Entry, ...] = (
    *medical_nnformer.NETWORKS,
    *medical_segformer.NETWORKS,
    *medical_unetrpp.NETWORKS,
    *medical_uxnet.NETWORKS,
)
