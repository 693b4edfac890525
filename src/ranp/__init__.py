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

import ast
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:  # every public name, written once: what is below reads it from here
    from ranp.choosing.methods import Method as Method
    from ranp.choosing.plan import Plan as Plan
    from ranp.choosing.selection import max_sparsity as max_sparsity
    from ranp.choosing.selection import select as select
    from ranp.comparing.compare import compare as compare
    from ranp.comparing.comparison import Comparison as Comparison
    from ranp.costs.measuring import Costs as Costs
    from ranp.costs.measuring import measure as measure
    from ranp.costs.measuring import profile as profile
    from ranp.costs.memory import training_memory as training_memory
    from ranp.costs.profiles import Profile as Profile
    from ranp.costs.step import TrainingStep as TrainingStep
    from ranp.costs.timing import latency as latency
    from ranp.costs.timing import step_time as step_time
    from ranp.costs.tuning import Tuned as Tuned
    from ranp.costs.tuning import tune as tune
    from ranp.errors import DataError as DataError
    from ranp.errors import InfeasibleError as InfeasibleError
    from ranp.errors import PlanMismatchError as PlanMismatchError
    from ranp.errors import RanpError as RanpError
    from ranp.errors import StorageError as StorageError
    from ranp.errors import UnsupportedError as UnsupportedError
    from ranp.options import Options as Options
    from ranp.pruning import prune as prune
    from ranp.reporting.pruned import Pruned as Pruned
    from ranp.reporting.report import Report as Report
    from ranp.running.checkpointing import checkpointed as checkpointed
    from ranp.scoring.criteria import Criterion as Criterion
    from ranp.scoring.score import score as score
    from ranp.scoring.scores import Scores as Scores
    from ranp.slimming.storage import load as load
    from ranp.slimming.storage import save as save
    from ranp.slimming.verification import Verification as Verification
    from ranp.slimming.verification import slim as slim
    from ranp.slimming.verification import verify as verify
    from ranp.tracing import Trace as Trace
    from ranp.tracing import trace as trace
    from ranp.weighting import balance as balance
    from ranp.weighting import reweight as reweight

_ELSEWHERE = {
    "ranp.budgets": "ranp.choosing.budgets",
    "ranp.checkpointing": "ranp.running.checkpointing",
    "ranp.counting": "ranp.costs.counting",
    "ranp.coupling": "ranp.choosing.coupling",
    "ranp.criteria": "ranp.scoring.criteria",
    "ranp.drawing": "ranp.reporting.drawing",
    "ranp.footprint": "ranp.costs.memory",
    "ranp.importance": "ranp.scoring.score",
    "ranp.initialisation": "ranp.slimming.initialisation",
    "ranp.methods": "ranp.choosing.methods",
    "ranp.obstacles": "ranp.reporting.causes",
    "ranp.paper.pictures": "ranp.paper.tasks.pictures",
    "ranp.plan": "ranp.choosing.plan",
    "ranp.pricing": "ranp.costs.prices",
    "ranp.profiles": "ranp.costs.profiles",
    "ranp.rehearsal": "ranp.costs.step",
    "ranp.report": "ranp.reporting.report",
    "ranp.resources": "ranp.costs.measuring",
    "ranp.scopes": "ranp.choosing.scopes",
    "ranp.scores": "ranp.scoring.scores",
    "ranp.selection": "ranp.choosing.selection",
    "ranp.snip": "ranp.choosing.snip",
    "ranp.costs.time": "ranp.costs.timing",
    "ranp.speed": "ranp.costs.timing",
    "ranp.storage": "ranp.slimming.storage",
    "ranp.study": "ranp.reporting.study",
    "ranp.ties": "ranp.choosing.ties",
    "ranp.verification": "ranp.slimming.verification",
}
"""Modules by the short names under which they can be imported, too: ``from ranp.criteria import Criterion``."""


class _Elsewhere(MetaPathFinder, Loader):
    """Imports a module of ``_ELSEWHERE`` under its short name: the same module, not a second one."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name in _ELSEWHERE else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_ELSEWHERE[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state  # what the import system has just put in its place


if not any(type(finder).__name__ == _Elsewhere.__name__ for finder in sys.meta_path):
    sys.meta_path.append(_Elsewhere())


def _homes() -> dict[str, str]:
    """Every public name and the module it comes from, as the imports for type checkers say."""
    source = __spec__.loader.get_source(__name__)  # type: ignore[union-attr]
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    return {entry.name: str(node.module) for node in block.body for entry in node.names}  # type: ignore[attr-defined]


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that the command line answers before torch is loaded."""
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
    if f"ranp.{name}" in _ELSEWHERE:
        return import_module(f"ranp.{name}")
    raise AttributeError(f"module 'ranp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
