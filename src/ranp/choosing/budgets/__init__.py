"""A budget instead of a sparsity: how much of each quantity the slim network may need."""

from __future__ import annotations

from ranp.choosing.budgets.budget import Budget, Spent, budget_lines, parse_all, spent, step_line
from ranp.choosing.budgets.planning import plan_within
from ranp.choosing.budgets.solving import Limit, Meter, Solution, limits_of, solve
from ranp.costs.quantities import QUANTITIES
from ranp.costs.step import StepSetup

__all__ = [
    "QUANTITIES",
    "Budget",
    "Limit",
    "Meter",
    "Solution",
    "Spent",
    "StepSetup",
    "budget_lines",
    "limits_of",
    "parse_all",
    "plan_within",
    "solve",
    "spent",
    "step_line",
]
