"""A budget instead of a sparsity: how much of each resource the slim network may need."""

from __future__ import annotations

from ranp.choosing.budgets.parsing import QUANTITIES, Budget, parse_all, told
from ranp.choosing.budgets.planning import plan_within
from ranp.choosing.budgets.solving import Limit, Meter, Solution, limits_of, solve
from ranp.choosing.budgets.staging import Scene

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
