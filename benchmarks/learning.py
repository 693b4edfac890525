"""What slim networks learn: full against RANP-f, random and layer-wise pruning, on every task, over seeds.

Each cell is a run of ``ranp train`` of its own, in a folder of its own; what is finished is not run again, what was
stopped goes on. All networks of one seed see the same samples in the same order, so differences are taken seed by seed.

    python -m benchmarks.learning --out runs/learning --jobs 2
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ranp
from benchmarks.pairs import table
from ranp.choosing.methods import resolve
from ranp.errors import InfeasibleError
from ranp.paper import tasks
from ranp.paper.recipe import Recipe
from ranp.paper.scoring import ScoringBatches, example_of
from ranp.paper.tasks.task import Task
from ranp.paper.training.network import make_full, options_of

METHODS = ("full", "ranp-f", "random", "layerwise")
BATCHES = 10
"""Samples that are scored, as by default in ``ranp train``."""
SHARE = 0.95
"""Of the largest feasible sparsity, where the paper's is more."""
SHORT = {"sceneflow": ("epochs=4", "train_count=192"), "ucf101": ("epochs=3", "milestones=2", "train_count=2424")}
"""Where the ``cpu`` recipe is cut further: so many cells are an hour on two cores as it is."""
FEW = 8
TARGET = Path(__file__).parent.parent / "docs" / "learning.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("tasks", nargs="*", metavar="task", help=f"of {', '.join(tasks.names())}; default: all")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"), help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    parser.add_argument("--set", action="append", default=[], help="change the recipe of every run, as in ranp train")
    parser.add_argument("--data", type=Path, help="folder of a published data set, as in ranp train; for one task")
    parser.add_argument("--figure", help="the figure to compare, default the task's main one")
    parser.add_argument("--write", action="store_true", help=f"write the tables to docs/{TARGET.name} too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [tasks.get(name, arguments.data, allow_missing=True) for name in arguments.tasks or tasks.names()]
    how = How(arguments.out, arguments.seeds, arguments.jobs, tuple(arguments.set), arguments.data, arguments.figure)
    texts = [measure(task, how) for task in chosen]
    print("\n\n".join(texts))
    if arguments.write:
        write(texts)


@dataclass(frozen=True, slots=True)
class How:
    """What the command line said."""

    out: Path
    seeds: int
    jobs: int
    changes: tuple[str, ...]
    data: Path | None
    figure: str | None

    def settings(self, task: Task) -> tuple[str, ...]:
        return (*SHORT.get(task.name, ()), *self.changes)

    def recipe(self, task: Task, seed: int) -> Recipe:
        return replace(task.cpu, seed=seed, tensorboard=False).but(self.settings(task))


def measure(task: Task, how: How) -> str:
    """The table of one task."""
    main = how.figure or task.metrics.main
    recipes = [how.recipe(task, seed) for seed in range(how.seeds)]
    sparsities = [sparsity_of(task, recipe, how.out) for recipe in recipes]
    cells = [(method, seed) for seed in range(how.seeds) for method in METHODS]
    with ThreadPoolExecutor(how.jobs) as pool:
        done = dict(zip(cells, pool.map(partial(train, task, how, sparsities), cells), strict=True))
    guess = [trivial(task, recipe, main) for recipe in recipes]
    full = [done["full", seed]["figures"][main] for seed in range(how.seeds)]
    rows = [row(method, main, [done[method, seed] for seed in range(how.seeds)], full) for method in METHODS]
    rows.append(["trivial", "", "", "", "", f"{statistics.fmean(guess):.4f}", told(guess), ""])
    header = (
        "network",
        "channels removed",
        "parameters",
        "MFLOPs",
        "memory MB",
        main,
        "by seed",
        "against full, by seed",
    )
    recipe, source = recipes[0], task.source.summary or "procedural samples"
    counts = [
        len(data(recipe.size, count, 0))
        for data, count in ((task.train_data, recipe.train_count), (task.valid_data, recipe.valid_count))
    ]
    about = (
        f"{network_told(task, recipe)}; {recipe.epochs} epochs of {counts[0]} samples of size "
        f"{recipe.size}, batch {recipe.batch}; validated on {counts[1]}; {source}. {main}: "
        f"{'higher' if task.metrics.higher_is_better else 'lower'} is better. Sparsity "
        f"{', '.join(f'{s:.4f}' for s in sparsities)} (the paper: {task.sparsity})."
    )
    return table(task.name, header, rows, [about])


def sparsity_of(task: Task, recipe: Recipe, out: Path) -> float:
    """The paper's sparsity of RANP-f, or .95 of the largest feasible one of this network where that is less."""
    kept = out / f"{task.name}-{recipe.seed}.json"
    if kept.is_file():
        return float(json.loads(kept.read_text())["sparsity"])
    full, example = make_full(task, recipe), example_of(task, recipe.size, recipe.seed)
    trace, how = ranp.trace(full, example), resolve("ranp-f")
    batches = ScoringBatches(task, recipe.size, BATCHES, recipe.seed)
    raw = ranp.score(full, batches, task.loss, trace=trace, seed=recipe.seed)
    largest = ranp.max_sparsity(how.weigh(raw, how.costs(trace), task.strength), trace)
    sparsity = min(task.sparsity, int(SHARE * largest * 1e4) / 1e4)
    out.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"sparsity": sparsity, "largest": largest, "paper": task.sparsity}))
    return sparsity


