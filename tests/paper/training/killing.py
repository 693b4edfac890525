"""Kills training runs with SIGKILL, lets them go on, and compares what comes out with a run that nobody disturbed.

A program of its own: it imports torch once, and then forks a child for every run, so that a run costs a second.
Half of the moments are drawn from the time a run takes; the other half are steps of writing a file, checkpoints
above all: before a byte is written, after half of them, before they are flushed, before and after the file takes
its name.

    python tests/paper/training/killing.py FOLDER HOW_MANY SEED
"""

from __future__ import annotations

import builtins
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from safetensors.torch import load_file
from toy import NOISY

from ranp import files
from ranp.paper import training


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

    def write(self, data: bytes) -> None:
        self.step("before writing")
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.step("half written")
        self.file.write(data[len(data) // 2 :])


def watch(step: Countdown) -> None:
    """Counts in this process from here on."""
    replace, fsync = os.replace, os.fsync

    def named(source: Any, target: Any) -> None:
        step("before taking the name")
        replace(source, target)
        step("after taking the name")

    def flushed(descriptor: int) -> None:
        step("before flushing")
        fsync(descriptor)

    files.open = lambda path, mode: HalfWritten(builtins.open(path, mode), step)  # type: ignore[attr-defined]  # noqa: SIM115
    os.replace, os.fsync = named, flushed  # type: ignore[assignment]


def child(work: Callable[[], None]) -> int:
    """Does work in a process of its own and returns its number."""
    number = os.fork()
    if number:
        return number
    try:
        work()
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
    os._exit(0)


def run(folder: Path, resume: bool, step: Countdown | None = None) -> None:
    if step is not None:
        watch(step)
    training.train(NOISY, folder, pruning=training.Pruning("random", 0.3), resume=resume)


def outcome(folder: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    told = training.records(folder)
    return load_file(folder / "model.safetensors"), [{k: v for k, v in one.items() if k != "seconds"} for one in told]


def same(one: Path, other: Path) -> bool:
    (tensors, told), (others, others_told) = outcome(one), outcome(other)
    alike = tensors.keys() == others.keys() and all(torch.equal(tensors[name], others[name]) for name in tensors)
    return alike and told == others_told


def main(home: Path, count: int, seed: int) -> None:
    torch.set_num_threads(1)
    draw = random.Random(seed)
    started = time.monotonic()
    assert os.waitpid(child(lambda: run(home / "unbroken", False)), 0)[1] == 0
    seconds = time.monotonic() - started
    log = home / "steps"
    assert os.waitpid(child(lambda: run(home / "counted", False, Countdown(None, log))), 0)[1] == 0
    assert same(home / "counted", home / "unbroken")
    steps = log.read_text().splitlines()
    results = []
    for number in range(count):
        folder, kills, starts = home / str(number), [], 0
        while True:
            resume, at, last = starts > 0, None, starts == 2  # killed twice, then left alone
            if not last and number % 2:
                at = draw.randrange(1, len(steps) + 1)
            running = child(lambda f=folder, r=resume, a=at: run(f, r, Countdown(a) if a else None))  # type: ignore[misc]
            if not last and not number % 2:
                time.sleep(draw.uniform(0, seconds))
                os.kill(running, signal.SIGKILL)
            status = os.waitpid(running, 0)[1]
            starts += 1
            if os.WIFSIGNALED(status):
                kills.append(steps[at - 1] if at else "any time")
            elif os.WEXITSTATUS(status):
                results.append({"run": number, "kills": kills, "same": False})
                break
            else:
                results.append({"run": number, "kills": kills, "same": same(folder, home / "unbroken")})
                break
    sys.stdout.write(json.dumps({"seconds": seconds, "steps": len(steps), "runs": results}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
