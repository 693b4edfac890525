"""All topologies by name: what the tracer, the slimmer and the verifier are judged by."""

from __future__ import annotations

from tests.support.topologies.attention import ATTENTION
from tests.support.topologies.blocks import BLOCKS
from tests.support.topologies.code import CODE
from tests.support.topologies.hard import HARD
from tests.support.topologies.joins import JOINS
from tests.support.topologies.layers import LAYERS
from tests.support.topologies.operators import OPERATORS
from tests.support.topologies.outputs import OUTPUTS
from tests.support.topologies.patterns import PATTERNS
from tests.support.topologies.rules import RULES
from tests.support.topologies.shapes import SHAPES
from tests.support.topologies.topology import Topology
from tests.support.topologies.widths import WIDTHS

COLLECTIONS = (LAYERS, JOINS, SHAPES, BLOCKS, HARD, PATTERNS, OPERATORS, RULES, CODE, OUTPUTS, ATTENTION, WIDTHS)
TOPOLOGIES: dict[str, Topology] = {name: topology for some in COLLECTIONS for name, topology in some.items()}

assert len(TOPOLOGIES) == sum(map(len, COLLECTIONS)), "two topologies share a name"
