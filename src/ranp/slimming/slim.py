"""Step 6 of 6: a model and a plan become a slim, dense, ordinary nn.Module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ranp import arguments
from ranp.choosing.plan import Plan
from ranp.errors import PlanMismatchError
from ranp.running.calling import unwrap
from ranp.slimming.initialisation import COPY, Initialiser, check_initialiser, initialise
from ranp.tracing import trace
from ranp.tracing.choice import Choice
from ranp.tracing.cutting import Keeps, check_groups, cut_copy, grouped_weights, sizes_along, sizes_of


@torch.inference_mode(False)  # its tensors could not be trained
def apply_plan(
    model: nn.Module, plan: Plan, *, example: Any = None, init: Initialiser = "copy", seed: int = 0
) -> nn.Module:
    """``ranp.slim`` without a look at whether plan and network belong together, but for sizes."""
    network, seed = unwrap(model), arguments.seed(seed)
    check_initialiser(init, COPY)
    arguments.kind("plan", plan, Plan, "what ranp.select returns, or ranp.Plan.load(path)")
    keeps: Keeps = {name: {dim: cut.keep for dim, cut in cuts.items()} for name, cuts in plan.cuts.items()}
    wrong = _wrong_sizes(network, plan)
    if wrong:
        if example is None:
            raise PlanMismatchError(
                f"{wrong[0]}. If it is the same architecture at another input size, pass example=: inputs of one call."
            )
        keeps = Choice.of_plan(trace(network, example), plan).indices
    result = cut_copy(network, keeps, meta=False)
    if init != COPY:
        initialise(result, init, seed)
    result.train(network.training)
    return result


def _wrong_sizes(model: nn.Module, plan: Plan) -> list[str]:
    sizes, groups = sizes_of(model, plan.cuts), grouped_weights(model)
    wrong = []
    for name, cuts in plan.cuts.items():
        shape = sizes.get(name)
        if shape is None:
            raise PlanMismatchError(
                f"the plan cuts {name!r}, which this network does not have. Use the network the plan was made for."
            )
        for dim, cut in cuts.items():
            if cut.size not in sizes_along(shape, dim, groups.get(name, 1)):
                size = shape[dim] if dim < len(shape) else None
                wrong.append(f"dimension {dim} of {name!r} has size {size}, the plan was made for {cut.size}")
            elif cut.size != shape[dim]:
                check_groups(repr(name), cut.keep, shape[dim], cut.size // shape[dim])
    return wrong
