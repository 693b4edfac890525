"""Training as the paper does it, on one machine or many, and nothing lost when a run is killed.

Example::

    from ranp.paper import tasks, training

    task = tasks.get("shapenet")
    run = training.train(task, "runs/slim", recipe=task.cpu, pruning=training.Pruning("ranp-f", 0.8))
    run.figures["miou"]
"""

from __future__ import annotations

from ranp.paper.training.evaluation import evaluate
from ranp.paper.training.interruption import StoppedError
from ranp.paper.training.runs import Pruning, Run, records, train
from ranp.paper.training.team import Team, joined

__all__ = ["Pruning", "Run", "StoppedError", "Team", "evaluate", "joined", "records", "train"]
