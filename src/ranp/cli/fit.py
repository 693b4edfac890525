"""``ranp fit``: what fits a memory, and what makes it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ranp.cli.console import progress_bar, say, show_json, show_table
from ranp.cli.options import (
    AllowMissing,
    Batch,
    Batches,
    Checkpointing,
    CriterionName,
    DataFolder,
    Example,
    Inputs,
    Json,
    Keep,
    LossName,
    MaxBatches,
    MethodName,
    Model,
    Optimiser,
    Precision,
    Scale,
    Seed,
    Strength,
    Task,
)

if TYPE_CHECKING:
    from ranp.choosing.plan import Plan
    from ranp.cli.preparation import Setup
    from ranp.reporting.fit import Room

_STEP = "One training step"


def fit(
    model: Model,
    memory: Annotated[str, typer.Option(metavar="8GiB", help="What there is: 8GiB, 500MB, ...")],
    batch: Batch = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="128x128x128", help="Wanted space of the inputs, or one edge.", rich_help_panel=_STEP),
    ] = None,
    optimizer: Optimiser = "adam",
    precision: Precision = "float32",
    checkpointing: Checkpointing = False,
    method: MethodName = "ranp-f",
    strength: Strength = None,
    criterion: CriterionName = None,
    keep: Keep = None,
    task: Task = None,
    data: DataFolder = None,
    allow_missing: AllowMissing = False,
    scale: Scale = None,
    batches: Batches = None,
    loss: LossName = None,
    max_batches: MaxBatches = None,
    inputs: Inputs = None,
    example: Example = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say which batch and size fit a memory, and which sparsity makes a wanted batch and size fit.

    Nothing of that size is allocated. Without --task or --batches the ranking is that of magnitudes, which need no
    data; the sparsity is an estimate then.
    """
    from ranp.choosing.budgets import QUANTITIES
    from ranp.cli.preparation import prepare
    from ranp.cli.sources import Choice, make
    from ranp.costs.step import TrainingStep
    from ranp.errors import InfeasibleError
    from ranp.reporting.fit import room, space_of, with_space
    from ranp.running.calling import tensors_in

    shown, allowed = QUANTITIES.get("train-memory").format, _bytes(memory)
    step = TrainingStep(None, optimizer, precision, checkpointing)
    own = criterion or ("magnitude" if task is None and batches is None else None)
    setup = prepare(
        model,
        method=method,
        criterion=own,
        tie="max",
        mode="train",
        strength=strength,
        choice=Choice(task, data, allow_missing, scale, batches, loss, None, max_batches, seed),
        inputs=inputs or (),
        example=example,
    )
    given, setup = _given(setup)
    space = space_of(given) if size is None else _space(size, len(space_of(given)))
    wanted = batch or int(next(iter(tensors_in(given))).shape[0])
    network = make(setup.network, "cpu")
    at = with_space(given, space, wanted)
    rooms = {
        kind: room(network, at, allowed, TrainingStep(None, optimizer, precision, kind == "checkpointing"))
        for kind in ("plain", "checkpointing")
    }
    now = rooms["checkpointing" if checkpointing else "plain"]
    plan, refusal = None, ""
    costs: dict[str, float] = {}
    if now.needed > allowed:
        try:
            plan, costs = _made_to_fit(network, setup, at, step, allowed, keep or (), seed, max_batches, model)
        except InfeasibleError as error:
            refusal = str(error)
    where = f"batch {wanted} at {'x'.join(map(str, space))}"
    if as_json:
        show_json(
            {
                "model": model,
                "memory": int(allowed),
                "batch": wanted,
                "size": list(space),
                "step": {"optimiser": optimizer, "precision": precision, "checkpointing": checkpointing},
                "full": {kind: _plain(found) for kind, found in rooms.items()},
                "fits": now.needed <= allowed,
                "plan": None if plan is None else {**_removed(plan), **costs},
                "refusal": refusal,
            }
        )
        return
    show_table(
        ("the network as it is", *rooms),
        [
            (f"a step of {where}", *(shown(found.needed) for found in rooms.values())),
            (f"largest batch at {'x'.join(map(str, space))}", *(str(found.batch) for found in rooms.values())),
            (f"largest size at batch {wanted}", *map(_size, rooms.values())),
        ],
        title=f"{model}, {optimizer}, {precision}, {shown(allowed)}",
    )
    if now.needed <= allowed:
        say(f"{where} fits as it is: {shown(now.needed)}")
    elif plan is not None:
        removed = _removed(plan)
        say(
            f"{where} fits with a sparsity of {removed['sparsity']:.2%} "
            f"({setup.method.name}, {setup.criterion.name}):\n"
            f"  {removed['kept']} of {plan.sparsity.channels} channels, {costs['flops']:.1%} of the FLOPs, "
            f"{costs['params']:.1%} of the parameters, {shown(costs['train_memory'])} at the peak\n"
            f"  ranp prune {model} ... --budget train-memory={memory}"
        )
    else:
        say(f"{where} does not fit at any sparsity: {refusal}")


