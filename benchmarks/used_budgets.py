"""Every method within the same budgets: how much of each is used, by other people's count, and the widths it leads to.

A cell is a network, a method and a budget. What is found is kept, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import nn

import ranp
from benchmarks.budgets import MONAI, PAPER, SMALLER, weighed, without_data
from benchmarks.pairs import table
from benchmarks.resuming import Kept
from ranp.choosing.budgets import Budget, StepSetup, plan_within
from ranp.choosing.methods import resolve
from ranp.choosing.selection import Selection
from ranp.errors import InfeasibleError
from ranp.paper import models
from ranp.scoring.score import score_many
from zoo.catalogue import ZOO
from zoo.entry import loss

BUDGETS = ("flops=20%", "flops=5%", "flops=2%", "train-memory=30%")
ENOUGH = 0.995
NO_FLOOR = ", no floor"
OWN = "ranp-f ranp-m weighted vanilla layerwise random snip flat power balanced pretrained"
ARMS = (*OWN.split(), f"ranp-f{NO_FLOOR}")
SHOWN = ("flat", "balanced", "ranp-f", f"ranp-f{NO_FLOOR}")
"""Arms whose widths are printed."""
Made = tuple[nn.Module, Any, Any]
"""A network, the inputs that costs are taken at, and the inputs that it is scored on."""


def _of_paper(name: str) -> Made:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        single = torch.randn(PAPER[name])
        model = models.build(name, **SMALLER.get(name, {}))
    example = (single, single.clone()) if name.startswith("psm") else single
    return model, example, example


def _of_zoo(name: str) -> Made:
    return ZOO[name].build(), ZOO[name].example(ordinary=True), ZOO[name].example()


def makers(quick: bool) -> Iterator[tuple[str, Callable[[], Made]]]:
    count = 1 if quick else None
    yield from ((name, partial(_of_paper, name)) for name in [*PAPER][:count])
    yield from ((name, partial(_of_zoo, name)) for name in (*MONAI, "AttentionUnet")[:count])


class Arms:
    """All methods on one network, which is made when the first cell needs it."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self.model, self.example, scored = make()
        self.trace = ranp.trace(self.model, self.example)
        self.setup = StepSetup(self.model, without_data(self.example))
        criteria = ("magnitude", "random", "snip")
        self._raw = score_many(self.model, [(scored, None)], loss, criteria, trace=self.trace)
        self._full: dict[str, float] = {}

    def cell(self, arm: str, text: str) -> dict[str, Any]:
        """The share of the budget that the slim network uses, its widths, and what was said of the budget."""
        method, budget = resolve(arm.removesuffix(NO_FLOOR)), Budget.parse(text)
        if budget.resource not in self._full:
            self._full[budget.resource] = weighed(budget.resource, self.model, self.example)
        raw = self._raw.get(method.criterion, self._raw["magnitude"])
        selection = Selection.of(method.weigh(raw, method.costs(self.trace)), self.trace, scope=method.scope)
        floor = None if arm.endswith(NO_FLOOR) else method.floor
        try:
            plan = plan_within(selection, [budget], self.setup, floor=floor)
        except InfeasibleError as refusal:
            return {"refused": str(refusal).split("the full network")[0].rsplit("(", 1)[1].strip(" of")}
        slim = ranp.slim(self.model, plan)
        used = weighed(budget.resource, slim, self.example) / budget.limit(self._full[budget.resource])
        notes = [plan.settings[name] for name in ("budget_note", "floor_note") if name in plan.settings]
        return {
            "used": used,
            "widths": list(plan.widths.values()),
            "notes": notes,
            "reckoned": _reckoned(plan.settings),
        }


def _reckoned(settings: Any) -> float:
    """The share by our own count."""
    (one,) = settings["budget"]
    return float(one["after"] / one["limit"])


def _shown(found: dict[str, Any]) -> str:
    if "refused" in found:
        return f"at least {found['refused']}"
    mark = " !" if found["used"] > 1 else "" if found["used"] >= ENOUGH else " -"
    return f"{100 * found['used']:.2f}{mark}"


def run(*, quick: bool) -> None:
    kept = Kept("used-budgets", quick)
    rows, widths, remarks, cells = [], [], [], []
    for name, make in makers(quick):
        made = cache(partial(Arms, make))
        for budget in BUDGETS:
            found = {
                arm: kept.once(
                    name, arm, budget, work=lambda arm=arm, budget=budget, made=made: made().cell(arm, budget)
                )
                for arm in ARMS
            }
            cells += list(found.values())
            rows.append((name, budget, *map(_shown, found.values())))
            print("| " + " | ".join(rows[-1]) + " |", flush=True)
            for arm in (arm for arm in SHOWN if "widths" in found[arm]):
                widths.append((name, budget, arm, " ".join(map(str, found[arm]["widths"]))))
            for arm, one in found.items():
                if "used" in one and not ENOUGH <= one["used"] <= 1:
                    why = "; ".join(one["notes"]) or f"{one['reckoned']:.2%} by our own count"
                    remarks.append(f"{name}, {budget}, {arm}: {one['used']:.2%} used; {why}.")
        del made
    met = [one for one in cells if "used" in one]
    enough = sum(ENOUGH <= one["used"] <= 1 for one in met)
    notes = (
        f"{enough} of {len(met)} slim networks use {100 * ENOUGH:g} to 100 % of their budget. Percent: flops by "
        "`torch.utils.flop_counter`, train-memory by the events of torch's allocator in a step that really runs (Adam, "
        "float32), each against the same figure of the full network. `-`: less is used; `!`: it is above; `at least`: "
        "refused, and the smallest share that is possible.",
        "Scored by magnitude, `snip` by its own criterion, `random` blindly; at least four channels in every layer "
        "where they fit, but without a floor in the last column.",
        *remarks,
    )
    print(table("How much of a budget is used", ("network", "budget", *ARMS), rows, notes))
    header = ("network", "budget", "method", "channels of every layer, in the order of the network")
    print(table("Widths", header, widths))
