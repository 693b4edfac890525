"""A comparison from arms, budgets and seeds to a table: explore learning rates, run what counts, measure steps."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from torch import nn

from ranp import arguments
from ranp.choosing.budgets import parse_all
from ranp.comparing.arms import DEFAULT, Arm, arms_of
from ranp.comparing.cells import Cell, Outcome, Place, decide, read, run_cell
from ranp.comparing.comparison import Comparison, Measure
from ranp.comparing.inference import scipy_stats
from ranp.comparing.subject import Subject, Train
from ranp.costs.step import StepSetup, TrainingStep
from ranp.costs.timing import QUICK, Stepper, ratio
from ranp.errors import RanpError, UnsupportedError, asked
from ranp.files import atomic
from ranp.progress import Labelled, silent
from ranp.scoring.passes import Loss, first_batch
from ranp.slimming.initialisation import COPY, check_initialiser
from ranp.slimming.slim import apply_plan
from ranp.workers import check_all_ran, side_by_side

KIND, VERSION = "ranp-compare", 1
EXPLORATION = 10_000
"""The first of the seeds that learning rates are chosen on; the comparison's own are never looked at for that."""
RATES = (3e-3, 1e-2, 3e-2)
_LOWER = ("loss", "error", "mae", "mse", "rmse", "epe", "hausdorff")
"""Figures of which less is better, by what their name holds."""


