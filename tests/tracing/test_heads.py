"""What attention loses: whole heads, places inside heads, or whichever its code allows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ranp
from ranp.tracing.tracer import Tracer
from tests.support.oracles import random_plan
from tests.support.topologies import TOPOLOGIES
from tests.support.topologies.attention import HEAD_SIZE, HEADS, WIDTH

LAYERS = {
    "heads_by_their_size": ("q", "k", "v"),
    "heads_by_their_size_fused": ("q", "k", "v"),
    "heads_by_number_and_size": ("q", "k", "v"),
    "heads_by_number_and_size_fused": ("q", "k", "v"),
    "heads_by_the_width_of_the_stream": ("qkv",),
    "heads_and_scale_by_the_width_of_the_stream": ("qkv",),
}
"""Topologies of attention, and the layers whose channels are cut into heads."""
SCALED = {name for name in LAYERS if "scale" in name}
"""Those whose code works out a scale from the size of a head."""


def kept_by_head(name: str, attention: str, sparsity: float = 0.6) -> list[np.ndarray]:
    """For each layer of heads which places stay, one row for each head."""
    topology = TOPOLOGIES[name]
    torch.manual_seed(0)
    trace = Tracer(topology.build(), topology.inputs(), attention).trace()
    plan = random_plan(trace, np.random.default_rng(0), sparsity, scope="layer")
    found = []
    for block in ("one", "two"):
        for layer in LAYERS[name]:
            flags = np.zeros(plan.channels[f"{block}.att.{layer}"], bool)
            flags[list(plan.kept[f"{block}.att.{layer}"])] = True
            found.append(flags.reshape(-1, HEADS, HEAD_SIZE))
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_whole_heads_go_where_they_are_asked_for(name: str) -> None:
    for flags in kept_by_head(name, "heads"):
        assert (flags == flags[:1, :, :1]).all()
        assert not flags.all()


@pytest.mark.parametrize("name", LAYERS)
def test_places_go_from_every_head_where_they_are_asked_for(name: str) -> None:
    for flags in kept_by_head(name, "dims"):
        assert (flags == flags[:, :1]).all()
        assert flags.all() == (name in SCALED)


@pytest.mark.parametrize("name", LAYERS)
def test_by_default_places_go_if_the_scale_allows_it_and_else_heads(name: str) -> None:
    for flags in kept_by_head(name, "both"):
        assert (flags == (flags[:1, :, :1] if name in SCALED else flags[:, :1])).all()
        assert not flags.all()


@pytest.mark.parametrize("attention", ["heads", "dims"])
def test_a_plan_remembers_it_so_that_it_can_be_verified(attention: str) -> None:
    topology = TOPOLOGIES["heads_by_the_width_of_the_stream"]
    torch.manual_seed(0)
    model, inputs = topology.build(), topology.inputs()
    batches = [(inputs, torch.randn(2, 7, 2))]
    pruned = ranp.prune(model, batches, F.mse_loss, sparsity=0.4, exact=True, attention=attention)
    assert pruned.plan.settings["attention"] == attention
    assert ranp.verify(model, pruned.plan, inputs).ok
    assert ranp.slim(model, pruned.plan, example=inputs)(inputs).shape == (2, 7, 2)
    unit = HEAD_SIZE if attention == "heads" else HEADS
    assert pruned.plan.widths["stem"] % unit == 0
    assert pruned.plan.widths["stem"] < WIDTH
