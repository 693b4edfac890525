"""Every procedural task can be learnt: the small recipe leaves the best constant answer far behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ranp.paper import tasks, training
from ranp.paper.guessing import trivial

BETTER = {"shapenet": 2.0, "brats": 3.0, "ucf101": 5.0, "sceneflow": 0.75}
"""The least factor on the figure of the best constant answer; the most, of an error."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BETTER)
def test_a_small_network_learns_every_task(name: str, tmp_path: Path) -> None:
    task = tasks.get(name)
    recipe = replace(task.cpu, tensorboard=False)
    run = training.train(task, tmp_path, recipe=recipe, resume=True)
    guess, main = trivial(task, recipe, task.metrics.main), task.metrics.main
    if task.metrics.higher_is_better:
        assert run.figures[main] > BETTER[name] * guess
    else:
        assert run.figures[main] < BETTER[name] * guess
