"""Why less was removed than was asked for, in one sentence."""

from __future__ import annotations

from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection
from ranp.errors import InfeasibleError, asked

NOTICEABLE = 0.01
"""How much of the channels may stay beyond what was asked for before a word is said about it."""


def shortfall(plan: Plan, selection: Selection) -> str:
    """Why less was removed than was asked for, and what ``exact`` removes; empty where the two hardly differ."""
    found = plan.sparsity
    of_weights = selection.scope.name == "weights"  # a share of something else
    if found.measure != "channels" or of_weights or found.requested - found.of_channels < NOTICEABLE:
        return ""
    reasons = []
    if any(len(group.layers) > 1 and group.prunable for group in selection.coupling.trace.groups()):
        reasons.append("coupled layers keep as many channels as the one of them that keeps most")
    if found.prunable < found.channels:
        stay = found.channels - found.prunable
        reasons.append(f"{stay} channels must stay, those of the output layers among them")
    if selection.min_channels > 1 or selection.round_to > 1:
        reasons.append("widths are rounded up")
    why = f": {', and '.join(reasons)}" if reasons else ""
    text, flag = f"{found.requested:.2%} asked for, {found.of_channels:.2%} removed{why}", asked("exact", True)
    try:
        exact = selection.plan(found.requested, exact=True).sparsity
        if exact.removed <= found.removed:
            return f"{text}; {flag} removes no more here."
        shares = f"{exact.of_channels:.2%}, {exact.of_prunable:.2%} of the {exact.prunable} prunable"
        instead = f"{flag} removes {exact.removed} of {exact.channels} channels ({shares})"
    except InfeasibleError:
        instead = f"even {flag} removes no more than {selection.max_share():.2%} of the {found.prunable} prunable ones"
    return f"{text}; {instead}."
