"""``ranp search``: how much can be removed before some layer has no channel left."""

from __future__ import annotations

import itertools

import typer

from ranp.cli.console import progress_bar, show_json
from ranp.cli.options import (
    Batches,
    CriterionName,
    DataFolder,
    Device,
    Example,
    Inputs,
    Json,
    Keep,
    LossName,
    MaxBatches,
    MethodName,
    Mode,
    Model,
    Seed,
    Size,
    Strength,
    Task,
    Tie,
)


def search(
    model: Model,
    method: MethodName = "ranp-f",
    strength: Strength = None,
    criterion: CriterionName = None,
    tie: Tie = "max",
    keep: Keep = None,
    mode: Mode = "train",
    task: Task = None,
    data: DataFolder = None,
    batches: Batches = None,
    loss: LossName = None,
    size: Size = None,
    max_batches: MaxBatches = None,
    inputs: Inputs = None,
    example: Example = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Print the largest feasible sparsity of a method, and the layer that limits it.

    The network is scored once; the figure is then a closed form.
    """
    from ranp import balance, measure, reweight, score, trace
    from ranp.cli.preparation import prepare
    from ranp.cli.sources import make
    from ranp.errors import DataError, InfeasibleError
    from ranp.pruning import STRENGTH
    from ranp.selection import Selection

    setup = prepare(
        model,
        method=method,
        criterion=criterion,
        tie=tie,
        mode=mode,
        strength=strength,
        task=task,
        folder=data,
        batches=batches,
        loss=loss,
        size=size,
        max_batches=max_batches,
        seed=seed,
        inputs=inputs or (),
        example=example,
    )
    pairs, given = setup.data.batches, setup.example
    if given is None:
        iterator = iter(pairs)
        first = next(iterator, None)
        if first is None:
            raise DataError("there are no batches to score with. Check that the loader is not empty.")
        given, pairs = first[0], itertools.chain([first], iterator)
    network = make(setup.network, device)
    found = trace(network, given)
    with progress_bar(f"scoring {model}", quiet=setup.criterion.needs != "gradients") as progress:
        scores = score(
            network,
            pairs,
            setup.data.loss,
            trace=found,
            criterion=setup.criterion,
            mode=mode,
            max_batches=max_batches,
            seed=seed,
            progress=progress,
        )
    if setup.method.balance:
        scores = balance(scores)
    if setup.method.resource is not None:
        weight = STRENGTH if setup.strength is None else setup.strength
        scores = reweight(scores, measure(found, setup.method.resource), weight)
    selection = Selection.of(scores, found, scope=setup.method.scope, keep=keep or (), tie=tie, seed=seed)
    best = selection.max_sparsity()
    steps = max(selection.scope.steps(selection.coupling), 1)
    limit = ""
    try:
        selection.plan(min(best + 1 / steps, 1 - 1e-12))
    except InfeasibleError as error:  # One channel more: the error tells which layer would have none left.
        limit = str(error).split(". The largest")[0]
    plan = selection.plan(best)
    if as_json:
        show_json(
            {
                "model": model,
                "method": setup.method.name,
                "criterion": setup.criterion.name,
                "max_sparsity": best,
                "achieved": plan.sparsity.achieved,
                "channels": plan.sparsity.channels,
                "prunable": plan.sparsity.prunable,
                "limit": limit,
            }
        )
        return
    typer.echo(
        f"largest feasible sparsity of {model} with {setup.method.name} ({setup.criterion.name}): {best:.4%}\n"
        f"it removes {plan.sparsity.removed} of {plan.sparsity.channels} channels ({plan.sparsity.achieved:.2%})"
    )
    if limit:
        typer.echo(f"limit: {limit}")
