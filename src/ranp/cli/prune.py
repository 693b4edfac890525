"""``ranp prune``: a slim network, its plan and a report, in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ranp.cli.console import progress_bar, say, show_json
from ranp.cli.options import PRUNING, RUN, SOURCE, STEP, Device, Json, Model, flag, options_of, step_of, takes

_QUICK = 2e9
"""FLOPs of a network up to which its steps are measured unasked."""


@takes(pruning=PRUNING, source=SOURCE, training=STEP)
def prune(
    model: Model,
    pruning: dict[str, Any],
    source: dict[str, Any],
    training: dict[str, Any],
    out: Annotated[Path | None, flag("Folder for the results.", RUN, metavar="DIR")] = None,
    force: Annotated[bool, flag("Replace the run in DIR; other files in it stay.", RUN, "--force")] = False,
    dry_run: Annotated[bool, flag("Report, but write nothing.", RUN, "--dry-run")] = False,
    tune: Annotated[
        bool | None,
        flag("Measure steps and the fastest way to run; default: if that takes seconds.", RUN, "--tune/--no-tune"),
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Remove channels from a network before training, check the result, and report.

    Writes plan.json, report.json, model.safetensors and recipe.json into DIR. Under torchrun every process scores its
    share of a task's samples; all come to the same plan, and one of them writes it.
    """
    from dataclasses import fields

    from ranp import prune as prune_network
    from ranp.cli.preparation import make, prepare
    from ranp.errors import UnsupportedError
    from ranp.paper.training.team import joined
    from ranp.reporting.folder import RunFolder, shapes_of, versions, write_run

    step = step_of(training, source)
    options = options_of(pruning, step=step, checkpointing=training["checkpointing"])
    options.check_amount()
    if out is None and not dry_run:
        raise UnsupportedError("nothing says where the results go. Pass --out DIR, or --dry-run.")
    if out is not None and not dry_run:
        RunFolder(out).check_replaceable(force=force)
    with joined(device) as team:
        setup = prepare(model, options, source, rank=team.rank, ranks=team.size)
        options = setup.options
        network = make(setup.network, str(team.device))
        with progress_bar(f"scoring {model}", f"pruning {model}", total=setup.count, quiet=not team.leads) as progress:
            pruned = prune_network(
                network,
                setup.data.batches,
                setup.data.loss,
                example=setup.example,
                progress=progress,
                **{field.name: getattr(options, field.name) for field in fields(options)},
            )
            team.agree("plan", pruned.plan.to_json())
            quick = {when: getattr(pruned.report.true_flops, when) <= _QUICK for when in ("before", "after")}
            if team.leads and (tune or (tune is None and quick["after"])):
                pruned = pruned.tuned()
            if team.leads:
                pruned = pruned.with_step(timed=tune or (tune is None and quick["before"]))
        if not team.leads:
            return
        inputs = source["inputs"] or (shapes_of(setup.example) if setup.data.options else ())
        recipe: dict[str, Any] = {
            "model": model,
            "options": {k: list(v) if isinstance(v, tuple) else v for k, v in setup.data.options.items()},
            "inputs": list(inputs),
            "example": source["example"],
            "data": setup.data.used,
            **options.to_dict(),
            **{name: pruning[name] for name in ("resource", "init")},  # as they were named: code, too
            "device": device,
            "versions": versions(),
        }
        written = [] if dry_run or out is None else write_run(out, pruned, recipe)
        if as_json:
            known = {one.quantity.name: {"before": one.before, "after": one.after} for one in pruned.report.spent()}
            more = {"train_memory": known["train-memory"]} if "train-memory" in known else {}
            show_json({**pruned.report.to_dict(), **more, "files": [str(path) for path in written]})
            return
        say(str(pruned.report))
        if written:
            say(f"\nwrote {', '.join(map(str, written))}")
