"""The coverage table: every network of the zoo, ours beside Torch-Pruning's, each in a process with a time limit."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import logging
import math
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks import zoo_ours, zoo_peer
from benchmarks.pairs import table
from benchmarks.resuming import Kept
from benchmarks.zoo_ours import Ours
from benchmarks.zoo_verdict import STEPS, Verdict
from zoo.catalogue import ZOO

RATIOS = (0.5, 0.8)
PAIRS = 3
LIMITS = {"ours": 300, "theirs": 90}
"""Seconds for one network: ours for all ratios and times together, theirs for one ratio."""
NEAR = 0.01
PRELOAD = ["benchmarks.zoo_ours", "benchmarks.zoo_peer", "monai.networks.nets", "zoo.catalogue", "torch._dynamo"]
"""What every process would import first, and for seconds."""
TARGET = Path(__file__).parent.parent / "docs" / "coverage.md"
COMMAND = "python -m benchmarks zoo"


@dataclass(slots=True)
class Row:
    """One network, both sides."""

    name: str
    ours: Ours
    theirs: dict[float, Verdict] = field(default_factory=dict)
    slower: float = math.nan

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Row:
        """From the plain values of ``dataclasses.asdict``."""
        theirs = {float(ratio): Verdict.of(one) for ratio, one in kept["theirs"].items()}
        return cls(kept["name"], Ours.of(kept["ours"]), theirs, kept["slower"])


def our_side(name: str, count: int) -> Iterator[Ours]:
    yield zoo_ours.examined(ZOO[name], RATIOS, count)


def their_side(name: str, ours: Ours, count: int) -> Iterator[Any]:
    """A verdict for each ratio, then how much slower we are, one by one: each has its own time limit."""
    reliable = ours.judge <= zoo_peer.WRONG
    for ratio in RATIOS:
        verdict = zoo_peer.judged(ZOO[name], ratio, ours.outputs, ours.layers, reliable=reliable)
        yield verdict
        if not verdict.steps:  # it did not get through the network, and will not at another ratio
            return
    yield zoo_peer.slower(ZOO[name], ours.outputs, count) if verdict.trains and count else math.nan


def _answer(pipe: Any, job: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):  # some networks print
        for answer in job(*arguments):
            pipe.send(answer)
    pipe.close()


def limited(job: Callable[..., Iterator[Any]], *arguments: Any, seconds: float) -> tuple[list[Any], str]:
    """The answers of another process, and why they end: some graphs are walked for hours, some end the process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    mine, other = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(other, job, arguments))
    process.start()
    other.close()
    answers: list[Any] = []
    try:
        while mine.poll(seconds):
            answers.append(mine.recv())
        return answers, f"stopped after {seconds:.0f} s"
    except EOFError:
        process.join()
        return answers, "" if process.exitcode == 0 else f"the process died ({process.exitcode})"
    finally:
        process.kill()
        process.join()


def examined(name: str, count: int) -> Row:
    answers, why = limited(our_side, name, count, seconds=LIMITS["ours"])
    stopped = Ours(verdicts={ratio: Verdict(problem=why) for ratio in RATIOS}, note=why)
    row = Row(name, answers[0] if answers else stopped)
    answers, why = limited(their_side, name, row.ours, count, seconds=LIMITS["theirs"])
    verdicts = [answer for answer in answers if isinstance(answer, Verdict)]
    last = Verdict(problem=why) if why or not verdicts else verdicts[-1]
    row.theirs = dict(zip(RATIOS, [*verdicts, *[last] * len(RATIOS)], strict=False))
    row.slower = next((answer for answer in answers if isinstance(answer, float)), math.nan)
    return row


def _steps(verdict: Verdict) -> str:
    return "".join("✓" if step in verdict.steps else "✗" for step in STEPS)


def _error(verdict: Verdict) -> str:
    if verdict.checked == "certificate":
        return "certificate"
    return "" if math.isnan(verdict.error) else f"{verdict.error:.0e}"


def _costs(verdict: Verdict) -> tuple[str, str]:
    before, after = verdict.before, verdict.after
    if before is None or after is None:
        return "", ""
    macs = f"{_short(before.macs / 1e6)} → {_short(after.macs / 1e6)} (x{after.macs / max(before.macs, 1):.2f})"
    return macs, f"x{after.params / before.params:.2f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _seconds(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}"


