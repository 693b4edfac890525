"""All topologies by name: what the tracer, the slimmer and the verifier are judged by."""

from __future__ import annotations

from topologies_blocks import BLOCKS
from topologies_code import CODE
from topologies_hard import HARD
from topologies_joins import JOINS
from topologies_layers import LAYERS
from topologies_operators import OPERATORS
from topologies_outputs import OUTPUTS
from topologies_patterns import PATTERNS
from topologies_rules import RULES
from topologies_shapes import SHAPES
from topology import Topology

COLLECTIONS = (LAYERS, JOINS, SHAPES, BLOCKS, HARD, PATTERNS, OPERATORS, RULES, CODE, OUTPUTS)
TOPOLOGIES: dict[str, Topology] = {name: topology for some in COLLECTIONS for name, topology in some.items()}

assert len(TOPOLOGIES) == sum(map(len, COLLECTIONS)), "two topologies share a name"
