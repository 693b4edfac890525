"""Step 6 of 6: a model and a plan become a slim, dense, ordinary nn.Module."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ranp import arguments
from ranp.choosing.plan import Plan
from ranp.errors import PlanMismatchError
from ranp.running.calling import unwrap
from ranp.slimming.initialisation import COPY, Initialiser, check_initialiser, initialise
from ranp.tracing import PINNED, Trace, trace
from ranp.tracing.cutting import Keeps, cut_copy, sizes_of


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
        keeps = keeps_for(trace(network, example), plan)
    result = cut_copy(network, keeps, meta=False)
    if init != COPY:
        initialise(result, init, seed)
    result.train(network.training)
    return result


def _wrong_sizes(model: nn.Module, plan: Plan) -> list[str]:
    sizes = sizes_of(model, plan.cuts)
    wrong = []
    for name, cuts in plan.cuts.items():
        shape = sizes.get(name)
        if shape is None:
            raise PlanMismatchError(
                f"the plan cuts {name!r}, which this network does not have. Use the network the plan was made for."
            )
        for dim, cut in cuts.items():
            size = shape[dim] if dim < len(shape) else None
            if size != cut.size:
                wrong.append(f"dimension {dim} of {name!r} has size {size}, the plan was made for {cut.size}")
    return wrong


def removed_classes(found: Trace, plan: Plan) -> set[int]:
    """Classes that the plan's decisions by layer remove, for a network whose inputs, outputs or sizes may differ."""
    removed: set[int] = set()
    spared: set[int] = {PINNED}
    for layer in found.layers:
        kept = plan.kept.get(layer.name)
        if kept is None:
            raise PlanMismatchError(f"layer {layer.name!r} is not in the plan. Use the network the plan was made for.")
        if len(kept) == plan.channels[layer.name]:  # whole, whatever its size is here
            spared.update(layer.classes.tolist())
            continue
        if plan.channels[layer.name] != layer.channels:
            raise PlanMismatchError(
                f"layer {layer.name!r} has {layer.channels} channels, the plan was made for "
                f"{plan.channels[layer.name]}. Use the network the plan was made for."
            )
        gone = np.ones(layer.channels, bool)
        gone[list(kept)] = False
        removed.update(layer.classes[gone].tolist())
        spared.update(layer.classes[~gone].tolist())
    if removed & spared:
        raise PlanMismatchError(
            "the plan removes channels that this network needs elsewhere. Use the network the plan was made for."
        )
    return removed


def keeps_for(found: Trace, plan: Plan) -> dict[str, dict[int, tuple[int, ...]]]:
    """Cuts for a network at another size, from the plan's decisions by layer and the network's own trace."""
    gone = np.array(sorted(removed_classes(found, plan)), np.int64)
    keeps: dict[str, dict[int, tuple[int, ...]]] = {}
    for (name, dim), classes in found.dims.items():
        stays = ~np.isin(classes, gone)
        if not stays.all():
            keeps.setdefault(name, {})[dim] = tuple(np.flatnonzero(stays).tolist())
    return keeps
