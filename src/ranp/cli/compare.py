"""``ranp compare``: ways to choose widths side by side, on any network and training, at exactly equal budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ranp.cli.console import progress_bars, say, show_json, show_tables
from ranp.cli.options import RUN, STEP, Cluster, DataFolder, Device, Example, Inputs, Jobs, Json, flag, takes

_WHAT, _ARMS, _JUDGED = "What is compared", "Arms", "How they are judged"


@takes(training=STEP)
def compare(
    training: dict[str, Any],
    model: Annotated[str | None, flag("Function that returns the full network.", _WHAT, metavar="PKG.MOD:FN")] = None,
    batches: Annotated[
        str | None, flag("Function of the seed that returns (inputs, target) pairs.", _WHAT, metavar="PKG.MOD:FN")
    ] = None,
    loss: Annotated[str | None, flag("The loss itself: loss(output, target).", _WHAT, metavar="PKG.MOD:FN")] = None,
    train: Annotated[
        str | None,
        flag("train(network, training): trains with training.lr, returns metrics.", _WHAT, metavar="PKG.MOD:FN"),
    ] = None,
    lightning: Annotated[
        str | None, flag("Or: function that returns a Lightning module and its data.", _WHAT, metavar="PKG.MOD:FN")
    ] = None,
    attribute: Annotated[str, flag("The network's name in the Lightning module.", _WHAT)] = "model",
    max_epochs: Annotated[int, flag("Epochs of the Lightning trainer.", _WHAT, min=1)] = 10,
    task: Annotated[str | None, flag("Or: a task of the paper.", _WHAT)] = None,
    scale: Annotated[str, flag("paper, or cpu: the task's small network and sizes.", _WHAT)] = "cpu",
    settings: Annotated[
        list[str] | None, flag("Change the task's recipe; may be repeated.", _WHAT, "--set", metavar="KEY=VALUE")
    ] = None,
    data: DataFolder = None,
    inputs: Inputs = None,
    example: Example = None,
    arms: Annotated[
        list[str] | None,
        flag("full, a method, or NAME=METHOD,option=value; may be repeated.", _ARMS, "--arm", metavar="ARM"),
    ] = None,
    budgets: Annotated[
        list[str] | None,
        flag(
            "Such as flops=5%; may be repeated, for separate comparisons.", _ARMS, "--budget", metavar="RESOURCE=VALUE"
        ),
    ] = None,
    random_widths: Annotated[int, flag("Random vectors of widths, for percentiles.", _ARMS, min=0)] = 0,
    random_seeds: Annotated[int, flag("Seeds on which those are trained.", _ARMS, min=1)] = 2,
    init: Annotated[str, flag("paired, copy (pretrained networks), glorot, ...", _ARMS)] = "paired",
    reference: Annotated[str, flag("The arm that others are compared with.", _JUDGED)] = "flat",
    seeds: Annotated[int, flag("Runs of each arm.", _JUDGED, min=1)] = 8,
    first_seed: Annotated[int, flag("The first of the seeds.", _JUDGED, min=0)] = 0,
    rates: Annotated[
        list[float] | None, flag("Learning rates to choose from; may be repeated.", _JUDGED, "--rate", metavar="LR")
    ] = None,
    exploration: Annotated[int, flag("Seeds on which the rate of each arm is chosen.", _JUDGED, min=1)] = 2,
    metric: Annotated[str | None, flag("The metric that counts; default the first.", _JUDGED)] = None,
    goal: Annotated[str | None, flag("max or min; default by the metric's name.", _JUDGED)] = None,
    fails: Annotated[float | None, flag("A run with a worse metric counts as failed.", _JUDGED)] = None,
    out: Annotated[Path | None, flag("Folder for the runs, table, CSV and page.", RUN, metavar="DIR")] = None,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Compare ways to choose widths at exactly equal budgets: learning rates chosen per arm, paired weights, intervals.

    Every run (arm, budget, seed, rate) is kept in DIR: the same command continues where it was stopped.
    """
    from ranp.cli import extras

    needed = [extras.COMPARE, extras.LIGHTNING if lightning else {}, extras.CLUSTER if cluster else {}]
    if task is not None:
        from ranp.paper import tasks

        needed.append(extras.of_task(tasks.get(task), data))
    extras.require(*needed)
    from ranp.comparing.arms import DEFAULT
    from ranp.comparing.compare import RATES
    from ranp.comparing.compare import compare as run
    from ranp.errors import UnsupportedError

    if out is None:
        raise UnsupportedError("nothing says where the results go. Pass --out DIR.")
    code = {"model": model, "batches": batches, "loss": loss, "train": train}
    subject = _subject(
        code, lightning, task, {"scale": scale, "settings": tuple(settings or ()), "data": data and str(data)},
        attribute, max_epochs, inputs or (), example, training, device,
    )  # fmt: skip
    with progress_bars("comparing", lines=("cell", "failed", "step time")) as progress:
        found = run(
            subject=subject,
            out=out,
            budgets=budgets or ("flops=5%",),
            arms=arms or DEFAULT,
            reference=reference,
            seeds=range(first_seed, first_seed + seeds),
            rates=rates or RATES,
            exploration=exploration,
            random_widths=random_widths,
            random_seeds=random_seeds,
            metric=metric,
            goal=goal,
            fails=fails,
            init=init,
            jobs=jobs,
            cluster=cluster,
            progress=progress,
            command=_command(),
        )
    table, figures = found.table(), found.figures()
    if as_json:
        show_json({**table.to_dict(), "runs": list(table.records), "folder": str(out)})
        return
    show_tables(table, *(() if figures is None else (figures,)))
    say(f"wrote {', '.join(str(out / name) for name in ('compare.md', 'compare.csv', 'compare.html'))}")


def _subject(
    code: dict[str, str | None],
    lightning: str | None,
    task: str | None,
    of_task: dict[str, Any],
    attribute: str,
    max_epochs: int,
    inputs: Any,
    example: str | None,
    training: dict[str, Any],
    device: str,
) -> Any:
    """What is compared, in one of three ways.

    Raises:
        UnsupportedError: In none, or in several.
    """
    from ranp.cli.options import step_of
    from ranp.comparing.sources import LightningTraining, TaskTraining
    from ranp.comparing.subject import Subject
    from ranp.errors import UnsupportedError
    from ranp.paper import naming

    ways = [bool(any(code.values())), bool(lightning), bool(task)]
    if sum(ways) != 1:
        raise UnsupportedError(
            "say what is compared in one way: --model, --batches, --loss and --train; --lightning; or --task."
        )
    if task is not None:
        for name, value in {**training, "input": inputs, "example": example}.items():
            if value:
                raise UnsupportedError(f"--{name} is decided by the recipe of --task {task}. Pass --set KEY=VALUE.")
        return TaskTraining(task, device=device, **of_task).subject()
    step = step_of(training, {"task": None})
    network = naming.Network("", lambda: None, None)  # type: ignore[arg-type, return-value]
    more = {"example": naming.find_example(network, inputs, example), "step": step, "device": device}
    if lightning is not None:
        make = naming.code(lightning, "--lightning")
        return LightningTraining(make, attribute or None, {"max_epochs": max_epochs}).subject(**more)
    missing = [f"--{name}" for name, value in code.items() if value is None]
    if missing:
        raise UnsupportedError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing. Pass all four.")
    found = {name: naming.code(str(value), f"--{name}") for name, value in code.items()}
    if isinstance(found["loss"], type):
        found["loss"] = found["loss"]()
    return Subject(**found, **more)


def _command() -> str:
    import shlex
    import sys

    return shlex.join(["ranp", *sys.argv[1:]])
