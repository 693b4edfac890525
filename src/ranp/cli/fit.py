"""``ranp fit``: what fits a memory, and what makes it fit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from ranp.cli.console import progress_bars, say, show_json, show_table
from ranp.cli.options import PRUNING, SOURCE, STEP, Json, Model, as_words, flag, options_of, step_of, takes

if TYPE_CHECKING:
    from ranp.cli.preparation import Setup

_RANKING = ("method", "strength", "criterion", "resource", "tie", "keep", "max_batches", "seed")


@takes(pruning={name: PRUNING[name] for name in _RANKING}, source=SOURCE, training=STEP)
def fit(
    model: Model,
    pruning: dict[str, Any],
    source: dict[str, Any],
    training: dict[str, Any],
    memory: Annotated[str, flag("Available memory: 8GiB, 500MB, ...", metavar="8GiB")],
    size: Annotated[
        str | None, flag("Spatial size of the inputs, or one edge.", "One training step", metavar="128x128x128")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print which batch and size fit into a memory, and which sparsity makes a desired batch and size fit.

    Nothing of that size is allocated. Without --task or --batches the ranking is that of magnitudes, which need no
    data; the sparsity is an estimate then.
    """
    from ranp.choosing.budgets import QUANTITIES
    from ranp.cli.preparation import make, prepare
    from ranp.errors import InfeasibleError
    from ranp.progress import under
    from ranp.reporting.fit import room, space_of, with_space
    from ranp.running.calling import tensors_in

    shown, asked = QUANTITIES.get("train-memory").format, step_of(training, source)
    allowed, step = bytes_of(memory), replace(asked, batch=None)
    assumed = source["task"] is None and source["batches"] is None and pruning["criterion"] is None
    if assumed:
        pruning = {**pruning, "criterion": "magnitude"}
    setup = prepare(model, options_of({**pruning, "budget": [f"train-memory={memory}"]}), source)
    given, setup = _given(setup)
    space = space_of(given) if size is None else _space(size, len(space_of(given)))
    wanted = asked.batch or int(next(iter(tensors_in(given))).shape[0])
    network = make(setup.network, "cpu")
    at = with_space(given, space, wanted)
    rooms, plan, refusal = {}, None, ""
    with progress_bars(f"fitting {model}") as progress:
        for number, kind in enumerate(("plain", "checkpointing")):
            progress("the network as it is", number, 2, kind)
            rooms[kind] = room(network, at, allowed, replace(step, checkpointing=kind == "checkpointing"))
        progress("the network as it is", 2, 2, "")
        now = rooms["checkpointing" if step.checkpointing else "plain"]
        if now.needed > allowed:
            try:
                plan = _made_to_fit(network, setup, at, step, allowed, under(f"scoring {model}", progress))
            except InfeasibleError as error:
                refusal = str(error)
    edges = "x".join(map(str, space))
    where = f"batch {wanted} at {edges}"
    if as_json:
        show_json(
            {
                "model": model,
                "memory": int(allowed),
                "batch": wanted,
                "size": list(space),
                "step": {name: value for name, value in asdict(step).items() if name != "batch"},
                "full": {kind: found.to_dict() for kind, found in rooms.items()},
                "fits": now.needed <= allowed,
                "plan": plan,
                "refusal": refusal,
            }
        )
        return
    show_table(
        ("the network as it is", *rooms),
        [
            (f"a step of {where}", *(shown(found.needed) for found in rooms.values())),
            (f"largest batch at {edges}", *(str(found.batch) for found in rooms.values())),
            (f"largest size at batch {wanted}", *(found.largest for found in rooms.values())),
        ],
        title=f"{model}, {step.optimiser}, {step.precision}, {shown(allowed)}",
    )
    words = _typed(model, {**source, **pruning, **training, "memory": memory, "size": size})
    if now.needed <= allowed:
        say(f"{where} fits as it is: {shown(now.needed)}. What twice the largest batch would take:")
        say(f"  ranp fit {words({'batch': 2 * now.batch})}")
    elif plan is not None:
        say(
            f"{where} fits with a sparsity of {plan['sparsity']:.2%} "
            f"({setup.options.how.name}, {setup.options.rule.name}):\n"
            f"  {plan['kept']} of {plan['channels']} channels, {plan['flops']:.1%} of the FLOPs and "
            f"{plan['params']:.1%} of the parameters are left, {shown(plan['train_memory'])} at the peak\n"
            "To make it:"
        )
        more = {"batch": wanted, "budget": f"train-memory={memory}", "out": f"runs/{_plain(model)}"}
        say(f"  ranp prune {words({**more, **_inputs(at), 'memory': None, 'size': None})}")
        if assumed:
            say("With --task, or --batches and --loss, instead of --criterion magnitude, channels are ranked on data.")
    else:
        say(f"{where} does not fit at any sparsity: {refusal}")
        less = {"batch": wanted // 2} if step.checkpointing and wanted > 1 else {"checkpointing": True}
        say(f"To ask for less:\n  ranp fit {words(less)}")


def _typed(model: str, given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """A command for this network with the flags that were given, some of them changed."""
    return lambda changes: shlex.join([model, *as_words({**given, **changes})])


def _inputs(at: Any) -> dict[str, Any]:
    """Flags for inputs of these shapes, if shapes say all that there is to say of them."""
    from torch import Tensor

    tensors = [at] if isinstance(at, Tensor) else at
    if not isinstance(tensors, list | tuple) or not all(isinstance(one, Tensor) for one in tensors):
        return {}
    return {"inputs": ["x".join(map(str, one.shape)) for one in tensors], "example": None}


def _plain(model: str) -> str:
    """The name of a network as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", model)


def _given(setup: Setup) -> tuple[Any, Setup]:
    """The example, by default the inputs of the first batch; the setup with that batch put back."""
    from ranp.scoring.passes import first_batch

    if setup.example is not None:
        return setup.example, setup
    first, pairs = first_batch(setup.data.batches, needed=True)
    return first[0], replace(setup, data=replace(setup.data, batches=pairs))


def bytes_of(text: str) -> float:
    """An amount of memory as people write it.

    Raises:
        UnsupportedError: It is none.
    """
    from ranp.choosing.budgets import QUANTITIES
    from ranp.costs.quantities import which_bytes
    from ranp.errors import UnsupportedError

    try:
        share, amount = QUANTITIES.get("train-memory").parse(text)
    except UnsupportedError:
        share, amount = 0.0, 0.0
    if share is not None:
        wanted = which_bytes(text) or "Pass a number with its unit: 8GiB, 500MB."
        raise UnsupportedError(f"--memory {text!r} is not an amount of memory. {wanted}")
    return amount


def _space(text: str, dims: int) -> tuple[int, ...]:
    from ranp.errors import UnsupportedError

    parts = text.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts) or len(parts) not in (1, dims):
        raise UnsupportedError(
            f"--size {text!r} is not allowed. Pass one edge, or {dims} as {'x'.join(['64'] * dims)}."
        )
    return tuple(int(part) for part in parts) if len(parts) > 1 else (int(parts[0]),) * dims


def _made_to_fit(network: Any, setup: Setup, at: Any, step: Any, allowed: float, progress: Any) -> dict[str, float]:
    """What is left of the network's channels and costs by the plan that makes a step fit."""
    from ranp.cli.preparation import scored
    from ranp.costs.prices import Prices
    from ranp.costs.step import StepSetup
    from ranp.reporting.fit import plan_for
    from ranp.tracing.choice import Choice

    scores, found = scored(setup, network, at, progress)
    selection = setup.options.selection(scores, found)
    plan = plan_for(selection, StepSetup(network, at, step), allowed, setup.options.floor)
    prices = Prices.of(found, setup.options.convention)
    full, slim = (prices.at(one) for one in (Choice.everything(found), Choice.of_plan(found, plan)))
    return {
        "sparsity": plan.sparsity.of_channels,
        "kept": plan.sparsity.channels - plan.sparsity.removed,
        "channels": plan.sparsity.channels,
        "flops": slim.flops / full.flops,
        "params": slim.params / full.params,
        "train_memory": float(plan.settings["budget"][0]["after"]),
    }
