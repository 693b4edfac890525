"""What needs the networks themselves: costs of runs without a report, studies of sparsity, example predictions.

All of it can fail for reasons that are none of the page's (the code of a network has moved, scores were not kept); the
page then says why in one sentence, and shows the rest.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from ranp.errors import RanpError, UnsupportedError, unknown_name
from ranp.page.gather import FULL, RunFolder
from ranp.resources import profile
from ranp.scores import Scores
from ranp.slimming import apply_plan
from ranp.storage import NETWORKS, hollow, load

if TYPE_CHECKING:
    from ranp.drawing import Picture
    from ranp.study import Study

__all__ = ["Absent", "Bill", "bills_of", "pictures_of", "study_of"]

_COMPARED = "vanilla"
_BLIND = "random"

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Absent:
    """Something the page cannot show, and why: one sentence for its reader."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bill:
    """What one call of a network takes, in the paper's convention."""

    params: int
    flops: int
    memory: int


@dataclass(frozen=True, slots=True)
class Network:
    """The full network of a run, ready to be made."""

    build: Callable[[], nn.Module]
    example: Any


def network_of(recipe: Mapping[str, Any]) -> Network:
    """How to make the full network of a run, and inputs of one call without data.

    Raises:
        UnsupportedError: Nothing has that name, or nothing says what goes in.
    """
    from ranp.paper import models
    from ranp.paper.recipe import as_arguments

    name = str(recipe["model"])
    options = as_arguments(recipe.get("options") or {})
    if ":" in name:
        make: Callable[..., nn.Module] = _code(name)
    elif name in NETWORKS:
        make = NETWORKS.get(name)
    else:
        raise UnsupportedError(unknown_name("network", name, NETWORKS))
    shapes = recipe.get("inputs") or ()
    if shapes:
        tensors = tuple(torch.empty([int(n) for n in str(shape).split("x")], device="meta") for shape in shapes)
        example: Any = tensors if len(tensors) > 1 else tensors[0]
    elif recipe.get("example"):
        example = _code(str(recipe["example"]))()
    elif name in models.names():
        example = models.example(name, "meta")
    else:
        raise UnsupportedError(f"the recipe does not say what goes into {name!r}")
    return Network(partial(make, **options), example)


def _code(text: str) -> Any:
    """What ``package.module:name`` names; the current folder is searched too, as on the command line."""
    module, _, path = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    value: Any = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value


def bills_of(runs: Sequence[RunFolder]) -> dict[str, Bill | Absent]:
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
            bills[run.label] = _attempt("Costs", partial(_counted, run))
    return bills


def _counted(run: RunFolder) -> Bill:
    network = network_of(run.recipe)
    model = hollow(network.build)
    if run.plan is not None:
        model = apply_plan(model, run.plan, example=network.example)
    costs = profile(model, network.example, convention="paper")
    return Bill(costs.params, costs.flops, costs.memory)


def study_of(run: RunFolder, progress: Callable[[int, int], object] | None = None) -> Study | Absent:
    """How widths and costs move with sparsity, for the run's method and for importance alone.

    Args:
        run: One that pruned.
        progress: Told ``(done, of how many)``.
    """
    if run.report is None:
        return Absent("The run did not prune, so there are no scores to choose channels by.")
    if run.method == _BLIND or run.report.settings.get("criterion") == _BLIND:
        return Absent("Channels were drawn blindly, so there are no scores to choose channels by.")
    if not run.scores.is_file():
        return Absent(
            "The folder holds no scores.safetensors, so other sparsities cannot be computed. Prune again to keep the "
            "scores."
        )
    raw = Scores.load(run.scores)
    return _attempt("Other sparsities", partial(_studied, run, raw, progress))


def _studied(run: RunFolder, raw: Scores, progress: Callable[[int, int], object] | None) -> Study:
    from ranp.study import study

    network = network_of(run.recipe)
    strength = None if run.plan is None else run.plan.settings.get("strength")
    compare = () if run.method == _COMPARED else (_COMPARED,)
    return study(
        hollow(network.build),
        network.example,
        raw,
        plan=run.plan,
        method=run.method,
        strength=strength,
        compare=compare,
        progress=progress,
    )


def pictures_of(runs: Sequence[RunFolder]) -> tuple[Picture, ...] | Absent:
    """What trained networks of one task predict on samples they were not trained on, beside the truth.

    Args:
        runs: Of one task; those that have not finished training take no part.
    """
    done = [run for run in runs if run.figures and (run.folder / "model.safetensors").is_file()]
    if not done:
        return Absent("No network of this page has finished training, so there is nothing to predict with.")
    return _attempt("Example predictions", partial(_pictured, done))


def _pictured(runs: Sequence[RunFolder]) -> tuple[Picture, ...]:
    from ranp.paper import tasks
    from ranp.paper.pictures import pictures
    from ranp.paper.training.evaluation import recipe_of

    stored, recipe = recipe_of(runs[0].folder)
    data = stored.get("data") or {}
    folder = Path(data["folder"]) if data.get("folder") else None
    task = tasks.get(runs[0].task, folder, allow_missing=bool(data.get("allow_missing")), fold=recipe.fold)
    models = {run.label: load(run.folder / "model.safetensors", network_of(run.recipe).build) for run in runs}
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
