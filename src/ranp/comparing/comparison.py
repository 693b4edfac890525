"""What a comparison found: every run, and by budget and arm what they say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ranp.comparing.arms import Arm
from ranp.comparing.cells import Outcome
from ranp.comparing.inference import ENOUGH, Difference, difference, holm, percentile
from ranp.files import atomic
from ranp.reporting.format import NOTHING, share
from ranp.reporting.table import Column, Group, Table

LEAST_USED = 0.995
"""The share of a budget that an arm must use to be called equal to others."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The figure that arms are judged by.

    Attributes:
        name: As the training calls it.
        higher: Whether higher is better.
        fails: A run that is worse than this has failed; None: one that is not a number has.
    """

    name: str
    higher: bool
    fails: float | None = None

    def of(self, outcome: Outcome) -> float:
        """The figure of a run."""
        return outcome.figures.get(self.name, math.nan)

    def merit(self, outcome: Outcome) -> float:
        """The same so that higher is better; minus infinity where it is not a number."""
        value = self.of(outcome)
        return (value if self.higher else -value) if math.isfinite(value) else -math.inf

    def failed(self, outcome: Outcome) -> bool:
        """Whether the run failed."""
        merit = self.merit(outcome)
        return merit == -math.inf or (self.fails is not None and merit < (self.fails if self.higher else -self.fails))


@dataclass(frozen=True, slots=True)
class Row:
    """What the runs of one arm at one budget say together.

    Attributes:
        arm: Which.
        budget: Which.
        runs: On the seeds of the comparison, in their order.
        lr: The learning rate that did best on the exploration seeds.
        at_edge: Whether that is the least or the largest of several that were tried.
        against: How much better than the reference, in pairs of one seed; None for the reference itself.
        p: Corrected for the number of arms.
        percentile: Among random vectors of widths on the same seeds.
        step_time: Share of the full network's step, measured; None where it was not.
    """

    arm: Arm
    budget: str
    runs: tuple[Outcome, ...]
    lr: float
    at_edge: bool
    against: Difference | None = None
    p: float | None = None
    percentile: float | None = None
    step_time: float | None = None

    def values(self, measure: Measure) -> list[float]:
        """The finite figures."""
        return [value for run in self.runs if math.isfinite(value := measure.of(run))]

    def failures(self, measure: Measure) -> int:
        """How many runs failed."""
        return sum(map(measure.failed, self.runs))

    def kept(self, name: str) -> float | None:
        """The mean share of the full network's FLOPs, parameters, memory, ... that is left."""
        shares = [
            run.decision.costs[name] / run.decision.full[name]
            for run in self.runs
            if run.decision.full.get(name) and name in run.decision.costs
        ]
        return statistics.fmean(shares) if shares else None

    @property
    def used(self) -> float | None:
        """The least share of the budget that a run uses: of several budgets, the one that is used most."""
        shares = [max(run.decision.used.values()) for run in self.runs if run.decision.used]
        return min(shares) if shares else None

    @property
    def narrowest(self) -> int | None:
        """Channels of the narrowest layer of any run, of those that lost some."""
        widths = [run.decision.narrowest for run in self.runs if run.decision.narrowest is not None]
        return min(widths) if widths else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A finished comparison.

    Attributes:
        measure: What arms are judged by.
        reference: Name of the arm that others are compared with.
        runs: Every run on the seeds of the comparison.
        explored: Every run on the exploration seeds.
        step_times: Share of the full network's step, by arm and budget.
        command: What makes it again.
    """

    measure: Measure
    reference: str
    runs: tuple[Outcome, ...]
    explored: tuple[Outcome, ...] = ()
    step_times: Mapping[tuple[str, str], float] = field(default_factory=dict)
    command: str = ""

    @property
    def budgets(self) -> list[str]:
        """In the order of the runs."""
        return list(dict.fromkeys(run.cell.budget for run in self.runs if run.cell.budget))

    def rows(self, budget: str) -> list[Row]:
        """One row for each arm at a budget, the full network's included; random vectors of widths are not rows."""
        arms = list(dict.fromkeys(run.cell.arm for run in self.runs if run.cell.budget in (budget, "")))
        own = {arm: self._of(arm, budget) for arm in arms}
        reference = next((runs for arm, runs in own.items() if arm.name == self.reference), ())
        drawn = [runs for arm, runs in own.items() if arm.is_drawn]
        seeds = {run.cell.seed for runs in drawn for run in runs}
        merits = [self._merit(runs, seeds) for runs in drawn]
        rows, ps = [], dict[str, float]()
        for arm in (arm for arm in arms if not arm.is_drawn):
            runs = own[arm]
            against = None if arm.name == self.reference or not reference else self._against(runs, reference)
            if against is not None:
                ps[arm.name] = against.p
            key = (arm.name, budget if arm.prunes else "")
            tried = sorted({run.cell.lr for run in self.explored if run.cell.arm == arm})
            rate = runs[0].cell.lr
            rows.append(
                Row(
                    arm,
                    budget,
                    runs,
                    rate,
                    len(tried) > 1 and rate in (tried[0], tried[-1]),
                    against,
                    None,
                    percentile(self._merit(runs, seeds), merits) if arm.prunes else None,
                    self.step_times.get(key),
                )
            )
        corrected = holm(ps)
        return [replace(row, p=corrected.get(row.arm.name)) for row in rows]

    def drawn(self, budget: str) -> list[Outcome]:
        """The runs of random vectors of widths at a budget."""
        return [run for run in self.runs if run.cell.budget == budget and run.cell.arm.is_drawn]

    def _of(self, arm: Arm, budget: str) -> tuple[Outcome, ...]:
        own = [run for run in self.runs if run.cell.arm == arm and run.cell.budget == (budget if arm.prunes else "")]
        return tuple(sorted(own, key=lambda run: run.cell.seed))

    def _merit(self, runs: Iterable[Outcome], seeds: set[int]) -> float:
        merits = [self.measure.merit(run) for run in runs if run.cell.seed in seeds]
        return statistics.fmean(merits) if merits else -math.inf

    def _against(self, runs: Sequence[Outcome], reference: Sequence[Outcome]) -> Difference:
        """Over the seeds on which both runs gave a number; the others are counted as failures."""
        base = {run.cell.seed: self.measure.merit(run) for run in reference}
        pairs = [(self.measure.merit(run), base.get(run.cell.seed, -math.inf)) for run in runs]
        return difference([mine - theirs for mine, theirs in pairs if math.isfinite(mine) and math.isfinite(theirs)])

    def table(self) -> Table:
        """Arms by budget, for people."""
        better = "higher" if self.measure.higher else "lower"
        seeds = len({run.cell.seed for run in self.runs if not run.cell.arm.is_drawn})
        columns = (
            Column("arm", left=True),
            *map(Column, (f"{self.measure.name}, mean ± sd", "median", f"better than {self.reference} [95 %]", "p")),
            *map(Column, ("failed", "percentile", "lr", "budget used", "FLOPs", "parameters", "training memory")),
            *map(Column, ("step time", "narrowest layer")),
        )
        groups = tuple(Group(budget, tuple(self._entries(row) for row in self.rows(budget))) for budget in self.budgets)
        caption = (
            f"{seeds} seeds; {self.measure.name}, {better} is better. Differences are between runs of one seed, above "
            "0 where the arm is better, with a BCa bootstrap interval over the pairs in which both runs gave a number; "
            "p is Wilcoxon's, corrected for the number of arms (Holm). Costs are shares of the full network's; step "
            "time is measured, in turn with the full network's."
        )
        return Table(
            "compare",
            f"Arms at equal budgets: {', '.join(self.budgets)}",
            columns,
            groups,
            caption,
            tuple(self.notes()),
            tuple(self.records()),
            command=self.command,
        )

    def figures(self) -> Table | None:
        """Every figure that the training returned, by budget and arm; None where it returned one alone."""
        names = list(dict.fromkeys(name for run in self.runs for name in run.figures))
        if len(names) < 2:
            return None

        def entries(row: Row) -> tuple[str, ...]:
            return row.arm.title, *(_mean(row.values(Measure(name, higher=True))) for name in names)

        groups = tuple(Group(budget, tuple(map(entries, self.rows(budget)))) for budget in self.budgets)
        caption = (
            f"Mean ± standard deviation over the seeds, of runs that gave a number. Judged by {self.measure.name}."
        )
        columns = (Column("arm", left=True), *map(Column, names))
        return Table("compare-figures", "Every figure of the training", columns, groups, caption)

    def _entries(self, row: Row) -> tuple[str, ...]:
        values, against = row.values(self.measure), row.against
        kept = [row.kept(name) for name in ("flops", "params", "train_memory")]
        return (
            row.arm.title,
            _mean(values),
            f"{statistics.median(values):.4f}" if values else NOTHING,
            NOTHING if against is None else str(against),
            NOTHING if row.p is None else f"{row.p:.3f}",
            f"{row.failures(self.measure)} of {len(row.runs)}",
            NOTHING if row.percentile is None else f"{row.percentile:.0f}",
            f"{row.lr:g}" + ("*" if row.at_edge else ""),
            *(NOTHING if value is None else share(value) for value in (row.used, *kept, row.step_time)),
            NOTHING if row.narrowest is None else str(row.narrowest),
        )

    def notes(self) -> list[str]:
        """What a reader must mind."""
        found = []
        rows = [row for budget in self.budgets for row in self.rows(budget)]
        if any(row.at_edge for row in rows):
            found.append("*: the best of the learning rates that were tried is the least or the largest of them.")
        short = [f"{row.arm.name} at {row.budget}" for row in rows if row.used is not None and row.used < LEAST_USED]
        if short:
            found.append(f"Below {share(LEAST_USED)} of the budget: {', '.join(short)}.")
        if any(row.against is not None and not math.isfinite(row.against.low) for row in rows):
            found.append(f"Fewer than {ENOUGH} pairs: no interval.")
        if self.measure.fails is not None:
            worse = "below" if self.measure.higher else "above"
            found.append(f"A run fails with {self.measure.name} {worse} {self.measure.fails:g}, or without a number.")
        drawn = {run.cell.arm.name for run in self.runs if run.cell.arm.is_drawn}
        if drawn:
            count = len({run.cell.seed for run in self.runs if run.cell.arm.is_drawn})
            found.append(
                f"Percentiles are among {len(drawn)} random vectors of widths, on {count} seeds, all at one rate."
            )
        return found

    def records(self) -> list[dict[str, Any]]:
        """One plain mapping for each run, exploration included."""
        every = [(run, "comparison") for run in self.runs] + [(run, "exploration") for run in self.explored]
        return [
            {
                "arm": run.cell.arm.name,
                "method": run.cell.arm.method,
                "budget": run.cell.budget,
                "seed": run.cell.seed,
                "lr": run.cell.lr,
                "phase": phase,
                **{name: value if math.isfinite(value) else None for name, value in run.figures.items()},
                "failed": int(self.measure.failed(run)),
                "seconds": round(run.seconds, 3),
                "used": max(run.decision.used.values(), default=""),
                **{name: int(value) for name, value in run.decision.costs.items()},
                "narrowest": run.decision.narrowest or "",
                "widths": " ".join(map(str, run.decision.widths.values())),
            }
            for run, phase in every
        ]

    def write(self, folder: Path) -> list[Path]:
        """Writes the table in every form (the CSV holds every run), and the page.

        Raises:
            StorageError: The folder cannot be written to.
            UnsupportedError: Plotly is not installed.
        """
        from ranp.comparing.page import build

        page, figures = folder / "compare.html", self.figures()
        atomic.write_atomic(page, build(self).encode())
        return [*self.table().write(folder), *(() if figures is None else figures.write(folder)), page]


def _mean(values: Sequence[float]) -> str:
    """With the standard deviation, and no more digits than people read."""
    if not values:
        return NOTHING
    mean, deviation = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    digits = 4 if abs(mean) < 10 else 2
    return f"{mean:,.{digits}f} ± {deviation:,.{digits}f}"
