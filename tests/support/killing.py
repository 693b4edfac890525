"""Kills ``train``, ``prune``, ``reproduce`` and ``report`` with SIGKILL, starts them again, and compares what is there.

A program of its own: it imports torch once, and then forks a child for every start, so that a start costs a second or
two. Half of the moments are drawn from the time that a verb takes; the other half are steps of writing a file or a
folder: before a byte is written, after half of them, before they are flushed, before and after something takes its
name, before something is removed. When the verb was let to its end, every byte under the folder must be that of a run
that nobody disturbed, and nothing else may be there.

    python -m tests.support.killing [--kills 200] [--seed 0] [--verbs train,prune,reproduce,report]

Seeds draw different moments, so that many kills can be made in several calls.
"""

from __future__ import annotations

import argparse
import builtins
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ranp.cli import main as command
from ranp.files import atomic, journal
from ranp.page.build import write as write_page
from ranp.paper import training
from ranp.paper.experiments.experiment import Experiment, Line, Wanted
from ranp.paper.experiments.reproducing import reproduce_one
from ranp.paper.training import engine
from ranp.reporting.folder import RunFolder
from ranp.reporting.table import Column
from tests.support import run_folders
from tests.support import small_cells as small
from tests.support.toy import NOISY

Tree = dict[str, bytes]


class Countdown:
    """Counts the steps of writing files, and ends the process at one of them."""

    def __init__(self, last: int | None, log: Path | None = None) -> None:
        self.left, self.log, self.count = last, log, 0

    def __call__(self, what: str) -> None:
        self.count += 1
        if self.log is not None:
            with builtins.open(self.log, "a") as file:
                file.write(f"{what}\n")
        if self.left is not None and self.count == self.left:
            os.kill(os.getpid(), signal.SIGKILL)


