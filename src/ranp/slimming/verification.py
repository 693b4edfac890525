"""The guard at the end: a slim network must be the full one with its removed channels silenced, or it is refused.

Two checks that catch different mistakes. The *certificate* runs the slim network with the full network's labels and
compares every operator: the same operators must read the same channels in the same order, and every tensor must be cut
exactly as the classes say. The *numeric* check runs both networks in float64 on the same input, with norm parameters
and statistics drawn at random so that a misplaced one shows, and compares their outputs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from ranp import arguments
from ranp.choosing.plan import Plan
from ranp.errors import PlanMismatchError, UnsupportedError, asked
from ranp.running.calling import checked_network, named_tensors, unwrap
from ranp.running.copies import copy_model
from ranp.slimming.initialisation import Initialiser
from ranp.slimming.numeric import Finding, compare_numbers
from ranp.slimming.slim import apply_plan
from ranp.tracing import Trace
from ranp.tracing.choice import Choice
from ranp.tracing.cuts import Mask, keeps_of, widened
from ranp.tracing.cutting import cut_copy, cut_tensor, grouped_weights, left_of, sizes_along, sizes_of
from ranp.tracing.heads import BOTH
from ranp.tracing.labels import Classes
from ranp.tracing.probing import Failure, compare, compare_loosely
from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

CHECK_FLOPS = 8e9
"""The numeric check inside ``prune`` runs at a size that costs no more; ``verify`` has no such limit."""
SPARING = 0.01
"""Where memory is short, it costs no more than this share of the network's FLOPs either."""
ROUNDS = 5
"""How often a failed check may teach the next choice before layers are kept whole."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What the checks found.

    Attributes:
        ok: True if structure and numbers agree, False if something differs, None if the numbers could not be compared.
        max_error: Largest difference between slim and masked outputs, relative to the largest output; NaN if there is
            none.
        certificate: True if the slim network runs the same operators on the kept channels, in order; None if it runs,
            but so differently, because a layer keeps a single channel, that the operators do not pair up.
        numeric: True if outputs agree, None if they could not be compared.
        where: What failed first, why numbers could not be compared, or how they were. Empty if all is as usual.
    """

    ok: bool | None
    max_error: float
    certificate: bool | None
    numeric: bool | None
    where: str = ""
    failure: Failure | None = field(default=None, repr=False, compare=False)
    """The operator at which the networks part, for whoever wants to learn from it."""


def slim(model: nn.Module, plan: Plan, *, example: Any = None, init: Initialiser = "copy", seed: int = 0) -> nn.Module:
    """Removes what a plan removes, on a copy: tensors shrink, and the attributes that mirror their sizes with them.

    The plan applies to the same architecture with other spatial sizes, input channels or classes, since it only holds
    the dimensions it cuts.

    Args:
        model: The full network. It is not changed.
        plan: What ``ranp.select`` or ``ranp.prune`` decided, or a plan from a file.
        example: Inputs of one call. With them the slim network's structure is checked against the full one's, as
            ``ranp.verify`` does. Needed only where a cut dimension has another full size here than in the plan
            (flatten -> linear at another input size), to find the cut anew.
        init: ``"copy"`` keeps the weights that stay. ``"glorot"``, ``"orthogonal"``, ``"kaiming"`` or a function draw
            new ones: the paper re-initialises, only its widths survive. Names leave frozen parameters as they are.
        seed: For the weights that are drawn.

    Raises:
        PlanMismatchError: The plan was made for another network, or removes channels that others need.
        UnsupportedError: ``init`` is unknown, or another argument is not what it should be.
    """
    result = apply_plan(model, plan, example=example, init=init, seed=seed)
    if example is not None:
        tracer = _tracer(unwrap(model), example, plan)
        certificate = certify(tracer, plan, result)
        if certificate.agrees is False:
            raise PlanMismatchError(
                f"this plan does not fit the network: {certificate.note}. Make it again, or change it with "
                "plan.edited(...)."
            )
    return result


