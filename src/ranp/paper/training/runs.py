"""A training run from nothing to a trained network in a folder, or on from where it was.

The folder holds ``recipe.json``, ``plan.json``, ``report.json`` and ``scores.safetensors`` (if the run pruned),
``metrics.jsonl``, the last checkpoints, and ``model.safetensors`` at the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from ranp.choosing.plan import Plan
from ranp.costs.tuning import tune
from ranp.errors import StorageError, UnsupportedError
from ranp.files.checkpoints import Checkpoints, Mark
from ranp.files.journal import kept
from ranp.options import Options
from ranp.paper.recipe import Recipe
from ranp.paper.scoring import ScoringBatches, example_of
from ranp.paper.tasks.task import Task
from ranp.paper.training.engine import Engine
from ranp.paper.training.evaluation import recipe_of
from ranp.paper.training.loading import check_batch
from ranp.paper.training.network import check_size, make_full, make_slim, options_of, whole
from ranp.paper.training.team import Team
from ranp.progress import Labelled, Progress, under
from ranp.pruning import prune
from ranp.reporting.folder import RunFolder, shapes_of, versions
from ranp.reporting.pruned import Pruned

_MAY_CHANGE = frozenset(
    "accumulate check_data checkpoint_every epochs keep_checkpoints tensorboard".split()
    + "valid_batch valid_count valid_every workers".split()
)
"""What a run may go on with another value of: the steps it has made are none the worse."""

_WORDS = {"amp-bfloat16": "bf16", "amp-float16": "fp16"}
"""Precisions as the fingerprint of a run spells them: checkpoints of older runs are still theirs."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a network is pruned in: everything of a run that decides on its scores and costs.

    Attributes:
        task: Data and loss.
        recipe: Network, size, seed.
        example: Inputs of one call at the size that costs are taken at.
        team: The processes that train together.
        progress: See ``Engine``.
    """

    task: Task
    recipe: Recipe
    example: Any
    team: Team
    progress: Labelled | None = None

    @property
    def scoring(self) -> Progress | bool:
        """Says how many batches are scored."""
        return under("scoring", self.progress if self.team.leads else None) or False

    def batches(self, size: int, count: int, batch: int, setting: str) -> ScoringBatches:
        """The batches that this rank scores.

        Raises:
            UnsupportedError: The network cannot take samples of that size.
        """
        task, recipe, team = self.task, self.recipe, self.team
        check_size(task, recipe, example_of(task, size, recipe.seed), batch, setting)
        return ScoringBatches(task, size, count, recipe.seed, team.rank, team.size, batch)


class Prunes(Protocol):
    """What decides how slim a run's network is."""

    def prune(self, full: nn.Module, setting: Setting) -> Pruned:
        """The slim network; every rank comes to the same."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """What it is, as plain values: a run that goes on must be the same."""
        ...


@dataclass(frozen=True, slots=True)
class Pruning:
    """How a run prunes its network before training.

    Attributes:
        method: A name that ``ranp.prune`` knows; None: its default.
        sparsity: Fraction of channels to remove; None with a budget.
        size: Edge of the samples it is scored on, default the recipe's.
        batches: How many batches it is scored on, over all ranks.
        strength: Lambda, default the task's.
        exact: Every layer keeps a channel, see ``ranp.prune``.
        batch: Samples in such a batch; the paper's is 1.
        more: Other fields of ``ranp.Options``: ``{"budget": "flops=5%", "keep": ...}``. Weights are drawn and
            everything is seeded as the recipe says.
    """

    method: str | None = None
    sparsity: float | None = None
    size: int | None = None
    batches: int = 10
    strength: float | None = None
    exact: bool = False
    batch: int = 1
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.options.check_amount()

    @property
    def options(self) -> Options:
        """What to prune and how, as ``ranp.prune`` takes it."""
        given = {"method": self.method, "sparsity": self.sparsity, "strength": self.strength, "exact": self.exact}
        return Options.of({**given, **self.more}, "Pruning")

    def prune(self, full: nn.Module, setting: Setting) -> Pruned:
        """Every rank scores its share of the batches; all of them come to the same plan.

        Budgets of memory and time are about the step of the recipe, and the report tells what that step needs.
        """
        task, recipe, options = setting.task, setting.recipe, self.options
        size = self.size or recipe.size
        given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
        given |= {"init": recipe.init, "seed": recipe.seed}
        given["step"] = recipe.step(setting.team.size) if options.step is None else options.step
        given["strength"] = task.strength if options.strength is None else options.strength
        pruned = prune(
            full,
            setting.batches(size, self.batches, self.batch, f"--prune-size {size}"),
            task.loss,
            example=setting.example,
            progress=setting.scoring,
            **given,
        )
        return pruned.with_step()

    def to_dict(self) -> dict[str, Any]:
        """What it is as plain values, without options that are left at their defaults."""
        given, plain = self.options.to_dict(), Options(sparsity=0).to_dict()
        others = {name: value for name, value in given.items() if value != plain[name]}
        own = {name: given[name] for name in ("method", "sparsity", "strength", "exact")}
        return {**others, **own, "size": self.size, "batches": self.batches, "batch": self.batch}


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Attributes:
        folder: Where it lies.
        model: The trained network.
        plan: What made it slim; removes nothing of a full one.
        records: Everything in the journal.
    """

    folder: Path
    model: nn.Module
    plan: Plan
    records: list[dict[str, Any]]

    @property
    def figures(self) -> dict[str, float]:
        """Of the last validation."""
        figures: dict[str, float] = next(record["valid"] for record in reversed(self.records) if record.get("valid"))
        return figures