class HalfWritten:
    """A file that is written in two halves."""

    def __init__(self, file: Any, step: Countdown) -> None:
        self.file, self.step = file, step

    def __enter__(self) -> HalfWritten:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> None:
        self.step("before writing")
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.step("half written")
        self.file.write(data[len(data) // 2 :])


def watch(step: Countdown) -> None:
    """Counts in this process from here on."""

    def around(act: Callable[..., Any], before: str, after: str = "") -> Callable[..., Any]:
        def watched(*given: Any, **options: Any) -> Any:
            step(before)
            done = act(*given, **options)
            if after:
                step(after)
            return done

        return watched

    def opened(path: Any, mode: str = "r", **options: Any) -> Any:
        file = builtins.open(path, mode, **options)  # noqa: SIM115 -- whoever asked for it closes it
        return file if "r" in mode else HalfWritten(file, step)

    for module in (atomic, journal):
        module.open = opened  # type: ignore[attr-defined]
    for name in ("replace", "rename"):
        setattr(os, name, around(getattr(os, name), "before taking a name", "after taking a name"))
    os.fsync = around(os.fsync, "before flushing")
    os.unlink = around(os.unlink, "before removing")
    os.rmdir = around(os.rmdir, "before removing")


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that writes.

    Attributes:
        name: What it is called.
        run: Does it in a folder; called again, it goes on or does it again.
        prepare: Puts into the folder what must be there.
    """

    name: str
    run: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None


def train(folder: Path) -> None:
    training.train(NOISY, folder / "run", pruning=training.Pruning("random", 0.3), resume=True)


def prune(folder: Path, seed: int = 2) -> None:
    how = f"--method random --sparsity 0.3 --input 1x1x6x6x6 --seed {seed} --no-tune --force --out {folder / 'run'}"
    if command(["prune", "tests.support.networks_to_name:small", *how.split()]):
        raise RuntimeError("ranp prune failed")


def prune_before(folder: Path) -> None:
    """A run to be replaced, and what its owner keeps beside it."""
    prune(folder, 1)
    (folder / "run" / "notes.txt").write_text("mine")


CELLS = tuple(small.cell(method, settings=(*small.SETTINGS, ("tensorboard", False))) for method in ("full", "ranp-f"))


def reproduce(folder: Path) -> None:
    experiment = Experiment(
        name="small",
        title="A small table",
        label="none",
        lines=lambda wanted: [Line((cell,), cell.method) for cell in CELLS],
        columns=lambda wanted, lines: (
            Column("method", left=True, text=lambda line: line.name),
            Column("mIoU", text=lambda line: f"{line.found[0].figures['miou']:.9f}"),
        ),
        record=lambda line: {"method": line.name},
    )
    reproduce_one(experiment, Wanted(seeds=1), folder / "out")


def report(folder: Path) -> None:
    write_page([folder / "run"], folder / "report.html")


VERBS = (
    Verb("train", train),
    Verb("prune", prune, prune_before),
    Verb("reproduce", reproduce),
    Verb("report", report, lambda folder: run_folders.write_pruned(folder / "run")),
)


def child(work: Callable[[], object], step: Countdown | None = None) -> int:
    """Does work in a process of its own and returns its number."""
    number = os.fork()
    if number:
        return number
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        engine.time = type("Stopped", (), {"perf_counter": staticmethod(lambda: 0.0)})  # type: ignore[assignment]
        if step is not None:
            watch(step)
        work()
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
    os._exit(0)


def done(number: int) -> int:
    """Waits for a child; the status it ended with, negative of a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def tree(folder: Path) -> Tree:
    """Every file below a folder; empty ones, which only mark a claim, are left out."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith(".lock")}


def differences(found: Tree, expected: Tree) -> list[str]:
    """The names of files that are not as expected."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


class Disturbed:
    """A verb, what it makes undisturbed, and how often it can be killed on the way.

    Args:
        verb: The verb.
        home: A folder of its own.
    """

    def __init__(self, verb: Verb, home: Path) -> None:
        self.verb, self.home = verb, home
        (home / "before").mkdir(parents=True)
        assert done(child(lambda: verb.prepare(home / "before"))) == 0
        self.before = tree(home / "before")
        log = home / "steps"
        shutil.copytree(home / "before", home / "whole")
        started = time.monotonic()
        assert done(child(lambda: verb.run(home / "whole"), Countdown(None, log))) == 0
        self.seconds = time.monotonic() - started
        self.steps = log.read_text().splitlines()
        self.after = tree(home / "whole")

    def killed(self, number: int, draw: random.Random) -> dict[str, Any]:
        """Kills the verb once or twice, lets it end, and says what is wrong."""
        folder, kills, wrong = self.home / str(number), list[str](), list[str]()
        shutil.copytree(self.home / "before", folder)
        for _ in range(draw.choice((1, 2))):
            at = draw.randrange(1, len(self.steps) + 1) if draw.random() < 0.5 else None
            running = child(lambda: self.verb.run(folder), Countdown(at))
            if at is None:
                time.sleep(draw.uniform(0, 0.8 * self.seconds))  # the first start, which was timed, was the slowest
                os.kill(running, signal.SIGKILL)
            status = done(running)
            if status == -signal.SIGKILL:
                kills.append(self.steps[at - 1] if at else "any time")
                if self.verb.name == "prune" and draw.random() < 0.5:
                    wrong += self.mixture(folder)
            elif status:
                wrong.append(f"ended with status {status} when started again")
        if done(child(lambda: self.verb.run(folder))):
            wrong.append("failed when started again")
        wrong += differences(tree(folder), self.after)
        if not wrong:
            shutil.rmtree(folder)
        return {"verb": self.verb.name, "case": number, "kills": kills, "wrong": wrong}

    def mixture(self, folder: Path) -> list[str]:
        """What is wrong with a run folder that was being replaced, as the next reader finds it."""
        RunFolder(folder / "run").settle()
        found = {name: data for name, data in tree(folder).items() if name.startswith("run/")}
        return [] if found in (self.before, self.after) else ["a mixture of two runs", *differences(found, self.after)]


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Kill what writes, start it again, and compare.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbs", default=",".join(verb.name for verb in VERBS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable()
    home, draw = Path(tempfile.mkdtemp()), random.Random(given.seed)
    chosen = [Disturbed(verb, home / verb.name) for verb in VERBS if verb.name in given.verbs.split(",")]
    cases: list[dict[str, Any]] = []
    while sum(len(case["kills"]) for case in cases) < given.kills and len(cases) < 10 * given.kills:
        cases.append(chosen[len(cases) % len(chosen)].killed(len(cases), draw))
        sys.stdout.write(json.dumps(cases[-1]) + "\n")
        sys.stdout.flush()
    wrong = [case for case in cases if case["wrong"]]
    counts = {one.verb.name: sum(len(c["kills"]) for c in cases if c["verb"] == one.verb.name) for one in chosen}
    summary = {"kills": sum(counts.values()), **counts, "cases": len(cases), "wrong": len(wrong)}
    sys.stdout.write(json.dumps(summary) + "\n")
    if wrong:
        sys.stdout.write(f"what is left lies in {home}\n")
        return 1
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
