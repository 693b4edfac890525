"""A budget instead of a sparsity: how much of each resource the slim network may need."""

from __future__ import annotations

from ranp.budgets.parsing import QUANTITIES, Budget, parse_all, told
from ranp.budgets.planning import plan_within
from ranp.budgets.solving import Limit, Meter, Solution, limits_of, solve
from ranp.budgets.staging import Scene

__all__ = [
    "QUANTITIES",
    "Budget",
    "Limit",
    "Meter",
    "Scene",
    "Solution",
    "limits_of",
    "parse_all",
    "plan_within",
    "solve",
    "told",
]
