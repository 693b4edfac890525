"""``ranp plan``: look at a plan, or at what two of them say differently."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranp.cli.console import say, show_json, show_table
from ranp.cli.options import Json

plan = typer.Typer(help="Look at plans.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(metavar="FILE", help="A plan.json.")]


@plan.command()
def show(file: File, as_json: Json = False) -> None:
    """Print what a plan keeps of every layer, and how it was made."""
    from ranp.budgets.telling import REMEMBERED, budget_lines
    from ranp.plan import Plan

    found = Plan.load(file)
    if as_json:
        show_json(
            {"widths": found.widths, "channels": dict(found.channels), "settings": dict(found.settings)}
            | {"requested": found.sparsity.requested, "achieved": found.sparsity.achieved, "notes": list(found.notes)}
        )
        return
    made = ", ".join(f"{name} {value}" for name, value in found.settings.items() if name not in REMEMBERED)
    sparsity = found.sparsity
    title = f"{sparsity.removed} of {sparsity.channels} channels removed ({sparsity.of_channels:.2%}); {made}"
    rows = [
        (name, str(found.channels[name]), str(width), f"{width / found.channels[name]:.0%}")
        for name, width in found.widths.items()
    ]
    show_table(("layer", "channels", "kept", "share"), rows, title=title)
    for line in budget_lines(found.settings):
        say(line)
    for note in found.notes:
        say(f"note: {note}")


@plan.command()
def diff(before: File, after: File, as_json: Json = False) -> None:
    """Print the layers that two plans treat differently."""
    from ranp.plan import Plan

    changes = Plan.load(before).diff(Plan.load(after))
    if as_json:
        show_json(
            [
                {"layer": c.layer, "before": c.before, "after": c.after, "dropped": c.dropped, "added": c.added}
                for c in changes
            ]
        )
        return
    if not changes:
        say("the plans keep the same channels")
        return
    rows = [
        (
            change.layer,
            "-" if change.before is None else str(change.before),
            "-" if change.after is None else str(change.after),
            str(len(change.dropped)),
            str(len(change.added)),
        )
        for change in changes
    ]
    show_table(("layer", "before", "after", "dropped", "added"), rows)