def verify(model: nn.Module, plan: Plan, example: Any, *, slim: nn.Module | None = None) -> Verification:
    """Compares a slim network with the full one whose removed channels are silenced at their consumers, in float64.

    Args:
        model: The full network.
        plan: What was removed.
        example: Inputs of one call; the numeric check runs at this size.
        slim: The slim network, if it is not ``ranp.slim(model, plan)``. It must still hold the copied weights: a
            network that was trained or re-initialised since is another function.
    """
    network = unwrap(model)
    arguments.kind("plan", plan, Plan, "what ranp.select returns, or ranp.Plan.load(path)")
    slim = None if slim is None else checked_network(slim, "slim")
    tracer = _tracer(network, example, plan)
    return check(tracer, plan, slim)


def slim_and_check(
    model: nn.Module,
    tracer: Tracer,
    trace: Trace,
    choose: Callable[[Trace], Plan],
    *,
    sparing: bool = False,
    unchecked: bool = False,
) -> tuple[Plan, nn.Module, Trace, Verification]:
    """Slims and checks; a failed check teaches the next choice, and in the last resort layers stay whole.

    Args:
        model: The full network.
        tracer: Of this network.
        trace: What it traced.
        choose: Makes a plan from what is known of the network by then.
        sparing: Whether memory is short, so that numbers are compared at a small size.
        unchecked: Whether a slim network that cannot be compared in numbers is returned all the same.

    Raises:
        UnsupportedError: No correct slim network was found, or it could not be checked.
    """
    flops = min(CHECK_FLOPS, SPARING * sum(op.flops for op in trace.ops)) if sparing else CHECK_FLOPS
    for round_ in range(ROUNDS + 1):
        plan = choose(trace)
        network = apply_plan(model, plan, example=tracer.example)
        found = check(tracer, plan, network, budget=flops, sparing=sparing)
        if found.ok is None and not unchecked:
            raise UnsupportedError(
                f"the slim network could not be checked: {found.where}. Pass another {asked('example')}, one on which "
                f"the network gives finite outputs that vary, or {asked('unchecked', True)} to take it as it is."
            )
        if found.ok is not False:
            return plan, network, trace, found
        blamed = tracer.layers_to_blame(found.failure)
        if round_ < ROUNDS - 1 or not blamed:
            logger.info("the slim network failed its check, trying again: %s", found.where)
            trace = tracer.relearned(found.failure)
        else:
            logger.warning("trying again with %s kept whole: %s", ", ".join(blamed), found.where)
            trace = tracer.keeping(blamed, "a check failed with fewer of its channels")
    named = f"these layers and those that feed them ({', '.join(blamed)})" if blamed else "layers near it"
    raise UnsupportedError(
        f"no correct slim network was found: {found.where}. Keep {named} whole, with {asked('keep')}."
    )


def _tracer(network: nn.Module, example: Any, plan: Plan) -> Tracer:
    """One that looks at attention as the plan does."""
    tracer = Tracer(network, example, str(plan.settings.get("attention", BOTH)))
    tracer.start()
    return tracer


def check(
    tracer: Tracer,
    plan: Plan,
    slim: nn.Module | None = None,
    *,
    budget: float | None = None,
    sparing: bool = False,
) -> Verification:
    """``verify`` for a network that is traced already.

    Beyond ``budget`` FLOPs numbers are compared at a smaller size if the network takes one; ``sparing`` saves memory.
    """
    certificate = certify(tracer, plan, slim)
    if certificate.agrees is False:
        return Verification(False, math.nan, False, None, certificate.note, certificate.failure)
    network = slim if slim is not None else apply_plan(tracer.model, plan, example=tracer.example)
    strange = _strange_weights(tracer.model, network, plan) if slim is not None else ""
    if strange:
        return Verification(False, math.nan, certificate.agrees, False, strange)
    keep = removed_labels(tracer, tracer.space.resolve(), plan)
    found = compare_numbers(tracer, network, keep, budget, sparing=sparing)
    return Verification(found.agrees, found.error, certificate.agrees, found.agrees, found.note, found.failure)


def removed_labels(tracer: Tracer, classes: Classes, plan: Plan) -> Mask:
    """Of every label whether it stays, from the plan's decisions by layer; pinned labels always stay."""
    return Choice.of_plan(tracer.assembled(classes), plan).over(classes.ids)


