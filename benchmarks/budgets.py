"""Budgets of 50, 20, 5 and 2 % on the paper's networks and seven of MONAI, by other people's count.

Every slim network is made and judged by what shares no code with the solver: ``torch.utils.flop_counter``, the number
of elements of its parameters, torch's saved tensors, and the events of torch's allocator in a step that really runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import ranp
from benchmarks.judges import parameters_of, saved_bytes, torch_flops
from benchmarks.pairs import table
from ranp.choosing.budgets import Budget, StepSetup, plan_within
from ranp.choosing.budgets.budget import share_above
from ranp.choosing.methods import resolve
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection
from ranp.costs.memory.measuring import measured_peak
from ranp.errors import InfeasibleError
from ranp.paper import models
from zoo.catalogue import ZOO

RESOURCES = ("flops", "macs", "params", "memory", "train-memory")
SHARES = (50, 20, 5, 2)
PAPER = {
    "unet3d-shapenet": (1, 1, 32, 32, 32),
    "unet3d-brats": (1, 4, 32, 32, 32),
    "mobilenetv2-ucf101": (1, 3, 16, 112, 112),
    "i3d-ucf101": (1, 3, 16, 224, 224),
    "psm-sceneflow": (1, 3, 64, 128),
}
"""Sizes at which a step of the full network runs in seconds, so that it can be measured."""
SMALLER = {"psm-sceneflow": {"disparities": 48, "windows": (16, 8, 4, 2)}}
"""What such sizes need of the networks."""
MONAI = (
    "UNet, instance norm, PReLU",
    "UNet, residual units",
    "BasicUNet",
    "DynUNet",
    "SegResNet, group norm",
    "VNet",
    "UNETR",
)
ENOUGH = 0.98


@dataclass(frozen=True, slots=True)
class Network:
    """A network and inputs that hold data."""

    name: str
    model: nn.Module
    example: Any


def networks(quick: bool) -> Iterator[Network]:
    for name, shape in list(PAPER.items())[: 1 if quick else None]:
        single = torch.randn(shape)
        model = models.build(name, **SMALLER.get(name, {}))
        yield Network(name, model, (single, single.clone()) if name.startswith("psm") else single)
    for name in MONAI[:1] if quick else MONAI:
        yield Network(name, ZOO[name].build(), ZOO[name].example(ordinary=True))


class Judge:
    """Plans within budgets for one network, and weighs the slim networks themselves."""

    def __init__(self, network: Network) -> None:
        self.model, self.example = network.model, network.example
        trace = ranp.trace(self.model, self.example)
        method = resolve("ranp-f")
        raw = ranp.score(self.model, [(self.example, None)], _no_loss, trace=trace, criterion="magnitude")
        self.selection = Selection.of(method.weigh(raw, method.costs(trace)), trace)
        self.setup = StepSetup(self.model, without_data(self.example))
        self.full = {name: weighed(name, self.model, self.example) for name in RESOURCES}
        self.short: list[str] = []
        self.above: list[str] = []
        self.seconds: list[float] = []

    def cell(self, resource: str, share: float) -> str:
        """What share of the budget is used, or the smallest that is possible; ``!`` where a slim network is above."""
        budget = Budget.parse(f"{resource}={share}%")
        try:
            return self._used(budget, self._planned(budget))
        except InfeasibleError as refusal:
            possible = str(refusal).split("The smallest possible is ")[1].split(" ")[0]
            least = Budget.parse(possible)
            self._used(least, self._planned(least))
            return f"at least {share_above(least.amount, self.full[resource])}"

    def _planned(self, budget: Budget) -> Plan:
        begin = perf_counter()
        plan = plan_within(self.selection, [budget], self.setup)
        self.seconds.append(perf_counter() - begin)
        return plan

    def _used(self, budget: Budget, plan: Plan) -> str:
        slim = ranp.slim(self.model, plan)
        used = weighed(budget.resource, slim, self.example) / budget.limit(self.full[budget.resource])
        if used > 1:
            self.above.append(f"{budget.text}: {used:.2%}")
        if used < ENOUGH:
            self.short.append(f"{budget.text}: {plan.settings.get('budget_note', 'nothing is said')}")
        return f"{100 * used:.2f} %{' !' if used > 1 else ''}"


def weighed(resource: str, network: nn.Module, example: Any) -> float:
    """What a network needs, by a judge that is not ours."""
    if resource == "params":
        return parameters_of(network)
    if resource == "train-memory":
        return measured_peak(network, example)
    if resource == "memory":
        return saved_bytes(copied(network), example)
    flops = torch_flops(copied(network), example)
    return flops if resource == "flops" else flops / 2


def copied(network: nn.Module) -> nn.Module:
    """A copy with the same weights, which a judge may run in any mode."""
    return deepcopy(network)


def without_data(example: Any) -> Any:
    """The same inputs on the meta device."""
    return tree_map(lambda value: value.to("meta") if isinstance(value, Tensor) else value, example)


def _no_loss(output: Any, target: Any) -> Any:
    raise AssertionError("magnitudes need no loss")


def run(*, quick: bool) -> None:
    header = ("network", "budget of", *(f"{share} %" for share in SHARES))
    rows, notes, times, above, solved = [], [], [], [], 0
    show = partial(print, flush=True)
    for network in networks(quick):
        judge = Judge(network)
        for resource in RESOURCES:
            cells = [judge.cell(resource, share) for share in SHARES]
            rows.append((network.name, resource, *cells))
            solved += len(cells)
            show("| " + " | ".join(rows[-1]) + " |")
        notes += [f"{network.name}, {text}" for text in judge.short]
        above += [f"{network.name}, {text}" for text in judge.above]
        times.append((network.name, f"{max(judge.seconds):.1f}"))
    remarks = (
        f"{len(above)} of {solved} slim networks are above a budget{': ' if above else ''}{'; '.join(above)}. A cell "
        "is the share of the budget that the slim network uses: flops and macs by `torch.utils.flop_counter`, params "
        "by counting elements, memory by torch's saved tensors, train-memory by the events of torch's allocator, each "
        "against the same figure of the full network; `at least`: refused, and the smallest possible, which is met.",
        "RANP-f's ranking of magnitudes (no data), Adam in float32.",
        *(f"Less than {100 * ENOUGH:g} % used: {note}." for note in notes),
    )
    show(table("Budgets", header, rows, remarks))
    show(table("Seconds of the slowest budget", ("network", "seconds"), times, ()))