def cells(row: Row, ratio: float) -> tuple[str, ...]:
    ours, theirs = row.ours.verdicts[ratio], row.theirs[ratio]
    said = "; ".join(filter(None, (ours.problem, ours.note)))
    unchecked = "" if theirs.problem or theirs.checked else " (unchecked)"
    pinned = row.ours.channels - row.ours.prunable
    return (
        row.name,
        _steps(ours),
        _error(ours),
        f"{ours.requested} / {ours.removed} of {row.ours.prunable}" + (f"; {said}" if said else ""),
        str(pinned),
        *_costs(ours),
        "" if math.isnan(ours.even) else f"x{ours.even:.2f}",
        _seconds(ours.seconds),
        _steps(theirs),
        (theirs.problem or "ok") + unchecked,
        _error(theirs),
        str(theirs.removed) if theirs.trains else "",
        *_costs(theirs),
        _seconds(theirs.seconds),
    )


HEADER = (
    "network",
    "ours",
    "error",
    "requested / removed of prunable",
    "pinned",
    "10⁶ MACs",
    "params",
    "params, even",
    "s",
    "Torch-Pruning",
    "verdict",
    "error",
    "removed",
    "10⁶ MACs",
    "params",
    "s",
)


def near(verdict: Verdict, prunable: int) -> bool:
    """Within a point of what was asked; where nothing can go, nothing was missed."""
    return bool(verdict.steps) and abs(verdict.removed - verdict.requested) <= NEAR * prunable


def summary(rows: Sequence[Row], quick: bool) -> list[str]:
    total, lines = len(rows), []
    for side, verdicts in (("ours", lambda row: row.ours.verdicts), ("Torch-Pruning", lambda row: row.theirs)):
        found = [verdicts(row) for row in rows]

        def count(good: Callable[[Verdict], bool], found: list[dict[float, Verdict]] = found) -> str:
            return " / ".join(str(sum(good(by_ratio[ratio]) for by_ratio in found)) for ratio in RATIOS)

        lines.append(
            f"- **{side}**, at {' / '.join(f'{100 * ratio:.0f} %' for ratio in RATIOS)}: of {total} networks traced "
            f"{count(lambda v: 'traced' in v.steps)}, pruned {count(lambda v: 'pruned' in v.steps)}, forward "
            f"{count(lambda v: 'forward' in v.steps)}, backward {count(lambda v: 'backward' in v.steps)}; channels "
            f"were removed and the result is right: {count(lambda v: v.good)}; it runs but is wrong: "
            f"{count(lambda v: v.problem.startswith(('wrong', 'changes')))}; it runs, unchecked: "
            f"{count(lambda v: v.trains and not v.problem and not v.checked)}."
        )
    close = " / ".join(str(sum(near(row.ours.verdicts[r], row.ours.prunable) for row in rows)) for r in RATIOS)
    lines.append(f"- Ours removed what was asked to within 1 point of the prunable channels in {close} of {total}.")
    empty = [row.name for row in rows if row.ours.channels and not row.ours.prunable]
    if empty:
        lines.append(f"- Nothing can be pruned, and nothing was: {', '.join(empty)}.")
    timed = [row.ours.analysis for row in rows if not math.isnan(row.ours.analysis)]
    if timed:
        under = sum(value < 1 for value in timed)
        lines.append(
            f"- Trace, plan and slim copy over one forward and backward pass at an ordinary size, CPU time: median "
            f"{statistics.median(timed):.2f}, below 1 in {under} of {len(timed)} that were timed "
            f"({'one pair' if quick else f'median of {PAIRS} interleaved pairs, one where a pass is long'})."
        )
    against = [row.slower for row in rows if not math.isnan(row.slower)]
    if against:
        lines.append(
            f"- The same over Torch-Pruning's graph and pruning at the small example, where it succeeds: median "
            f"{statistics.median(against):.2f} of {len(against)}."
        )
    return lines


