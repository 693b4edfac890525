"""``ranp prune``: a slim network, its plan and a report, in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ranp.cli.console import progress_bar, say, show_json
from ranp.cli.options import (
    AllowMissing,
    Batch,
    Batches,
    Checkpointing,
    CriterionName,
    DataFolder,
    Device,
    Exact,
    Example,
    Inputs,
    Json,
    Keep,
    LossName,
    MaxBatches,
    MethodName,
    Mode,
    Model,
    Optimiser,
    Precision,
    Scale,
    Seed,
    Size,
    Strength,
    Task,
    Tie,
)
from ranp.costs.quantities import budget_examples, find, resources

_HOW, _RUN = "How to prune", "Run"


def prune(
    model: Model,
    sparsity: Annotated[
        float | None, typer.Option(help="Fraction of channels to remove (of weights, for snip).", rich_help_panel=_HOW)
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What it may need: {budget_examples()}; repeat it.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    method: MethodName = "ranp-f",
    strength: Strength = None,
    criterion: CriterionName = None,
    resource: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(resources())}, code, or several: flops+time; default the method's own.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    tie: Tie = "max",
    exact: Exact = False,
    keep: Keep = None,
    min_channels: Annotated[int, typer.Option(min=1, help="Least width of a layer.", rich_help_panel=_HOW)] = 1,
    round_to: Annotated[
        str,
        typer.Option(help="Round widths up to a multiple; auto: by the times of this machine.", rich_help_panel=_HOW),
    ] = "1",
    mode: Mode = "train",
    init: Annotated[
        str,
        typer.Option(
            help="copy, or glorot (the paper), orthogonal, kaiming, or code: draw anew.", rich_help_panel=_HOW
        ),
    ] = "copy",
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
    batch: Batch = None,
    optimizer: Optimiser = "adam",
    precision: Precision = "float32",
    checkpointing: Checkpointing = False,
    unchecked: Annotated[
        bool,
        typer.Option("--unchecked", help="Take a slim network whose numbers cannot be compared.", rich_help_panel=_RUN),
    ] = False,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the results.", rich_help_panel=_RUN)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the run in DIR; other files in it stay.", rich_help_panel=_RUN)
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Report, with the predicted training memory, but write nothing.", rich_help_panel=_RUN
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove channels from a network before training, check the result, and report.

    Writes plan.json, report.json, model.safetensors and recipe.json into DIR. Under torchrun every process scores its
    share of a task's samples; all come to the same plan, and one of them writes it.
    """
    from dataclasses import asdict

    from ranp import prune as prune_network
    from ranp.choosing.budgets import QUANTITIES, parse_all
    from ranp.cli.preparation import code_or_name, prepare
    from ranp.cli.sources import Choice, make, plain
    from ranp.costs.step import TrainingStep
    from ranp.errors import UnsupportedError, unknown_name
    from ranp.paper.training.team import joined
    from ranp.reporting.folder import check_replaceable, shapes_of, versions, write_run
    from ranp.slimming.initialisation import INITIALISATIONS

    if budget and sparsity is not None:
        raise UnsupportedError(f"--sparsity {sparsity:g} and --budget {budget[0]} are both given. Pass one of them.")
    if not budget and (sparsity is None or not 0 <= sparsity < 1):
        got = "nothing says how much to remove" if sparsity is None else f"--sparsity {sparsity:g} is no such fraction"
        raise UnsupportedError(f"{got}. Pass --sparsity, a fraction from 0 up to below 1, or --budget, as in flops=5%.")
    budgets = parse_all(budget) if budget else None
    step = TrainingStep(batch, optimizer, precision, checkpointing)
    multiple = _multiple(round_to)
    if out is None and not dry_run:
        raise UnsupportedError("nothing says where the results go. Pass --out DIR, or --dry-run.")
    if out is not None and not dry_run:
        check_replaceable(out, force=force)
    if ":" not in init and init not in (*INITIALISATIONS, "copy"):
        raise UnsupportedError(unknown_name("initialisation", init, (*INITIALISATIONS, "copy")))
    costs = _resources(resource)
    with joined(device) as team:
        setup = prepare(
            model,
            method=method,
            criterion=criterion,
            tie=tie,
            mode=mode,
            strength=strength,
            choice=Choice(
                task, data, allow_missing, scale, batches, loss, size, max_batches, seed, team.rank, team.size
            ),
            inputs=inputs or (),
            example=example,
        )
        network = make(setup.network, str(team.device))
        with progress_bar(f"scoring {model}", quiet=setup.criterion.needs != "gradients" or not team.leads) as progress:
            pruned = prune_network(
                network,
                setup.data.batches,
                setup.data.loss,
                sparsity=sparsity,
                budget=budgets,
                method=setup.method,
                example=setup.example,
                resource=costs,
                strength=setup.strength,
                criterion=setup.criterion,
                mode=mode,
                keep=keep or (),
                tie=tie,
                exact=exact,
                min_channels=min_channels,
                round_to=multiple,
                init=code_or_name(init, "--init"),
                max_batches=max_batches,
                seed=seed,
                step=step,
                checkpointing=checkpointing,
                unchecked=unchecked,
                progress=progress,
            )
        team.agree("plan", pruned.plan.to_json())
        if not team.leads:
            return
        recipe: dict[str, Any] = {
            "model": model,
            "options": plain(setup.data.options),
            "inputs": list(inputs or (shapes_of(setup.example) if setup.data.options else ())),
            "example": example,
            "data": setup.data.used,
            "sparsity": sparsity,
            "budget": list(budget or ()),
            "method": setup.method.name,
            "criterion": setup.criterion.name,
            "resource": resource,
            "strength": setup.strength,
            "mode": mode,
            "tie": tie,
            "exact": exact,
            "keep": list(keep or ()),
            "min_channels": min_channels,
            "round_to": multiple,
            "step": asdict(step),
            "init": init,
            "max_batches": max_batches,
            "seed": seed,
            "device": device,
            "versions": versions(),
        }
        written = [] if dry_run or out is None else write_run(out, pruned, recipe)
        predicted = _training_memory(pruned) if dry_run else None
        if as_json:
            more = {} if predicted is None else {"train_memory": dict(zip(("before", "after"), predicted, strict=True))}
            show_json({**pruned.report.to_dict(), **more, "files": [str(path) for path in written]})
            return
        say(str(pruned.report))
        if predicted is not None:
            before, after = map(QUANTITIES.get("train-memory").format, predicted)
            say(f"\npredicted peak of a training step: {before} -> {after} ({_described(step)})")
        if written:
            say(f"\nwrote {', '.join(map(str, written))}")


def _multiple(text: str) -> int | str:
    """``--round-to`` as ``ranp.prune`` takes it."""
    from ranp.errors import UnsupportedError

    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise UnsupportedError(f"--round-to {text!r} is not allowed. Pass a whole number from 1 on, or auto.")
    return int(text)


def _resources(text: str | None) -> Any:
    """``--resource`` as ``ranp.prune`` takes it: one, or a list of several."""
    from ranp.cli.preparation import code_or_name

    if text is None:
        return None
    found = []
    for part in text.split("+"):
        if ":" not in part:
            find(part, "resource", resources())
        found.append(code_or_name(part, "--resource"))
    return found[0] if len(found) == 1 else found


def _training_memory(pruned: Any) -> tuple[int, int] | None:
    """What a training step needs before and after; None where the network does not run without data."""
    from ranp.errors import UnsupportedError

    try:
        before, after = pruned.training_memory()
    except UnsupportedError:
        return None
    return before.peak, after.peak


def _described(step: Any) -> str:
    parts = [f"batch {step.batch}" if step.batch else "batch of the input", step.optimiser, step.precision]
    return ", ".join([*parts, *(["checkpointing"] if step.checkpointing else [])])
