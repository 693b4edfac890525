"""Networks of the topologies and their traces, made once for all tests of a process."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from ranp.tracing.trace import Trace
from ranp.tracing.tracer import Tracer
from tests.support.oracles import snapshot
from tests.support.topologies import TOPOLOGIES


@functools.cache
def built(name: str) -> tuple[nn.Module, Any, dict[str, Any]]:
    """A topology's network, in train mode but for one child, its inputs, and what the network is before all."""
    torch.manual_seed(0)
    model, inputs = TOPOLOGIES[name].build(), TOPOLOGIES[name].inputs()
    next(model.train().children()).eval()
    return model, inputs, snapshot(model)


@functools.cache
def tracer_of(name: str) -> tuple[Tracer, Trace]:
    """What is known of a topology's network, found out once."""
    model, inputs, _ = built(name)
    tracer, state = Tracer(model, inputs), torch.get_rng_state()
    trace = tracer.trace()
    assert torch.equal(state, torch.get_rng_state()), "tracing drew random numbers"
    return tracer, trace
