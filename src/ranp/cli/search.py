"""``ranp search``: how much can be removed before some layer has no channel left."""

from __future__ import annotations

from ranp.cli.console import progress_bar, say, show_json
from ranp.cli.options import (
    AllowMissing,
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
    Scale,
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
    allow_missing: AllowMissing = False,
    scale: Scale = None,
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
    from ranp import score, trace
    from ranp.choosing.selection import Selection
    from ranp.cli.preparation import prepare
    from ranp.cli.sources import Choice, make
    from ranp.pruning import first_batch
    from ranp.reporting.causes import describe, what_stays

    setup = prepare(
        model,
        method=method,
        criterion=criterion,
        tie=tie,
        mode=mode,
        strength=strength,
        choice=Choice(task, data, allow_missing, scale, batches, loss, size, max_batches, seed),
        inputs=inputs or (),
        example=example,
    )
    given, pairs = setup.example, setup.data.batches
    if given is None:
        first, pairs = first_batch(pairs, needed=True)
        given = first[0]
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
    scores = setup.method.weigh(scores, setup.method.costs(found), setup.strength)
    selection = Selection.of(scores, found, scope=setup.method.scope, keep=keep or (), tie=tie, seed=seed)
    best = selection.max_sparsity()
    limit = "" if selection.feasible(1.0) else selection.limit()
    plan = selection.plan(best)
    stay = what_stays(found, plan.notes)
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
                "pins": [pin.to_dict() for pin in stay],
            }
        )
        return
    say(
        f"largest feasible sparsity of {model} with {setup.method.name} ({setup.criterion.name}): {best:.4%}\n"
        f"it removes {plan.sparsity.removed} of {plan.sparsity.channels} channels ({plan.sparsity.achieved:.2%})"
    )
    if limit:
        say(f"one channel more {limit}")
    say(describe(stay, found.channels))