def certify(tracer: Tracer, plan: Plan, slim: nn.Module | None) -> Finding:
    """Compares the structure of a slim network with the full one's, operator by operator."""
    found = _certify(tracer, plan, slim)
    if found.agrees is False and not tracer.settled:
        tracer.settle()  # code that assumes sizes may need views read the other way round, or attributes cut too
        found = _certify(tracer, plan, slim)
    return found


def _certify(tracer: Tracer, plan: Plan, slim: nn.Module | None) -> Finding:
    classes = tracer.space.resolve()
    try:
        keep = removed_labels(tracer, classes, plan)
    except PlanMismatchError as error:
        return Finding(False, str(error))
    expected = keeps_of({**tracer.births, **tracer.attributes}, keep)
    sizes, groups = sizes_of(tracer.model, plan.cuts), grouped_weights(tracer.model)
    same_size = all(
        cut.size in sizes_along(sizes.get(name, ()), dim, groups.get(name, 1))
        for name, cuts in plan.cuts.items()
        for dim, cut in cuts.items()
    )
    if same_size and (wrong := _wrong_cut(plan, expected, groups)):
        return Finding(False, wrong)
    network = slim if slim is not None else apply_plan(tracer.model, plan, example=tracer.example)
    full = dict(named_tensors(tracer.model))
    for name, shape in sizes_of(network, []).items():
        by_dim, whole = expected.get(name, {}), full.get(name)
        should = None if whole is None else left_of(whole, by_dim)
        if shape != should:
            return Finding(False, f"{name!r} has shape {shape}, the plan asks for {should}")
    sure: bool | None = True
    twin = widened(keep, classes, tracer.births)
    for train, run in tracer.runs.items():
        if run.failed:
            continue
        mode = f"in {'train' if train else 'eval'} mode"
        copy = copy_model(network, meta=tracer.meta)
        if not np.array_equal(twin, keep):  # a single channel has no order to compare: the same cut with two has
            agrees, failure = compare_loosely(tracer, copy, classes, keep, train)
            if failure is not None:
                return Finding(False, f"{mode}, {failure.detail}", failure)
            sure = sure and agrees
            wide = keeps_of({**tracer.births, **tracer.attributes}, twin)
            copy = cut_copy(tracer.model, wide, meta=tracer.meta)
        failure = compare(tracer, copy, classes, twin, train)
        if failure is not None:
            return Finding(False, f"{mode}, {failure.detail}", failure)
    return Finding(sure)


def _wrong_cut(plan: Plan, expected: dict[str, dict[int, Any]], groups: dict[str, int]) -> str:
    """Names a dimension that the plan cuts otherwise than the channels it holds.

    A plan of an earlier release keeps the same inputs in all groups of a convolution, and names them once.
    """
    for name in {**plan.cuts, **expected}:
        cuts, right = plan.cuts.get(name, {}), expected.get(name, {})
        for dim in {**cuts, **right}:
            cut = cuts.get(dim)
            kept = None if cut is None else tuple(cut.keep)
            if cut is not None and dim == 1 and cut.size * groups.get(name, 1) > max(right.get(dim, (0,))) >= cut.size:
                kept = tuple(at + group * cut.size for group in range(groups[name]) for at in cut.keep)
            if kept != right.get(dim):
                return f"dimension {dim} of {name!r} is not cut as the channels it holds are"
    return ""


def _strange_weights(model: nn.Module, slim: nn.Module, plan: Plan) -> str:
    """Names a tensor of the slim network that is not the kept part of the full one's."""
    full = dict(named_tensors(model))
    for name, tensor in named_tensors(slim):
        if tensor.device.type == "meta" or full[name].device.type == "meta":
            continue
        by_dim = {dim: cut.keep for dim, cut in plan.cuts.get(name, {}).items()}
        kept = cut_tensor(full[name], by_dim).to(tensor.device)
        if tensor.shape != kept.shape or not torch.equal(tensor.detach().to(kept.dtype), kept):
            return f"{name!r} does not hold the kept weights of the full network (trained or drawn anew since?)"
    return ""