def compare(
    model: Callable[[], nn.Module] | None = None,
    batches: Iterable[Any] | Callable[[int], Iterable[Any]] | None = None,
    loss: Loss | None = None,
    train: Train | None = None,
    *,
    subject: Subject | None = None,
    out: str | os.PathLike[str],
    budgets: str | Sequence[str] = ("flops=5%",),
    arms: Iterable[str | Arm] = DEFAULT,
    reference: str = "flat",
    seeds: int | Sequence[int] = 8,
    rates: Sequence[float] = RATES,
    exploration: int = 2,
    random_widths: int = 0,
    random_seeds: int = 2,
    metric: str | None = None,
    goal: str | None = None,
    fails: float | None = None,
    init: str = "paired",
    example: Any = None,
    step: TrainingStep | None = None,
    device: str = "cpu",
    jobs: int = 1,
    cluster: str | None = None,
    progress: Labelled | None = None,
    command: str = "",
) -> Comparison:
    """Compares ways to choose widths on a network and a training of your own, at exactly equal budgets.

    For each arm and budget the learning rate that does best on exploration seeds is taken; then every arm is trained
    on the same fresh seeds from paired initial weights. A cell (arm, budget, seed, rate) that is finished is never run
    again: call it again with the same folder to go on, or with more seeds to add some.

    Args:
        model: Makes the full network.
        batches: What to score on: ``(inputs, target)`` pairs, or a function of the seed that returns them.
        loss: ``loss(output, target)``, a scalar.
        train: ``train(network, training)`` trains with ``training.lr`` and returns figures by name, on held-out data.
        subject: Instead of all these: what ``ranp.comparing.sources`` makes of a task or of a Lightning module.
        out: Folder of cells, ``compare.csv`` (every run), ``compare.md`` and ``compare.html``.
        budgets: ``"flops=5%"``, or several; each is a comparison of its own. Commas join budgets that must all hold.
        arms: ``"full"``, methods of ``ranp.prune``, or ``"name=method,option=value"``.
        reference: The arm that others are compared with.
        seeds: How many, from 0 on, or which.
        rates: Learning rates to choose from; with a single one nothing is explored.
        exploration: Seeds that they are chosen on.
        random_widths: Random vectors of widths, that the percentiles of arms are taken among.
        random_seeds: On how many of the seeds those are trained.
        metric: The figure that counts, default the first that ``train`` returns.
        goal: ``"max"`` or ``"min"``; default: by its name.
        fails: A run with a worse figure counts as failed.
        init: ``"paired"``: all arms begin with the same weights, rescaled to their widths. ``"copy"`` for pretrained
            networks; or a name of ``ranp.prune``.
        example: Inputs that costs are taken at, default those of the first batch.
        step: What a training step is, for budgets and measurements of memory and time.
        device: Where networks are made and scored.
        jobs: Processes side by side; then all functions must be importable.
        cluster: A Dask cluster instead, that sees the folder; see ``ranp.workers``.
        progress: Takes ``(what, done, total, remark)``.
        command: What the reader runs to have it again, written into the table.

    Raises:
        RanpError: Something is refused, or cells cannot be run; the others are finished, and the message says which.
    """
    functions = {"model": model, "batches": batches, "loss": loss, "train": train}
    if subject is None:
        missing = [name for name, value in functions.items() if value is None]
        if missing:
            raise UnsupportedError(f"{', '.join(map(asked, missing))} is missing. Pass all four, or subject=.")
        subject = Subject(model, batches, loss, train, example, step, device)  # type: ignore[arg-type]
    for name, value, least in (("jobs", jobs, 1), ("exploration", exploration, 1), ("random_seeds", random_seeds, 1)):
        arguments.whole(name, value, least)
    wide = arguments.whole("random_widths", random_widths, 0, 10**6)
    chosen = arms_of(arguments.several("arms", arms, (str, Arm), "methods by name, or name=method,option=value"), wide)
    named = [arm.name for arm in chosen if arm.prunes]
    if not isinstance(reference, str) or reference not in named:
        raise UnsupportedError(
            f"{asked('reference', reference)} is not an arm that is pruned. Pass one of {', '.join(named)}."
        )
    texts = arguments.several("budgets", budgets, str, "text such as 'flops=5%', or a list of such texts")
    for text in texts:
        parse_all(text)
    if not isinstance(init, str) or init != "paired":
        check_initialiser(init, COPY)
    if goal is not None:
        arguments.choice("goal", goal, ("max", "min"))
    if fails is not None:
        arguments.number("fails", abs(fails) if type(fails) in (int, float) else fails, "a number, or None")
    if cluster is not None:
        arguments.kind("cluster", cluster, str, "the address of a Dask scheduler, its file, slurm, pbs or lsf")
    given = seeds if isinstance(seeds, list | tuple | range) else range(arguments.whole("seeds", seeds, 1, EXPLORATION))
    numbers = tuple(map(arguments.seed, given))
    if not numbers or not isinstance(rates, list | tuple) or not rates:
        raise arguments.refused("rates" if numbers else "seeds", rates if numbers else seeds, "at least one")
    rates = tuple(arguments.number("rates", rate, "learning rates above 0") for rate in rates)
    if not all(rates):
        raise arguments.refused("rates", rates, "learning rates above 0")
    used = [seed for seed in numbers if EXPLORATION <= seed < EXPLORATION + exploration]
    if used and len(rates) > 1:
        raise arguments.refused("seeds", used[0], f"others than those that rates are chosen on, {EXPLORATION} and more")
    arguments.path(out, "out")
    scipy_stats()
    study = _Study(subject, Place(Path(out), init), chosen, texts, jobs, cluster, progress or silent)
    study.begin()
    study.check(numbers[0])
    tried = study.cells(rates, range(EXPLORATION, EXPLORATION + exploration)) if len(rates) > 1 else []
    if metric is not None:  # a name that no training returns is refused after one cell, not after all
        study.measure(study.run((tried or study.cells(rates, numbers))[:1]), metric, goal, fails)
    explored = study.run(tried)
    measure = study.measure(explored, metric, goal, fails)
    best = study.best(explored, measure, rates)
    runs = study.run([*study.at(best, numbers), *study.random(best, numbers[:random_seeds])])
    measure = measure or study.measure(runs, metric, goal, fails)
    assert measure is not None
    times = study.step_times(numbers[0])
    found = Comparison(measure, reference, tuple(runs), tuple(explored), times, command)
    found.write(Path(out))
    return found