def restarted() -> bool:
    """Whether ``torchrun`` has started this process again after a failure: then a run goes on by itself."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")


def train(
    task: Task,
    out: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    settings: Iterable[str] = (),
    plan: Plan | None = None,
    pruning: Prunes | None = None,
    resume: bool = False,
    team: Team | None = None,
    about: dict[str, Any] | None = None,
    progress: Labelled | None = None,
) -> Run:
    """Trains a network of a task, full or slim, into a run folder.

    Args:
        task: Data, loss and metrics.
        out: The run folder.
        recipe: How; default the folder's if it goes on, else the task's paper recipe.
        settings: ``key=value`` changes to it.
        plan: Cut the network by it. Made on another size or task if it is of the same architecture.
        pruning: Or prune the network first.
        resume: Go on in a folder that a run was begun in; begin if it is empty.
        team: The processes that train together, see ``team.joined``.
        about: More to remember in ``recipe.json``.
        progress: See ``Engine``.

    Raises:
        RanpError: What it is given is refused, or training cannot go on; the message says what is safe.
    """
    folder, team, resume = RunFolder(Path(out)), team or Team(), resume or restarted()
    if plan is not None and pruning is not None:
        raise UnsupportedError("a plan and a pruning method both say what to remove. Pass one of them.")
    begun = folder.begun
    remedy = "pass --resume to go on with the run in it" if begun else "empty it"
    team.lead(lambda: folder.check(force=resume and (begun or folder.barely_begun), remedy=remedy))
    if begun:
        if folder.finished and not Checkpoints(folder.path, 0).files():
            raise StorageError(
                f"the run in {str(folder.path)!r} is finished and its checkpoints are gone: it cannot go on. Name "
                "another folder."
            )
        recipe = _same(folder, recipe, settings)
        plan = _same_plan(folder, plan, pruning)
    else:
        recipe = (recipe or task.recipe).but(settings)
    full, example = make_full(task, recipe), example_of(task, recipe.size, recipe.seed)
    check_size(task, recipe, example, recipe.step(team.size).batch or 1, f"size={recipe.size}")
    pruned: Pruned | None = None
    if plan is None and pruning is not None:
        check_batch(task, recipe, team.size)
        pruned = pruning.prune(full.to(team.device), Setting(task, recipe, example, team, progress))
        plan = pruned.plan
    model = full if plan is None else make_slim(full, plan, recipe, example)
    used = whole(full) if plan is None else plan
    if recipe.memory_format == "auto":
        recipe = dataclasses.replace(recipe, memory_format=_fastest(recipe, model, example, team))
    run = _fingerprint(task, recipe, used)
    team.agree("plan, recipe or version", run)
    remembered = {
        "model": recipe.network,
        "options": json.loads(json.dumps(options_of(task, recipe))),
        "task": task.name,
        **(about or {}),
        "inputs": shapes_of(example),
        "pruning": None if pruning is None else pruning.to_dict(),
        "recipe": recipe.to_dict(),
        "versions": versions(),
    }

    def begin() -> None:
        if begun:
            _remember(folder, recipe, engine.mark)
        else:
            folder.begin(remembered, used, pruned)

    begun_on = recipe_of(folder)[0].get("versions") if begun else None
    engine = Engine(task, recipe, model, folder.path, run, team, progress, begun_on)
    here = engine.train(resume=resume, begin=lambda: team.lead(begin))
    if team.leads:
        folder.finish(engine.model, used, engine.mark)
    team.wait()
    return Run(folder.path, engine.model, used, folder.records() if team.leads else here)


def records(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What the journal of a run folder says so far; a last line that was cut off by a crash is left out.

    Raises:
        StorageError: There is none, a line was changed, or lines are lost.
    """
    return RunFolder(Path(folder)).records()


