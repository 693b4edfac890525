"""Step 5 of 6: decide which channels stay, from scores and from what the network allows.

Paper, Eq. 9 and Alg. 2. One threshold over all channels grants exactly k of them; coupled layers then agree on a common
set (the tie rule), and every decision is one comparison with the *need* of a class of channels
(``ranp.choosing.ties``), so the largest feasible sparsity is a closed form rather than the paper's bisection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ranp import arguments
from ranp.choosing import refusals
from ranp.choosing import snip as _snip  # registers the scope "weights"
from ranp.choosing import widths as _widths  # registers "flat", "power" and "balanced"
from ranp.choosing.coupling import ALWAYS, Coupling, couple
from ranp.choosing.plan import Cut, Plan, Sparsity
from ranp.choosing.scopes import Order, Scope, Wanted, resolve
from ranp.choosing.ties import TIES, Needs, TieRule, first_channels, nearest, needs
from ranp.errors import InfeasibleError, UnsupportedError, asked
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags, Floats
from ranp.tracing.trace import Trace

if TYPE_CHECKING:
    from ranp.scoring.scores import Scores

__all__ = ["Selection", "max_sparsity", "select"]

logger = logging.getLogger(__name__)
del _snip, _widths


def select(
    scores: Scores,
    trace: Trace,
    *,
    sparsity: float,
    scope: str | Scope | Wanted = "network",
    keep: Iterable[str] = (),
    tie: str = "max",
    exact: bool = False,
    min_channels: int = 1,
    round_to: int = 1,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """Decides which channels of each layer stay.

    Args:
        scores: One score per output channel of every layer of ``trace``.
        trace: Which channels stand or fall together.
        sparsity: Fraction to remove, from 0 up to below 1.
        scope: What the fraction is a share of: ``"network"`` (the paper: all channels, one threshold), ``"layer"``
            (the same share of each layer), ``"random"`` (channels drawn blindly), ``"weights"`` (SNIP: single
            weights), ``"flat"`` (the same width everywhere), ``"power"`` (the root of the full width), or a function
            ``(scores, trace, sparsity) -> {layer: flags of the granted channels}``.
        keep: ``fnmatch`` patterns of layers to keep whole.
        tie: How coupled layers agree: ``"max"`` = as many channels as the hungriest was granted, the ones with the
            highest score in any of them (the paper); ``"union"`` = every channel any of them was granted.
        exact: True to remove that fraction of the prunable channels after coupling, as nearly as whole channels
            allow; every set of channels that stand or fall together then keeps its best one, however low its score.
            False is the paper's sparsity: the fraction below the threshold, of which coupled and output layers then
            get some back, and which is infeasible where a layer is granted nothing.
        min_channels: Every set of channels that stand or fall together keeps at least that many, or all.
        round_to: Its width is rounded up to a multiple of this, never above the original.
        seed: For ``scope="random"``.
        settings: What else to remember in the plan: method, batches seen, ...

    Raises:
        InfeasibleError: A layer would lose all its channels; the message says what is feasible. Or no channel may be
            removed at all; the message says why.
        PlanMismatchError: Scores and trace do not belong together, or a pattern in ``keep`` matches nothing.
        UnsupportedError: Unknown ``scope`` or ``tie``, or a wrong ``min_channels`` or ``round_to``.
    """
    if settings is not None:
        arguments.kind("settings", settings, Mapping, "a mapping from names to values, or None")
    selection = Selection.of(
        scores, trace, scope=scope, keep=keep, tie=tie, min_channels=min_channels, round_to=round_to, seed=seed
    )
    return selection.plan(sparsity, exact=exact, settings={**selection.made_by, "exact": exact, **(settings or {})})


def max_sparsity(
    scores: Scores,
    trace: Trace,
    *,
    keep: Iterable[str] = (),
    tie: str = "max",
    scope: str | Scope | Wanted = "network",
    seed: int = 0,
) -> float:
    """The largest sparsity at which every layer still keeps a channel; ``select`` succeeds at exactly that value.

    A closed form where the order of the channels does not depend on the sparsity: the budget that the neediest layer
    needs for its first channel. For ``scope="weights"`` and scopes of your own it is a bisection.
    """
    keep = arguments.patterns(keep)
    chosen, coupling = resolve(scope), couple(scores, trace, keep)
    if chosen.nested and coupling.layout.simple and tie in TIES and not coupling.stuck:
        order = chosen.order(coupling, 0.0, arguments.seed(seed))
        return order.largest(first_channels(coupling, order.levels))
    return Selection.of(scores, trace, scope=chosen, keep=keep, tie=tie, seed=seed).max_sparsity()


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Everything about a selection but the sparsity: prepare once, then make plans at many sparsities.

    ``select`` and ``max_sparsity`` are short for it; a search over sparsities should use it directly.
    """

    coupling: Coupling
    scope: Scope
    rule: TieRule
    min_channels: int
    round_to: int
    seed: int
    made_by: Mapping[str, Any]
    fixed: tuple[Order, Needs] | None

    @classmethod
    def of(
        cls,
        scores: Scores,
        trace: Trace,
        *,
        scope: str | Scope | Wanted = "network",
        keep: Iterable[str] = (),
        tie: str = "max",
        min_channels: int = 1,
        round_to: int = 1,
        seed: int = 0,
    ) -> Selection:
        """Prepares a selection; the arguments are those of ``select``."""
        min_channels, round_to = arguments.width("min_channels", min_channels), arguments.width("round_to", round_to)
        rule, chosen, seed = TIES.get(tie), resolve(scope), arguments.seed(seed)
        keep = arguments.patterns(keep)
        coupling = couple(scores, trace, keep)
        made_by = {
            "criterion": scores.criterion,
            "stage": scores.stage,
            "batches": scores.batches,
            "scope": chosen.name,
            "tie": tie,
            "keep": list(keep),
            "min_channels": min_channels,
            "round_to": round_to,
            "seed": seed,
        }
        selection = cls(coupling, chosen, rule, min_channels, round_to, seed, made_by, None)
        return selection.ordered(chosen.order(coupling, 0.0, seed)) if chosen.nested else selection

    def ordered(self, order: Order) -> Selection:
        """The same with channels granted in that order, at every sparsity."""
        return replace(self, fixed=(order, self._needs(order)))

    def floored(self, min_channels: int) -> Selection:
        """The same with another least width."""
        made_by = {**self.made_by, "min_channels": min_channels}
        other = replace(self, min_channels=min_channels, made_by=made_by)
        return other if self.fixed is None else other.ordered(self.fixed[0])

    def at(self, sparsity: float) -> tuple[Order, Needs]:
        """The order of the channels at that sparsity, and when each class is kept."""
        if self.fixed is not None:
            return self.fixed
        order = self.scope.order(self.coupling, sparsity, self.seed)
        return order, self._needs(order)

    def _needs(self, order: Order) -> Needs:
        return needs(
            self.coupling,
            order.levels,
            order.priority,
            self.rule,
            min_channels=self.min_channels,
            round_to=self.round_to,
        )

    def max_sparsity(self) -> float:
        """The largest feasible sparsity."""
        if self.coupling.stuck:
            return 0.0
        if self.fixed is not None:
            order, found = self.fixed
            return order.largest(self.demand(found.wanted)[0])
        return _last_step(self.steps, self.feasible) / max(self.steps, 1)

    @property
    def steps(self) -> int:
        """How many different sparsities there are."""
        return self.scope.steps(self.coupling)

    def feasible(self, sparsity: float) -> bool:
        """True if every layer keeps a channel, and every tensor something."""
        order, found = self.at(sparsity)
        return bool(self.demand(found.wanted)[0] <= order.budget(sparsity))

    def plan(self, sparsity: float, *, exact: bool = False, settings: Mapping[str, Any] | None = None) -> Plan:
        """The plan at that sparsity; see ``select``."""
        wish = check_sparsity(sparsity)
        if self.scope.priced:
            raise UnsupportedError(refusals.needs_budget(f"scope {self.scope.name!r}"))
        if wish > 0 and self.coupling.stuck:
            raise InfeasibleError(refusals.nothing_goes(self.coupling, asked("sparsity", wish)))
        if arguments.flag("exact", exact):
            found, budget = self._exact(wish)
            target = wish * self._movable
            if target - self._removed(found, budget) >= 1 and target > self._most_removable():
                raise InfeasibleError(refusals.share_too_high(wish, self.max_share()))
            demand, where = self.demand(found.kept)
            stays = nearest(self.coupling, found.kept, budget, target, demand)
        else:
            order, found = self.at(wish)
            budget = order.budget(wish)
            demand, where = self.demand(found.wanted)
            stays = found.kept <= budget
        if demand > budget:
            raise InfeasibleError(refusals.sparsity_too_high(self.coupling, wish, where, self.max_sparsity()))
        measure = "prunable" if exact else "channels"
        return self.build(stays, requested=wish, measure=measure, settings=settings)

    @property
    def _movable(self) -> int:
        """How many channels may go."""
        return int(np.count_nonzero(self.coupling.movable))

    def demand(self, need: Floats) -> tuple[float, int]:
        """The budget at which every layer and tensor has a class that is needed, and which of them has it last.

        Layers come first, in their order, then the tensors of ``Trace.dims``.
        """
        layout = self.coupling.layout
        values = []
        for classes, starts in ((layout.classes, layout.starts[:-1]), (layout.dims, layout.dim_starts)):
            if len(starts):
                values.append(np.minimum.reduceat(need[classes], starts))
        if not values:
            return 0.0, 0
        joined = np.concatenate(values)
        where = int(np.argmax(joined))
        return float(joined[where]), where

    def _removed(self, found: Needs, budget: float) -> int:
        """How many channels go at that budget."""
        return int(np.count_nonzero(found.kept[self.coupling.classes] > budget))

    def _exact(self, wish: float) -> tuple[Needs, float]:
        """The budget at which the removed share of the prunable channels is nearest to ``wish``, the larger if two."""
        target = wish * self._movable
        if self.fixed is not None:
            _, found = self.fixed
            needed = np.sort(found.kept[self.coupling.classes])
            # Below the first need only what is always kept stays; each need that occurs is one step up from there.
            budgets = np.unique(np.concatenate([[ALWAYS], needed[np.isfinite(needed)]]))[::-1]
            removed = len(needed) - np.searchsorted(needed, budgets, side="right")
            return found, float(budgets[int(np.argmin(np.abs(removed - target)))])

        def state(step: int) -> tuple[int, Needs, float]:
            sparsity = step / max(steps, 1)
            order, found = self.at(sparsity)
            return self._removed(found, order.budget(sparsity)), found, order.budget(sparsity)

        steps = self.steps
        last = _last_step(steps, lambda sparsity: state(round(sparsity * steps))[0] <= target)
        below, above_it = state(last), state(min(last + 1, max(steps - 1, 0)))
        nearest = above_it if above_it[0] - target < target - below[0] else below
        return nearest[1], nearest[2]

    def _most_removable(self) -> int:
        """How many channels can go at most while every set that stands or falls together keeps its best."""
        _, found = self.at(self.sparsest)
        return self._removed(found, ALWAYS)

    @property
    def sparsest(self) -> float:
        """The sparsity that grants a single channel (or weight)."""
        return 1.0 - 1.0 / max(self.steps, 1)

    def max_share(self) -> float:
        """The largest share of the prunable channels that ``plan`` with ``exact`` can remove."""
        return self._most_removable() / max(self._movable, 1)

    def limit(self) -> str:
        """What would be lost with one channel more than the largest feasible sparsity removes."""
        step = self.max_sparsity() + 1 / max(self.steps, 1)
        _, found = self.at(min(step, 1.0))
        return refusals.lost(self.coupling, self.demand(found.wanted)[1])[0]

    def build(
        self,
        stays: Flags,
        *,
        requested: float | None = None,
        measure: str = "channels",
        settings: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The plan that keeps these classes of channels.

        Args:
            stays: One flag per class.
            requested: The sparsity that was asked for; None: what it comes to.
            measure: What the sparsity is a share of, see ``Sparsity``.
            settings: What to remember in the plan.
        """
        coupling, trace = self.coupling, self.coupling.trace
        choice = Choice(trace, stays)
        made = cache(Cut)  # which checks its indices: the same cut is made in many tensors
        cuts = {name: {dim: made(*cut) for dim, cut in found.items()} for name, found in choice.cuts.items()}
        removed = choice.removed
        sparsity = Sparsity(
            requested=removed / max(trace.channels, 1) if requested is None else requested,
            removed=removed,
            channels=trace.channels,
            prunable=int(np.count_nonzero(coupling.movable)),
            measure=measure,
        )
        channels = {layer.name: layer.channels for layer in trace.layers}
        notes = tuple(f"{name}: {why}" for name, why in refusals.why_kept(coupling).items() if why)
        logger.info("kept %d of %d channels", trace.channels - sparsity.removed, trace.channels)
        return Plan(choice.kept, channels, cuts, sparsity, dict(settings or {}), notes, coupling.channel_classes())


def check_sparsity(sparsity: float) -> float:
    """The fraction to remove as a plain number.

    Raises:
        InfeasibleError: It is no number from 0 up to, not including, 1.
    """
    allowed = "a fraction to remove, a number from 0 up to, not including, 1"
    return arguments.number("sparsity", sparsity, allowed, below=1, error=InfeasibleError)


def _last_step(steps: int, holds: Callable[[float], bool]) -> int:
    """The largest i below ``steps`` with ``holds(i / steps)``, for a condition that, once false, stays false."""
    low, high = 0, max(steps, 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle / steps) else (low, middle)
    return low
