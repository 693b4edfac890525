"""Budgets of 50, 20, 5 and 2 % on the paper's networks and five of MONAI: met, and how much of them is used.

Every slim network is made and profiled: the figures are its own, not the solver's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

import ranp
from benchmarks.pairs import table
from ranp.choosing.budgets.budget import Budget, share_above
from ranp.choosing.budgets.metering import CheckedMeter, meters_for
from ranp.choosing.budgets.solving import FULL, Solution, limits_of, solve
from ranp.choosing.methods import resolve
from ranp.choosing.selection import Selection
from ranp.costs.memory import peak
from ranp.costs.quantities import QUANTITIES
from ranp.costs.step import StepSetup
from ranp.errors import InfeasibleError
from ranp.paper import models
from zoo.catalogue import ZOO

RESOURCES = ("flops", "params", "memory", "train-memory")
SHARES = (50, 20, 5, 2)
PAPER = ("unet3d-shapenet", "unet3d-brats", "mobilenetv2-ucf101", "i3d-ucf101", "psm-sceneflow")
MONAI = ("UNet, residual units", "BasicUNet", "DynUNet", "SegResNet, group norm", "VNet")
ENOUGH = 0.98


@dataclass(frozen=True, slots=True)
class Network:
    """A network, the size at which its costs are taken, and its ranking by RANP-f."""

    name: str
    model: nn.Module
    example: Any


def networks(quick: bool) -> Iterator[Network]:
    for name in PAPER[:1] if quick else PAPER:
        yield Network(name, models.build(name), models.example(name, "meta"))
    for name in MONAI[:1] if quick else MONAI:
        example = tree_map(lambda tensor: tensor.to("meta"), ZOO[name].example(ordinary=True))
        yield Network(name, ZOO[name].build(), example)


class Judge:
    """Solves budgets for one network, and weighs the slim networks themselves."""

    def __init__(self, network: Network) -> None:
        self.network = network
        trace = ranp.trace(network.model, network.example)
        method = resolve("ranp-f")
        raw = ranp.score(network.model, [(network.example, None)], _no_loss, trace=trace, criterion="magnitude")
        self.selection = Selection.of(method.weigh(raw, method.costs(trace)), trace)
        self.setup = StepSetup(network.model, network.example)
        self.meters: list[CheckedMeter] = []
        self.seconds: dict[str, list[float]] = {"counted": [], "train-memory": []}
        self.prepared = _timed(self._prepare)
        self.full = self._weighed(network.model)
        self.short: list[str] = []
        self.above = 0

    def _prepare(self) -> None:
        self.meters = meters_for(map(QUANTITIES.get, RESOURCES), self.setup, self.selection)

    def _weighed(self, model: nn.Module) -> dict[str, float]:
        """Of a network itself."""
        figures = ranp.profile(model, self.network.example, convention="paper")
        params = sum(parameter.numel() for parameter in model.parameters())
        memory = peak(self.setup.trace(model)).peak
        return {"flops": figures.flops, "params": params, "memory": figures.memory, "train-memory": memory}

    def cell(self, names: Sequence[str], share: float) -> str:
        """What share of the budget is used, or the smallest that is possible; ``!`` where a slim network is above."""
        budgets = [Budget.parse(f"{name}={share}%") for name in names]
        try:
            return self._used(budgets, self._solved(budgets))
        except InfeasibleError as refusal:
            possible = str(refusal).split("The smallest possible is ")[1].split(". Ask")[0]
            least = {text.split("=")[0]: Budget.parse(text.split(" ")[0]) for text in possible.split(" and ")}
            met = [least.get(budget.resource, budget) for budget in budgets]
            self._used(met, self._solved(met))
            shares = [f"{n} {share_above(b.amount, self.full[n])}" for n, b in least.items()]
            return f"at least {', '.join(shares)}"

    def _solved(self, budgets: Sequence[Budget]) -> Solution:
        needed = [meter for meter in self.meters if meter.quantity in {budget.quantity for budget in budgets}]
        begin = perf_counter()
        limits = limits_of(budgets, needed, self.selection.coupling.size)
        solution = solve(self.selection, needed, limits)
        kind = "train-memory" if any(b.resource == "train-memory" for b in budgets) else "counted"
        self.seconds[kind].append(perf_counter() - begin)
        return solution

    def _used(self, budgets: Sequence[Budget], solution: Solution) -> str:
        slim = ranp.slim(self.network.model, self.selection.build(solution.stays))
        found = self._weighed(slim)
        shares = [found[b.resource] / b.limit(self.full[b.resource]) for b in budgets]
        if max(shares) > 1:
            self.above += 1
        if max(shares) < ENOUGH:
            self.short.append(f"{' '.join(b.text for b in budgets)}: {solution.note}")
        return f"{100 * max(shares):.2f} %{' !' if max(shares) > 1 else ''}"


def _no_loss(output: Any, target: Any) -> Any:
    raise AssertionError("magnitudes need no loss")


def _timed(action: Callable[[], None]) -> float:
    begin = perf_counter()
    action()
    return perf_counter() - begin


def run(*, quick: bool) -> None:
    rows, notes, times, above, solved = [], [], [], 0, 0
    for network in networks(quick):
        judge = Judge(network)
        for names in (*((name,) for name in RESOURCES), *combinations(RESOURCES, 2)):
            cells = [judge.cell(names, share) for share in SHARES]
            rows.append((network.name, " + ".join(names), *cells))
            solved += len(cells)
        notes += [f"{network.name}, {text}" for text in judge.short]
        above += judge.above
        counted, memory = judge.seconds["counted"], judge.seconds["train-memory"]
        traced = judge.prepared
        times.append((network.name, f"{max(counted):.3f}", f"{traced:.1f}", f"{max(memory):.2f}"))
        del judge
    header = ("network", "budget of", *(f"{share} %" for share in SHARES))
    told = (
        f"{above} of {solved} slim networks are above a budget. A cell is the share of the most binding budget that "
        "the slim network uses, by its own profile; `at least`: refused, and the smallest possible value, "
        f"which is then met. The solver stops at {100 * FULL:g} %.",
        "RANP-f's ranking of magnitudes (no data), costs at the network's own size, Adam in float32.",
        *(f"Less than {100 * ENOUGH:g} % used: {note}." for note in notes),
    )
    print(table("Budgets", header, rows, told))
    print(
        table(
            "Seconds, once scores exist",
            ("network", "FLOPs, parameters, memory: slowest", "step traces", "training memory: slowest after them"),
            times,
            (f"torch {torch.__version__}, {torch.get_num_threads()} thread(s); one measurement each.",),
        )
    )
