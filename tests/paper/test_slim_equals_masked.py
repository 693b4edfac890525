"""Every network of the paper, cut from lightly to as far as it goes: the slim one is the masked one, and it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.paper.models import I3D, MobileNetV2, PSMNet, UNet3d
from ranp.slimming.verification import check as verify_traced
from ranp.tracing.tracer import Tracer
from tests.support.oracles import forward_backward, random_scores

STEPS = (0.1, 0.3, 0.5, 0.7, 0.9)
Case = tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]

# The same structure with narrow layers and small inputs; pooling windows that span an input shrink with it.
NARROW: dict[str, Case] = {
    "unet3d-15": (lambda: UNet3d(1, 5, widths=(8, 16, 16, 32)), ((1, 1, 16, 16, 16),)),
    "unet3d-23": (lambda: UNet3d(4, 5, widths=(8, 8, 16, 16, 32, 32)), ((1, 4, 32, 32, 32),)),
    "mobilenetv2": (lambda: MobileNetV2(7, width=0.25), ((1, 3, 8, 32, 32),)),
    "i3d": (lambda: I3D(7, width=0.125, window=(1, 1, 1)), ((1, 3, 8, 32, 32),)),
    "psm": (lambda: PSMNet(16, width=0.25, windows=(8, 4, 2, 1)), ((1, 3, 32, 64), (1, 3, 32, 64))),
}
FULL: dict[str, Case] = {
    "unet3d-15": (lambda: UNet3d(1, 50), ((1, 1, 16, 16, 16),)),
    "unet3d-23": (lambda: UNet3d(1, 50, widths=(64, 128, 256, 512, 1024, 1024)), ((1, 1, 32, 32, 32),)),
    "mobilenetv2": (lambda: MobileNetV2(101), ((1, 3, 16, 32, 32),)),
    "i3d": (lambda: I3D(101, window=(1, 1, 1)), ((1, 3, 8, 32, 32),)),
    "psm": (lambda: PSMNet(16, windows=(8, 4, 2, 1)), ((1, 3, 32, 64), (1, 3, 32, 64))),
}


def check(case: Case, steps: tuple[float, ...]) -> None:
    build, shapes = case
    torch.manual_seed(0)
    model = build()
    inputs: Any = tuple(torch.randn(shape) for shape in shapes)
    tracer = Tracer(model, inputs)
    trace = tracer.trace()
    scores = random_scores(trace, np.random.default_rng(0))
    most = ranp.max_sparsity(scores, trace)
    widths = None
    for sparsity in [step for step in steps if step < most] + [most]:
        plan = ranp.select(scores, trace, sparsity=sparsity)
        found = verify_traced(tracer, plan)
        assert found.ok, found
        assert found.max_error < 1e-9
        slim = ranp.slim(model, plan)
        forward_backward(slim, tuple(torch.cat([x, torch.randn_like(x)]) for x in inputs))
        assert widths is None or all(plan.widths[name] <= width for name, width in widths.items())
        widths = plan.widths


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "unet3d-15" else pytest.mark.slow) for name in NARROW]
)
def test_narrow(name: str) -> None:
    check(NARROW[name], STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_full_width(name: str) -> None:
    check(FULL[name], (0.1, 0.5))
