"""What every operator does to labels: a table from operator name to rule.

An operator that is missing here and is not pointwise pins everything it touches and is reported; an operator that is
ignored on purpose is listed in ``IGNORED``.
"""

from ranp.tracing.rules import (  # noqa: F401 -- each registers its rules
    addressing,
    contraction,
    factory,
    losses,
    movement,
    normalisation,
    pointwise,
    rearranging,
    reduction,
    refusals,
    spatial,
)  # fmt: skip
from ranp.tracing.rules.table import IGNORED, MASKED, Rule, by_element, find

__all__ = ["IGNORED", "MASKED", "Rule", "by_element", "find"]
