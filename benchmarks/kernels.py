"""Slim steps as fast as ``ranp.tune`` makes them, with all instructions of this CPU and with those of an ordinary one.

Which kernels torch and oneDNN take is settled when a process begins: each table of instructions has one of its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

import ranp
from benchmarks.pairs import table
from benchmarks.resuming import Kept
from benchmarks.slim_speed import METHODS, SHARES, cases, pruned_within, step_ratios
from ranp.costs.step import TrainingStep
from ranp.costs.tuning import PLAINLY

KERNELS = {"AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}, "all of this CPU": {}}
"""What to tell a process, by the instructions that it may use."""
BATCH = 2
COMPILE_SECONDS = 120.0


def measured(*, quick: bool) -> Iterator[list[Any]]:
    """Rows of the table, as this process computes: method, share, channels and times over the full network's step."""
    case, step = cases(quick)[0], TrainingStep(batch=BATCH)
    inputs, target = case.batch()
    for method, share in product(METHODS[: 1 if quick else None], SHARES[: 1 if quick else None]):
        pruned = pruned_within(case, method, f"flops={share}%")
        found = ranp.tune(
            pruned.model, inputs, step, loss=case.loss, target=target, compile_seconds=0 if quick else COMPILE_SECONDS
        )
        times = step_ratios(case, pruned.model, BATCH, [PLAINLY] if found == PLAINLY else [PLAINLY, found])
        channels = sum(pruned.plan.widths.values())
        yield [method, f"flops={share}%", channels, times[PLAINLY.name], times[found.name], found.name]


def run(*, quick: bool) -> None:
    kept, rows = Kept("kernels", quick), []
    for name, variables in KERNELS.items():
        for row in kept.once(name, work=lambda variables=variables: _elsewhere(variables, quick)):
            rows.append((name, *(f"{value:.3f}" if isinstance(value, float) else value for value in row)))
    header = ("instructions", "method", "budget", "channels", "plain", "fastest", "which way")
    notes = (
        f"{cases(quick)[0].name}, batch {BATCH}: time of a training step (Adam) over the full network's plain one with "
        "the same instructions; medians of interleaved rounds.",
        "Fastest: the way that `ranp.tune` chooses, `torch.compile` included.",
    )
    print(table("Slim steps by the instructions of the CPU", header, rows, notes))


def _elsewhere(variables: dict[str, str], quick: bool) -> list[list[Any]]:
    """The rows that a process of its own measures.

    It keeps what it compiles to itself: torch 2.13 finds compiled code again whatever instructions it was made for, and
    code made for others writes beyond its memory.
    """
    command = [sys.executable, "-m", "benchmarks.kernels", *(["--quick"] if quick else [])]
    command += ["--threads", str(torch.get_num_threads())]
    with tempfile.TemporaryDirectory() as compiled:
        known = {**os.environ, **variables, "TORCHINDUCTOR_CACHE_DIR": compiled}
        found = subprocess.run(command, env=known, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("[")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.getLogger("ranp").setLevel(logging.ERROR)
    for row in measured(quick=arguments.quick):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
