"""``ranp search``: how much can be removed before some layer has no channel left."""

from __future__ import annotations

from typing import Any

from ranp.cli.console import progress_bar, say, show_json
from ranp.cli.options import PRUNING, SOURCE, Device, Json, Model, options_of, takes

_SEARCH = ("method", "strength", "criterion", "resource", "tie", "keep", "mode", "max_batches", "seed")


@takes(pruning={name: PRUNING[name] for name in _SEARCH}, source=SOURCE)
def search(
    model: Model, pruning: dict[str, Any], source: dict[str, Any], device: Device = "cpu", as_json: Json = False
) -> None:
    """Print the largest feasible sparsity of a method, and the layer that limits it.

    The network is scored once; the figure is then a closed form.
    """
    from ranp.cli.preparation import make, prepare, scored
    from ranp.reporting.causes import describe, what_stays

    setup = prepare(model, options_of(pruning), source)
    options = setup.options
    with progress_bar(f"scoring {model}", f"searching {model}", total=setup.count) as progress:
        scores, found = scored(setup, make(setup.network, device), setup.example, progress)
    selection = options.selection(scores, found)
    best = selection.max_sparsity()
    limit = "" if selection.feasible(1.0) else selection.limit()
    plan = selection.plan(best)
    stay = what_stays(found, plan.notes)
    if as_json:
        found_at = {name: getattr(plan.sparsity, name) for name in ("achieved", "channels", "prunable")}
        asked = {"model": model, "method": options.how.name, "criterion": options.rule.name}
        pins = [pin.to_dict() for pin in stay]
        show_json({**asked, "max_sparsity": best, **found_at, "limit": limit, "pins": pins})
        return
    say(
        f"largest feasible sparsity of {model} with {options.how.name} ({options.rule.name}): {best:.4%}\n"
        f"it removes {plan.sparsity.removed} of {plan.sparsity.channels} channels ({plan.sparsity.achieved:.2%})"
    )
    if limit:
        say(f"one channel more {limit}")
    say(describe(stay, found.channels))
