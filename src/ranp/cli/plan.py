"""``ranp plan``: look at a plan, at what two of them say differently, or change what one keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ranp.cli.console import say, show_json, show_table
from ranp.cli.options import Command, Group, Json

if TYPE_CHECKING:
    from ranp.choosing.plan import Change

plan = typer.Typer(help="Look at plans and change them.", cls=Group)


def _plan_in(path: Path) -> Path:
    return path / "plan.json" if path.is_dir() else path


File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A plan.json, or the run folder it is in.", callback=_plan_in)
]


@plan.callback(invoke_without_command=True)
def _alone(context: typer.Context) -> None:
    """Look at plans and change them."""
    if context.invoked_subcommand is None:
        from ranp.errors import UnsupportedError

        raise UnsupportedError(
            "ranp plan needs one of show, diff and edit. For example: ranp plan show runs/slim/plan.json."
        )


@plan.command(cls=Command)
def show(file: File, as_json: Json = False) -> None:
    """Print what a plan keeps of every layer, and how it was made."""
    from ranp.choosing.budgets.budget import REMEMBERED, budget_lines
    from ranp.choosing.plan import Plan
    from ranp.errors import StorageError

    found = Plan.load(file)
    if as_json:
        show_json(
            {"widths": found.widths, "channels": dict(found.channels), "settings": dict(found.settings)}
            | {"requested": found.sparsity.requested, "achieved": found.sparsity.achieved, "notes": list(found.notes)}
            | {"altered": found.altered}
        )
        return
    try:
        lines = budget_lines(found.settings)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise StorageError(
            f"the settings of {str(file)!r} name budgets that ranp did not write. Take them out, or make it again."
        ) from error
    made = ", ".join(
        f"{name} {value}" for name, value in found.settings.items() if name not in (*REMEMBERED, "data_note")
    )
    sparsity = found.sparsity
    title = f"{sparsity.removed} of {sparsity.channels} channels removed ({sparsity.of_channels:.2%}); {made}"
    rows = [
        (name, str(found.channels[name]), str(width), f"{width / found.channels[name]:.0%}")
        for name, width in found.widths.items()
    ]
    show_table(("layer", "channels", "kept", "share"), rows, title=title)
    if found.altered:
        say("edited since it was made: the method and the budgets are those of the plan it was before")
    for line in lines:
        say(line)
    noise = found.settings.get("data_note")
    for note in (*found.notes, *([f"scored on noise: {noise}"] if noise else [])):
        say(f"note: {note}")


@plan.command(cls=Command)
def diff(before: File, after: File, as_json: Json = False) -> None:
    """Print the layers that two plans treat differently."""
    from ranp.choosing.plan import Plan

    _show_changes(Plan.load(before).diff(Plan.load(after)), as_json)


@plan.command(cls=Command)
def edit(
    file: File,
    layer: Annotated[
        list[str], typer.Option(metavar="NAME", help="Layer to change; may be repeated, each with a --keep.")
    ],
    keep: Annotated[list[str], typer.Option(metavar="CHANNELS", help="The channels it keeps, such as '0-15, 17'.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the new plan goes.")],
    as_json: Json = False,
) -> None:
    """Write a plan in which layers keep other channels; everything coupled to them follows."""
    from ranp.choosing.plan import Plan
    from ranp.choosing.plan.editing import edit as edit_plan
    from ranp.errors import PlanMismatchError

    if len(layer) != len(keep) or len(set(layer)) != len(layer):
        raise PlanMismatchError(
            f"there are {len(set(layer))} layers and {len(keep)} lists of channels. "
            "Give each --layer once with its --keep."
        )
    before = Plan.load(file)
    after = edit_plan(before, dict(zip(layer, keep, strict=True)))
    after.save(out)
    _show_changes(before.diff(after), as_json)


def _show_changes(changes: Sequence[Change], as_json: bool) -> None:
    if as_json:
        show_json([asdict(change) for change in changes])
        return
    if not changes:
        say("the plans keep the same channels")
        return
    rows = [
        (c.layer, *("-" if n is None else str(n) for n in (c.before, c.after, len(c.dropped), len(c.added))))
        for c in changes
    ]
    show_table(("layer", "before", "after", "dropped", "added"), rows)
