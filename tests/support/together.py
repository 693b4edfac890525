"""What each of several processes does in the tests of distribution; started with torchrun.

torchrun --nproc-per-node 2 tests/support/together.py FOLDER WORK
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

import ranp
from ranp.errors import RanpError
from ranp.paper import training
from ranp.paper.recipe import Recipe
from ranp.paper.scoring import ScoringBatches, example_of
from ranp.paper.training.engine import Engine
from ranp.paper.training.network import make_full
from ranp.paper.training.team import Team
from tests.support.processes import KILL
from tests.support.toy import NOISY, VOLUMES, without_batch_statistics

CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "plain": (True, {}),
    "accumulated": (True, {"accumulate": 2}),
    "adam": (True, {"optimiser": "adam", "learning_rate": 0.01, "valid_batch": 2}),
    "synced": (False, {"batch_norm": "sync"}),
}
"""By name: whether the network is one without batch statistics, and what differs from the recipe."""


def network(recipe: Recipe, *, plain: bool) -> nn.Module:
    model = make_full(VOLUMES, recipe)
    return without_batch_statistics(model) if plain else model


def curve(name: str, folder: Path, team: Team) -> tuple[list[dict[str, Any]], nn.Module]:
    """Trains by one of ``CASES``."""
    plain, changes = CASES[name]
    recipe = replace(VOLUMES.recipe, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    engine = Engine(VOLUMES, recipe, network(recipe, plain=plain), folder, name, team)
    return engine.train(resume=False), engine.model


def scored(team: Team) -> ranp.Scores:
    recipe = VOLUMES.recipe
    model = make_full(VOLUMES, recipe)
    batches = ScoringBatches(VOLUMES, recipe.size, 5, 0, team.rank, team.size)
    trace = ranp.trace(model, example_of(VOLUMES, recipe.size))
    return ranp.score(model, batches, VOLUMES.loss, trace=trace)


def learn(home: Path, team: Team) -> None:
    """Curves, weights, scores and plans, each told by each rank."""
    told: dict[str, Any] = {}
    for name in CASES:
        told[name], model = curve(name, home / name, team)
        save_file(model.state_dict(), home / f"{name}-{team.rank}.safetensors")
    told["usual"] = training.train(VOLUMES, home / "usual", team=team).figures
    scored(team).save(home / f"scores-{team.rank}.safetensors")
    run = training.train(VOLUMES, home / "pruned", pruning=training.Pruning("ranp-f", 0.2, batches=5), team=team)
    run.plan.save(home / f"plan-{team.rank}.json")
    (home / f"told-{team.rank}.json").write_text(json.dumps(told))


def lose_a_rank(home: Path, team: Team) -> None:
    """Rank 1 is killed in the middle, unless ``torchrun`` has started it again."""
    doomed = team.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and not (home / "spare").exists()
    steps = 0

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        steps += 1
        if doomed and steps == 6:
            os.kill(os.getpid(), KILL)
        return NOISY.loss(output, target)

    training.train(replace(NOISY, loss=loss), home / "run", team=team)


def disagree(home: Path, team: Team) -> None:
    """The ranks are given different recipes."""
    try:
        training.train(VOLUMES, home / "run", settings=[f"learning_rate=0.{team.rank + 1}"], team=team)
    except RanpError as error:
        (home / f"refused-{team.rank}").write_text(str(error))


def fill_the_folder(home: Path, team: Team) -> None:
    """Something else is in the folder: every rank must be told."""
    try:
        training.train(VOLUMES, home, team=team)
    except RanpError as error:
        (home.parent / f"refused-{team.rank}").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        with training.joined() as mine:
            {"learn": learn, "lose": lose_a_rank, "disagree": disagree, "fill": fill_the_folder}[sys.argv[2]](
                Path(sys.argv[1]), mine
            )
    except RanpError as problem:
        sys.stderr.write(f"rank says: {problem}\n")
        sys.exit(1)