class _Study:
    """The cells of one comparison and how they are run."""

    def __init__(
        self,
        subject: Subject,
        place: Place,
        arms: Sequence[Arm],
        budgets: Sequence[str],
        jobs: int,
        cluster: str | None,
        progress: Labelled,
    ) -> None:
        self.subject, self.place, self.arms, self.budgets = subject, place, arms, budgets
        self.jobs, self.cluster, self.progress = jobs, cluster, progress

    def begin(self) -> None:
        """Refuses a folder whose cells were run by other code, and functions that no other process could import."""
        atomic.check_writable(self.place.folder)
        if self.jobs > 1 and self.cluster is None:
            try:
                ForkingPickler.dumps(self.subject)  # as the pool will do
            except Exception as error:
                raise UnsupportedError(
                    f"{asked('jobs', self.jobs)} needs functions that other processes can import ({error}). Define "
                    "them at the top of a module, or leave it at 1."
                ) from error
        path = self.place.folder / "compare-code.json"
        now = {**self.subject.fingerprints(), "init": self.place.init}
        if path.is_file():
            before = atomic.read_json(path, kind=KIND, version=VERSION)["code"]
            changed = [name for name, mark in now.items() if before.get(name) != mark]
            if changed:
                raise UnsupportedError(
                    f"{', '.join(changed)} changed since the cells in {str(self.place.folder)!r} were run. Name "
                    "another folder, or remove this one."
                )
            return
        self.place.folder.mkdir(parents=True, exist_ok=True)
        atomic.write_json(path, {"code": now}, kind=KIND, version=VERSION)

    def check(self, seed: int) -> None:
        """Makes every arm slim once, so that a budget or an arm that is refused is refused before anything is trained.

        Raises:
            RanpError: One is refused.
        """
        cells = [Cell(arm, budget, seed, 0.0) for arm, budget in self.pairs()]
        work = partial(_decided, subject=self.subject, place=self.place)
        for number, (cell, found) in enumerate(side_by_side(work, cells, jobs=self.jobs, cluster=self.cluster), 1):
            if isinstance(found, RanpError):
                raise type(found)(f"arm {cell.arm.name!r}: {found}") from found
            self.progress("arm", number, len(cells), f"{cell.arm.name} {cell.budget}".strip())

    def pairs(self) -> Iterator[tuple[Arm, str]]:
        """Arms and budgets, but for random vectors of widths; the full network has no budget."""
        for arm in self.arms:
            if not arm.is_drawn:
                yield from ((arm, budget) for budget in (self.budgets if arm.prunes else ("",)))

    def cells(self, rates: Sequence[float], seeds: Iterable[int]) -> list[Cell]:
        """Every arm and budget at every rate, seed by seed: a part of it is of use early."""
        return [Cell(arm, budget, seed, rate) for seed in seeds for arm, budget in self.pairs() for rate in rates]

    def at(self, best: dict[tuple[str, str], float], seeds: Iterable[int]) -> list[Cell]:
        """Every arm and budget at its own rate."""
        return [Cell(arm, budget, s, best[arm.name, budget]) for s in seeds for arm, budget in self.pairs()]

    def random(self, best: dict[tuple[str, str], float], seeds: Iterable[int]) -> list[Cell]:
        """Random vectors of widths, at the rate that arms chose most often, the middle one of several."""
        cells = []
        for budget in self.budgets:
            rates = [best[arm.name, budget] for arm, own in self.pairs() if own == budget]
            rate = statistics.median_low(statistics.multimode(rates))
            cells += [Cell(arm, budget, seed, rate) for seed in seeds for arm in self.arms if arm.is_drawn]
        return cells

    def run(self, cells: Sequence[Cell]) -> list[Outcome]:
        """Runs cells, or reads them.

        Raises:
            RanpError: Some cannot be run; the others are finished.
        """
        left = [cell for cell in dict.fromkeys(cells) if not self.place.outcome(cell).is_file()]
        failed, done = dict[str, RanpError](), len(cells) - len(left)
        work = partial(run_cell, subject=self.subject, place=self.place)
        for cell, found in side_by_side(work, left, jobs=self.jobs, cluster=self.cluster, progress=self.progress):
            done += 1
            if isinstance(found, RanpError):
                failed[cell.id] = found
                self.progress("failed", done, len(cells), f"{cell.id}: {found}")
            else:
                words = ", ".join(f"{name} {value:.4g}" for name, value in found.figures.items())
                self.progress("cell", done, len(cells), f"{cell.id}: {words}")
        check_all_ran(failed, len(cells))
        return [read(cell, self.place) for cell in cells]

    def measure(
        self, runs: Sequence[Outcome], metric: str | None, goal: str | None, fails: float | None
    ) -> Measure | None:
        """What counts, as the first run tells; None before any."""
        if not runs:
            return None
        names = list(runs[0].figures)
        name = names[0] if metric is None else arguments.choice("metric", metric, names)
        higher = not any(word in name.lower() for word in _LOWER) if goal is None else goal == "max"
        return Measure(name, higher, fails)

    def best(
        self, explored: Sequence[Outcome], measure: Measure | None, rates: Sequence[float]
    ) -> dict[tuple[str, str], float]:
        """The rate of the best mean figure, by arm and budget; a run without a number is the worst there is."""
        if measure is None:
            return {(arm.name, budget): rates[0] for arm, budget in self.pairs()}
        merits: dict[tuple[str, str], dict[float, list[float]]] = {}
        for run in explored:
            own = merits.setdefault((run.cell.arm.name, run.cell.budget), {})
            own.setdefault(run.cell.lr, []).append(measure.merit(run))
        return {key: max(own, key=lambda rate: (statistics.fmean(own[rate]), -rate)) for key, own in merits.items()}

    def step_times(self, seed: int) -> dict[tuple[str, str], float]:
        """A training step of each arm over one of the full network, in turn, on this machine and in this process."""
        path, found = self.place.folder / "step-times.json", dict[str, float]()
        if path.is_file():
            found = atomic.read_json(path, kind=KIND, version=VERSION)["ratios"]
        keys = {_key(arm, budget): (arm, budget) for arm, budget in self.pairs() if arm.prunes}
        missing = {key: pair for key, pair in keys.items() if key not in found}
        if missing:
            full = self.subject.full(seed)
            first, _ = first_batch(self.subject.scored_on(seed), needed=True)
            example = first[0] if self.subject.example is None else self.subject.example
            setup = StepSetup(full, example, self.subject.step or TrainingStep())
            try:
                with Stepper(setup, full) as whole:
                    for number, (key, (arm, budget)) in enumerate(missing.items(), 1):
                        plan = decide(Cell(arm, budget, seed, 0.0), self.subject, self.place, full).plan
                        assert plan is not None
                        with Stepper(setup, apply_plan(full, plan)) as slim:
                            found[key] = ratio(slim, whole, QUICK)
                        value = {"ratios": found, "step": asdict(setup.step)}
                        atomic.write_json(path, value, kind=KIND, version=VERSION)
                        self.progress("step time", number, len(missing), f"{arm.name} {budget}: {found[key]:.3f}")
            except UnsupportedError as error:  # such as a network that needs more than its inputs
                self.progress("step time", len(missing), len(missing), f"not measured: {error}")
                return {}
        return {(arm.name, budget): found[key] for key, (arm, budget) in keys.items()}


def _decided(cell: Cell, _told: Labelled, *, subject: Subject, place: Place) -> None:
    decide(cell, subject, place)


def _key(arm: Arm, budget: str) -> str:
    """An arm at a budget, as one name."""
    return f"{arm.name} at {budget}"
