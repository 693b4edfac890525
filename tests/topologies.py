"""All topologies by name: what the tracer, the slimmer and the verifier are judged by."""

from __future__ import annotations

from topologies_blocks import BLOCKS
from topologies_hard import HARD
from topologies_joins import JOINS
from topologies_layers import LAYERS
from topologies_shapes import SHAPES
from topology import Topology

TOPOLOGIES: dict[str, Topology] = {**LAYERS, **JOINS, **SHAPES, **BLOCKS, **HARD}

assert len(TOPOLOGIES) == sum(map(len, (LAYERS, JOINS, SHAPES, BLOCKS, HARD))), "two topologies share a name"
