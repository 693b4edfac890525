"""Slim 3D networks before training: resource-aware neuron pruning at initialisation.

    trace = ranp.trace(model, example)                               1  which channels stand or fall together
    scores = ranp.score(model, batches, loss, trace=trace)           2  how much each channel matters to the loss
    costs = ranp.measure(trace, "flops")                             3  what each layer costs
    scores = ranp.reweight(ranp.balance(scores), costs, 11)          4  balanced over layers, cheap layers first
    plan = ranp.select(scores, trace, sparsity=0.78)                 5  which channels stay
    slim = ranp.slim(model, plan)                                    6  a slim, dense, ordinary nn.Module

``ranp.prune(model, batches, loss, sparsity=0.78)`` does all six, checks the result and reports; with
``budget="train-memory=8GiB"`` it finds the sparsity itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranp.checkpointing import checkpointed
    from ranp.criteria import Criterion
    from ranp.errors import (
        DataError,
        InfeasibleError,
        PlanMismatchError,
        RanpError,
        StorageError,
        UnsupportedError,
    )
    from ranp.footprint import training_memory
    from ranp.importance import score
    from ranp.methods import Method
    from ranp.plan import Plan
    from ranp.profiles import Profile
    from ranp.pruning import Pruned, prune
    from ranp.rehearsal import TrainingStep
    from ranp.report import Report
    from ranp.resources import Costs, measure, profile
    from ranp.scores import Scores
    from ranp.selection import max_sparsity, select
    from ranp.speed import latency, step_time
    from ranp.storage import load, save
    from ranp.tracing import Trace, trace
    from ranp.verification import Verification, slim, verify
    from ranp.weighting import balance, reweight

__version__ = "0.1.0"

__all__ = [
    "Costs",
    "Criterion",
    "DataError",
    "InfeasibleError",
    "Method",
    "Plan",
    "PlanMismatchError",
    "Profile",
    "Pruned",
    "RanpError",
    "Report",
    "Scores",
    "StorageError",
    "Trace",
    "TrainingStep",
    "UnsupportedError",
    "Verification",
    "balance",
    "checkpointed",
    "latency",
    "load",
    "max_sparsity",
    "measure",
    "profile",
    "prune",
    "reweight",
    "save",
    "score",
    "select",
    "slim",
    "step_time",
    "trace",
    "training_memory",
    "verify",
]

_HOMES = {
    "checkpointing": "checkpointed",
    "criteria": "Criterion",
    "errors": "DataError InfeasibleError PlanMismatchError RanpError StorageError UnsupportedError",
    "footprint": "training_memory",
    "importance": "score",
    "methods": "Method",
    "plan": "Plan",
    "profiles": "Profile",
    "pruning": "Pruned prune",
    "rehearsal": "TrainingStep",
    "report": "Report",
    "resources": "Costs measure profile",
    "scores": "Scores",
    "selection": "max_sparsity select",
    "speed": "latency step_time",
    "storage": "load save",
    "tracing": "Trace trace",
    "verification": "Verification slim verify",
    "weighting": "balance reweight",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that the command line answers before torch is loaded."""
    if name in _HOMES:
        return import_module(f"ranp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'ranp' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"ranp.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