def _given(setup: Setup) -> tuple[Any, Setup]:
    """The example, by default the inputs of the first batch; the setup with that batch put back."""
    from dataclasses import replace

    from ranp.pruning import first_batch

    if setup.example is not None:
        return setup.example, setup
    first, pairs = first_batch(setup.data.batches, needed=True)
    return first[0], replace(setup, data=replace(setup.data, batches=pairs))


def _bytes(text: str) -> float:
    """An amount of memory as people write it."""
    from ranp.choosing.budgets import Budget
    from ranp.errors import UnsupportedError

    try:
        budget = Budget.parse(f"train-memory={text}")
    except UnsupportedError:
        budget = None
    if budget is None or budget.share is not None:
        raise UnsupportedError(f"--memory {text!r} is no amount of memory. Pass a number with its unit: 8GiB, 500MB.")
    return budget.amount


def _space(text: str, dims: int) -> tuple[int, ...]:
    from ranp.errors import UnsupportedError

    parts = text.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts) or len(parts) not in (1, dims):
        raise UnsupportedError(
            f"--size {text!r} is not allowed. Pass one edge, or {dims} as {'x'.join(['64'] * dims)}."
        )
    return tuple(int(part) for part in parts) if len(parts) > 1 else (int(parts[0]),) * dims


def _made_to_fit(
    network: Any,
    setup: Setup,
    at: Any,
    step: Any,
    allowed: float,
    keep: Any,
    seed: int,
    max_batches: int | None,
    model: str,
) -> tuple[Plan, dict[str, float]]:
    """The plan that makes a step fit, and what is left of the network's costs."""
    from ranp import score, trace
    from ranp.choosing.selection import Selection
    from ranp.costs.prices import Prices
    from ranp.costs.step import StepSetup
    from ranp.reporting.fit import plan_for
    from ranp.tracing.choice import Choice

    found = trace(network, at)
    with progress_bar(f"scoring {model}", quiet=setup.criterion.needs != "gradients") as progress:
        scores = score(
            network,
            setup.data.batches,
            setup.data.loss,
            trace=found,
            criterion=setup.criterion,
            max_batches=max_batches,
            seed=seed,
            progress=progress,
        )
    scores = setup.method.weigh(scores, setup.method.costs(found), setup.strength)
    selection = Selection.of(scores, found, scope=setup.method.scope, keep=keep, seed=seed)
    plan = plan_for(selection, StepSetup(network, at, step), allowed)
    full, slim = (Prices.of(found).at(one) for one in (Choice.everything(found), Choice.of_plan(found, plan)))
    peak = float(plan.settings["budget"][0]["after"])
    return plan, {"flops": slim.flops / full.flops, "params": slim.params / full.params, "train_memory": peak}


def _removed(plan: Plan) -> dict[str, float]:
    return {"sparsity": plan.sparsity.of_channels, "kept": plan.sparsity.channels - plan.sparsity.removed}


def _plain(found: Room) -> dict[str, Any]:
    size = None if found.size is None else list(found.size)
    return {"needed": found.needed, "batch": found.batch, "size": size, "fixed_size": found.fixed}


def _size(found: Room) -> str:
    if found.size is None:
        return "none"
    return "x".join(map(str, found.size)) + (" (the only one)" if found.fixed else "")