def pins(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Networks in which more stays than the outputs, with the cause that holds most."""
    found = []
    for row in rows:
        others = {cause: pin for cause, pin in row.ours.pins.items() if cause != "output"}
        if others:
            output = row.ours.pins.get("output", (0, ""))[0]
            told = "; ".join(f"{count} {cause}: {text}" for cause, (count, text) in sorted(others.items(), key=_most))
            found.append((row.name, str(row.ours.prunable), str(row.ours.channels), str(output), told))
    return found


def _most(item: tuple[str, tuple[int, str]]) -> int:
    return -item[1][0]


def speeds(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    return [
        (
            row.name,
            _seconds(row.ours.trace),
            f"{row.ours.analysis:.2f}" if not math.isnan(row.ours.analysis) else row.ours.note,
            f"{row.slower:.2f}" if not math.isnan(row.slower) else "",
        )
        for row in rows
    ]


def text(rows: Sequence[Row], quick: bool) -> str:
    """The whole page."""
    parts = [INTRODUCTION.format(command=COMMAND, versions=_versions()), "## Summary\n", *summary(rows, quick), ""]
    for ratio in RATIOS:
        parts.append(table(f"At {100 * ratio:.0f} %", HEADER, (cells(row, ratio) for row in rows), ()))
    header = (
        "network",
        "prunable",
        "channels",
        "outputs",
        "what else stays: channels, kind of cause, the longest of them",
    )
    parts.append(table("What is pinned and why", header, pins(rows), (PINNED,)))
    header = ("network", "trace, s", "over forward + backward", "over Torch-Pruning")
    parts.append(table("What the analysis costs", header, speeds(rows), (SPEED,)))
    return "\n".join(parts)


def _versions() -> str:
    packages = ("torch", "monai", "torch-pruning", "ranp")
    return ", ".join(f"{package} {version(package)}" for package in packages)


def run(*, quick: bool, only: str = "*", jobs: int = 1, times: bool = True) -> None:
    """Prints the page, and writes that of the whole zoo. Times are CPU times, so that jobs disturb them little."""
    kept, count = Kept("zoo", quick), (1 if quick else PAIRS) if times else 0

    def told(name: str) -> Row:
        start = time.perf_counter()
        row = Row.of(kept.once(name, count, work=lambda: asdict(examined(name, count))))
        both = (*row.ours.verdicts.values(), *row.theirs.values())
        words = " / ".join(verdict.problem or verdict.note or _error(verdict) or "ok" for verdict in both)
        print(f"{name}: {words} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
        return row

    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(told, fnmatch.filter(ZOO, only)))
    page = text(rows, quick)
    print(page)
    if only == "*":
        TARGET.write_text(page.rstrip() + "\n", encoding="utf-8")


INTRODUCTION = """\
# Coverage

Networks that nobody here wrote, or that follow a published implementation (`zoo/`), pruned with no help for any of
them. Made by `{command}` ({versions}; one thread, CPU).

Every network has its real topology, with fewer channels where the original would take minutes, and runs on about the
smallest example that it accepts. *Ours* is `ranp.prune(model, batches, loss, sparsity=..., exact=True)` with the
default method. *Torch-Pruning* is `BasePruner` with group magnitudes and the same share of every layer, the setting in
which it empties no layer; it is told which layers make the outputs, since it cannot find out. Each side runs in a
process of its own with a time limit.

How to read the tables:

- **✓✓✓✓**: traced, pruned, forward, backward. A ✗ is where it stopped.
- **error**: the largest difference between the outputs of the slim network and those of the full network whose removed
  channels are silenced at their consumers, over the largest output, in float64, in eval and train mode, with norm
  statistics over the kept channels in both. Ours is that of `ranp.verify`. Torch-Pruning does not say what it removed:
  there every weight carries its own place in the spare bits of a float64, so that the pruned network can be read back.
  The same reading of our own slim network must agree first, else the entry is *unchecked*.
- **certificate**: no masked twin exists, or it cannot be run (an operator mixes channels so that silencing one is not
  removing it). Then it was checked that the slim network holds exactly the kept weights, and that it runs the same
  operators on the same channels in the same order as the full one.
- **requested / removed**: output channels of convolutions and linear layers, depthwise included, of those that are
  **prunable**; **pinned** are the rest: layers that make outputs, and what "What is pinned and why" lists.
- **MACs**: multiply-adds of one call on the small example, full → slim; **params**: slim over full; **params, even**:
  the same where every layer loses the same share (`scope="layer"`), so that no method prefers layers; **s**: seconds
  (ours: trace, scores, plan, slim copy and its check; theirs: graph and pruning).
- **wrong**: it runs, but it is not the full network without the removed channels. **prunes nothing**: it runs because
  it is untouched.
"""
PINNED = (
    "Kinds: `code` a size or a path that Python code assumes, `operation` one that needs the channels it meets, "
    "`operator` one without a rule, `unused` layers that the example does not run, `gradient` layers that no gradient "
    "reaches (kept, since nothing scores them), `coupling` all channels of a layer stand or fall together."
)
SPEED = (
    "CPU seconds of the trace at the ordinary size of the catalogue (nothing is computed there), then trace, plan and "
    "slim copy over one forward and backward pass at that size, then over Torch-Pruning's graph and pruning at the "
    "small example, where it computes next to nothing and where it succeeds."
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("only", nargs="?", default="*", help="pattern of network names, default all")
    parser.add_argument("--quick", action="store_true", help="one pair instead of three")
    parser.add_argument(
        "--no-times", action="store_true", help="leave out passes at ordinary sizes: minutes, not an hour"
    )
    parser.add_argument("--jobs", type=int, default=1, help="networks at a time, default 1")
    arguments = parser.parse_args()
    run(quick=arguments.quick, only=arguments.only, jobs=arguments.jobs, times=not arguments.no_times)


if __name__ == "__main__":
    main()
