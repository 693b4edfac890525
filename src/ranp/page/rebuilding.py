"""What needs the networks themselves: costs of runs without a report, studies of sparsity, example predictions.

All of it can fail for reasons that are none of the page's (the code of a network has moved, scores were not kept); the
page then says why in one sentence, and shows the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ranp.costs.measuring import profile
from ranp.errors import RanpError, UnsupportedError
from ranp.page.gather import FULL, StoredRun
from ranp.paper.naming import NOTHING, Trust, named_code, stored_example, stored_network
from ranp.progress import Progress
from ranp.reporting.folder import RunFolder
from ranp.scoring.scores import Scores
from ranp.slimming.slim import apply_plan
from ranp.slimming.storage import Build, hollow

if TYPE_CHECKING:
    from ranp.reporting.drawing import Picture
    from ranp.reporting.study import Study

_COMPARED = "vanilla"
_BLIND = "random"

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Absent:
    """Something the page cannot show, and why: one sentence for its reader."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bill:
    """What one call of a network takes; memory in bytes."""

    params: int
    flops: int
    memory: int


def network_of(run: StoredRun, trust: Trust = NOTHING) -> tuple[Build, Any]:
    """What makes the full network of a run, and inputs of one call without data.

    Where the folder names no code, it says all that is needed, and nothing of what else was said takes its place.

    Raises:
        UnsupportedError: The folder names code and nobody trusts it, nothing has that name, or nothing says what goes
            in.
    """
    where = RunFolder(run.folder).recipe_file
    said = trust if named_code(run.recipe) else NOTHING
    network = stored_network(run.recipe, where, said)
    example = stored_example(network, run.recipe, where, said)
    if example is None:
        raise UnsupportedError(f"the recipe does not say what goes into {network.name!r}")
    return network.build, example


def bills_of(runs: Sequence[StoredRun], trust: Trust) -> dict[str, Bill | Absent]:
    """What each run's network takes, by label: from its report, from the report of a run of the same network, or
    counted on the network itself.
    """  # noqa: D205 -- one sentence
    full: dict[str, Bill] = {}
    for run in runs:
        if run.report is not None:
            report = run.report
            full[run.network_key] = Bill(report.params.before, report.flops.before, report.memory.before)
    bills: dict[str, Bill | Absent] = {}
    for run in runs:
        if run.report is not None:
            report = run.report
            bills[run.label] = Bill(report.params.after, report.flops.after, report.memory.after)
        elif run.method == FULL and run.network_key in full:
            bills[run.label] = full[run.network_key]
        else:
            bills[run.label] = _attempt("Costs", partial(_counted, run, trust))
    return bills


def _counted(run: StoredRun, trust: Trust) -> Bill:
    build, example = network_of(run, trust)
    model = hollow(build)
    if run.plan is not None:
        model = apply_plan(model, run.plan, example=example)
    costs = profile(model, example)
    return Bill(costs.params, costs.flops, costs.memory_bytes)


def study_of(run: StoredRun, progress: Progress | None = None, *, trust: Trust = NOTHING) -> Study | Absent:
    """How widths and costs move with sparsity, for the run's method and for importance alone.

    Args:
        run: One that pruned.
        progress: Told ``(done, of how many)``.
        trust: What may run beside registered networks.
    """
    if run.report is None:
        return Absent("The run did not prune, so there are no scores to choose channels by.")
    if run.method == _BLIND or run.report.settings.get("criterion") == _BLIND:
        return Absent("Channels were drawn blindly, so there are no scores to choose channels by.")
    raw = RunFolder(run.folder).scores()
    if raw is None:
        return Absent(
            "The folder holds no scores.safetensors, so other sparsities cannot be computed. Prune again to keep the "
            "scores."
        )
    return _attempt("Other sparsities", partial(_studied, run, raw, trust, progress))


def _studied(run: StoredRun, raw: Scores, trust: Trust, progress: Progress | None) -> Study:
    from ranp.reporting.study import study

    build, example = network_of(run, trust)
    strength = None if run.plan is None else run.plan.settings.get("strength")
    compare = () if run.method == _COMPARED else (_COMPARED,)
    return study(
        hollow(build),
        example,
        raw,
        plan=run.plan,
        method=run.method,
        strength=strength,
        compare=compare,
        progress=progress,
    )


def pictures_of(runs: Sequence[StoredRun], trust: Trust) -> tuple[Picture, ...] | Absent:
    """What trained networks of one task predict on samples they were not trained on, beside the truth.

    Args:
        runs: Of one task; those that have not finished training take no part.
        trust: What may run beside registered networks.
    """
    done = [run for run in runs if run.figures and RunFolder(run.folder).finished]
    if not done:
        return Absent("No network of this page has finished training, so there is nothing to predict with.")
    return _attempt("Example predictions", partial(_pictured, done, trust))


def _pictured(runs: Sequence[StoredRun], trust: Trust) -> tuple[Picture, ...]:
    from ranp.paper.tasks.pictures import pictures
    from ranp.paper.training.evaluation import recipe_of, task_of

    first = RunFolder(runs[0].folder)
    (task, _), (_, recipe) = task_of(first), recipe_of(first)
    models = {run.label: RunFolder(run.folder).model(network_of(run, trust)[0]) for run in runs}
    return pictures(task, models, size=recipe.size, seed=recipe.seed)


def _attempt(what: str, act: Callable[[], _Result]) -> _Result | Absent:
    """The result, or why there is none; the code of a network is the user's and may raise anything."""
    try:
        return act()
    except RanpError as error:
        return Absent(f"{what} cannot be shown: {str(error).rstrip('.')}.")
    except Exception as error:
        told = f"{type(error).__name__}: {error}".rstrip(".")
        return Absent(f"{what} cannot be shown: the network cannot be made again here ({told}).")