def of_run(name: str, report: Labelled) -> Labelled:
    """Reports how far one run among several has scored and trained, under its name."""

    def tell(label: str, done: int, total: int, remark: str) -> None:
        if label in ("training", "scoring"):
            report(f"{label} {name}", done, total, remark)

    return tell


def _remember(folder: RunFolder, recipe: Recipe, mark: Mark) -> None:
    kept(folder.path, mark)  # a journal that was changed is refused before anything else is
    stored = folder.recipe()
    if stored["recipe"] != json.loads(json.dumps(recipe.to_dict())):
        folder.write_recipe({**stored, "recipe": recipe.to_dict()})


def _fastest(recipe: Recipe, model: nn.Module, example: Any, team: Team) -> str:
    """How the network runs fastest here, as the rank that leads measures it."""
    found: list[str] = []

    def measure() -> None:
        found.append(tune(model.to(team.device), example, recipe.step(team.size)).name)

    team.lead(measure)
    return team.gather("".join(found))[0]


def _same(folder: RunFolder, recipe: Recipe | None, settings: Iterable[str]) -> Recipe:
    """The recipe of a run that goes on: the folder's, with changes that make no past step wrong."""
    _, before = recipe_of(folder)
    wanted = (before if recipe is None else recipe).but(settings)
    if wanted.memory_format == "auto":  # it was decided when the run was begun
        wanted = dataclasses.replace(wanted, memory_format=before.memory_format)
    for field in dataclasses.fields(Recipe):
        old, new = getattr(before, field.name), getattr(wanted, field.name)
        if old != new and field.name not in _MAY_CHANGE:
            raise UnsupportedError(
                f"{field.name}={new}: the run in {str(folder.path)!r} was begun with {old}. Go on with that, or start "
                f"another run in another folder; what may change is {', '.join(sorted(_MAY_CHANGE))}."
            )
    return wanted


def _same_plan(folder: RunFolder, plan: Plan | None, pruning: Prunes | None) -> Plan:
    """The plan of a run that goes on; it is neither cut nor pruned again, so nobody may ask for something else."""
    stored = Plan.load(folder.path / "plan.json")
    before = recipe_of(folder)[0].get("pruning")
    wanted = None if pruning is None else json.loads(json.dumps(pruning.to_dict()))
    if wanted is not None and before != wanted:
        how = f"with {before['method']} at {before['sparsity']}" if isinstance(before, dict) else "without pruning"
        raise UnsupportedError(
            f"pruning with {wanted['method']} at {wanted['sparsity']}: the run in {str(folder.path)!r} was begun "
            f"{how}. Go on with that, or name another folder."
        )
    if plan is not None and (plan.kept, plan.cuts) != (stored.kept, stored.cuts):
        raise UnsupportedError(
            f"the run in {str(folder.path)!r} has another plan. Leave --plan out, or name another folder."
        )
    return stored


def _fingerprint(task: Task, recipe: Recipe, plan: Plan) -> str:
    fixed = {name: value for name, value in recipe.to_dict().items() if name not in _MAY_CHANGE}
    fixed["precision"] = _WORDS.get(recipe.precision, recipe.precision)
    if recipe.memory_format == "contiguous":  # older runs know nothing else
        del fixed["memory_format"]
    text = json.dumps([task.name, options_of(task, recipe), fixed, plan.to_json()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
