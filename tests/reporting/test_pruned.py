"""What pruning returns tells of its training step when asked, once."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import ranp
from ranp.paper.models import UNet3d


def pruned(**options: Any) -> ranp.Pruned:
    generator = torch.Generator().manual_seed(0)
    volumes = torch.randn(2, 1, 8, 8, 8, generator=generator)
    labels = torch.randint(3, (2, 8, 8, 8), generator=generator)
    return ranp.prune(UNet3d(1, 3, widths=(8, 16, 32)), [(volumes, labels)], nn.functional.cross_entropy, **options)


def test_what_a_step_needs_is_said_on_request_and_not_twice() -> None:
    result = pruned(sparsity=0.3, step=ranp.TrainingStep(batch=3, optimiser="sgd"))
    assert not result.report.spent()
    more = result.with_step(timed=True)
    memory, time = more.report.spent()
    assert (memory.before, memory.after) == tuple(found.peak for found in result.training_memory())
    assert memory.quantity.name == "train-memory"
    assert time.quantity.name == "step-time"
    assert time.before > 0
    assert time.after > 0
    assert "one training step: 2x1x8x8x8, batch 3, sgd, float32" in str(more.report)
    assert more.plan is result.plan
    within = pruned(budget="train-memory=90%")
    assert within.with_step() is within
