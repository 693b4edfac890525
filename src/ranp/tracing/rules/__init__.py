"""What every operator does to labels: a table from operator name to rule.

An operator that is missing here and is not pointwise pins everything it touches and is reported; an operator that is
ignored on purpose is listed in ``IGNORED``.
"""

from __future__ import annotations

from ranp.tracing.rules import contraction, factory, movement, normalisation, pointwise, reduction, spatial
from ranp.tracing.rules.table import IGNORED, Rule, find

__all__ = [
    "IGNORED",
    "Rule",
    "contraction",
    "factory",
    "find",
    "movement",
    "normalisation",
    "pointwise",
    "reduction",
    "spatial",
]
