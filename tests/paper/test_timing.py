"""The clock: in turn, on copies."""

from __future__ import annotations

import torch

from ranp.paper import models, tasks
from ranp.paper.timing import median_ratio, step_seconds


def test_timing_takes_turns_and_teaches_nothing() -> None:
    task = tasks.get("shapenet")
    volume, target = task.train_data(size=8, count=4, seed=0)[0]
    networks = {name: models.build("unet3d-shapenet", widths=(4, 8), seed=i).eval() for i, name in enumerate("abc")}
    before = {name: [t.clone() for t in net.state_dict().values()] for name, net in networks.items()}
    seconds = step_seconds(networks, task, (torch.stack([volume, volume]), torch.stack([target, target])), rounds=3)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3, "c": 3}
    assert all(value > 0 for values in seconds.values() for value in values)
    for name, net in networks.items():
        assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), before[name], strict=True))
        assert not net.training


def test_ratios_are_taken_within_a_round() -> None:
    assert median_ratio((2.0, 30.0, 8.0), (1.0, 10.0, 2.0)) == 3.0