def train(task: Task, how: How, sparsities: list[float], cell: tuple[str, int]) -> dict[str, Any]:
    """One cell: figures of a run that is made, gone on with, or there already."""
    method, seed = cell
    folder = how.out / f"{task.name}-{method}-{seed}"
    kept = folder / "result.json"
    if not kept.is_file():
        command = [sys.executable, "-m", "ranp", "train", task.name, "--scale", "cpu", "--out", str(folder)]
        for setting in (f"seed={seed}", "tensorboard=false", *how.settings(task)):
            command += ["--set", setting]
        if how.data is not None:
            command += ["--data", str(how.data), "--allow-missing"]
        if method != "full":
            command += ["--method", method, "--sparsity", str(sparsities[seed])]
            command += ["--exact"] if method == "random" and not feasible(task, sparsities[seed], how, seed) else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        made = subprocess.run(
            [*command, "--resume", "--json"], capture_output=True, text=True, env=environment, check=False
        )
        if made.returncode:
            raise RuntimeError(f"{' '.join(command)}: {made.stderr[-500:]}")
        kept.write_text(made.stdout)
        print(f"{folder.name}: {json.loads(made.stdout)['figures']}", file=sys.stderr, flush=True)
    result: dict[str, Any] = json.loads(kept.read_text())
    recipe, plan = how.recipe(task, seed), ranp.Plan.load(folder / "plan.json")
    slim = ranp.slim(make_full(task, recipe), plan)
    costs = ranp.profile(slim, example_of(task, recipe.size), convention="paper")
    removed = plan.sparsity.of_channels
    return {**result, "params": costs.params, "flops": costs.flops, "memory": costs.memory_mb, "removed": removed}


def feasible(task: Task, sparsity: float, how: How, seed: int) -> bool:
    """Whether drawing channels blindly leaves every layer one."""
    recipe = how.recipe(task, seed)
    full, example = make_full(task, recipe), example_of(task, recipe.size, seed)
    try:
        ranp.prune(full, [(example, None)], task.loss, sparsity=sparsity, method="random", example=example, seed=seed)
    except InfeasibleError:
        return False
    return True


def trivial(task: Task, recipe: Recipe, main: str) -> float:
    """The figure of the best answer that does not look at its input."""
    training = task.train_data(recipe.size, recipe.train_count, recipe.seed)
    validation = task.valid_data(recipe.size, recipe.valid_count, recipe.seed)
    seen = [training[index][1] for index in range(min(len(training), 256))]  # enough to know what is frequent
    targets = [validation[index][1] for index in range(len(validation))]
    if not task.classes:
        known = torch.cat([target[0][target[0] >= 0] for target in seen])
        return task.evaluate((known.median().expand(1, *target.shape[1:]), target[None]) for target in targets)[main]
    labels = torch.cat([target.flatten() for target in seen])
    answers = [torch.bincount(labels[labels < task.classes], minlength=task.classes).float()]
    if task.classes <= FEW:  # the most frequent label need not have the best figure: background has no Dice
        answers += list(torch.eye(task.classes))

    def same(answer: Tensor, target: Tensor) -> Tensor:
        return answer.reshape(1, -1, *[1] * target.dim()).expand(1, -1, *target.shape)

    return max(task.evaluate((same(answer, target), target[None]) for target in targets)[main] for answer in answers)


def row(method: str, main: str, results: list[dict[str, Any]], full: list[float]) -> list[str]:
    values = [result["figures"][main] for result in results]
    against = [value - reference for value, reference in zip(values, full, strict=True)]
    mean = statistics.fmean
    return [
        method,
        f"{mean(r['removed'] for r in results):.1%}",
        f"{mean(r['params'] for r in results):,.0f}",
        f"{mean(r['flops'] for r in results) / 1e6:.1f}",
        f"{mean(r['memory'] for r in results):.2f}",
        f"{mean(values):.4f}",
        told(values),
        "" if method == "full" else f"{mean(against):+.4f} ({', '.join(f'{value:+.4f}' for value in against)})",
    ]


def told(values: list[float]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)


def network_told(task: Task, recipe: Recipe) -> str:
    options = ", ".join(f"{name}={value}" for name, value in options_of(task, recipe).items())
    return f"`{recipe.network}` with {options}"


def write(texts: list[str]) -> None:
    """Writes the tables; what people wrote below them stays."""
    before = TARGET.read_text(encoding="utf-8") if TARGET.is_file() else ""
    written = before[before.index(READING) :] if READING in before else ""
    tables = "\n\n".join(text.strip() for text in texts)
    TARGET.write_text(f"{HEAD}{tables}\n\n{written}".rstrip() + "\n", encoding="utf-8")


READING = "## How to read it"


HEAD = """# What slim networks learn

Small networks on procedural data, trained for minutes by each task's `cpu` recipe (fewer epochs for SceneFlow and
UCF101): this compares, it does not reproduce the paper's accuracies, which need its data sets and a GPU. Made by

    python -m benchmarks.learning --out runs/learning --jobs 2 --write

All networks of a seed see the same samples in the same order; weights of slim networks are drawn anew, as in the paper.
The sparsity is the paper's of RANP-f, or .95 of the largest feasible one where that is less (small networks); random
and layer-wise pruning get the same. Where drawing blindly would empty a layer, random pruning keeps one channel of it
(`--exact`). FLOPs (multiply-adds) and memory are the paper's convention, for one sample. "trivial" is the best answer
that does not look at its input.

"""


if __name__ == "__main__":
    main()
