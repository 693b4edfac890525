"""Torch-Pruning's side of the coverage table: its pruner on one network, as far as it comes, and a judge of the result.

It is given what it needs: the example, the outputs as a flat list, and the layers that make the outputs (from our
trace; it cannot tell). The same share of every layer goes, which cannot empty one. Nothing is configured by network.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import torch_pruning
from torch import nn

from benchmarks import analysis, zoo_judge
from benchmarks.pairs import measure_pairs
from benchmarks.zoo_verdict import Layers, Verdict, follow, guarded
from zoo.entry import Entry, floating

WRONG = 1e-6
"""Beyond this the pruned network is another function. Train-mode norms over two values scale rounding up to 1e-9 and
more in deep networks; a wrong wiring shows at 1e-3."""


def prune(model: nn.Module, inputs: Any, ratio: float, outputs: Sequence[str], steps: list[str]) -> None:
    """Prunes in place. Dictionaries are passed because the library's own defaults remember earlier networks."""
    pruner = torch_pruning.pruner.BasePruner(
        model,
        inputs,
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        pruning_ratio=ratio,
        ignored_layers=[model.get_submodule(name) for name in outputs],
        in_channel_groups={},
        out_channel_groups={},
        output_transform=lambda output: list(floating(output)),
    )
    steps.append("traced")
    pruner.step()
    steps.append("pruned")


def judged(entry: Entry, ratio: float, outputs: Sequence[str], layers: Layers, *, reliable: bool) -> Verdict:
    """Prunes a copy and follows it as far as it goes.

    The copy is in float64 with weights that can be recognised. If that one fails, an ordinary copy gets its chance, so
    that no network fails for our judge's sake.

    Args:
        entry: The network.
        ratio: Share of every layer to remove.
        outputs: Layers that make the outputs.
        layers: Where each layer has its output channels.
        reliable: False if the judge does not agree with a slim network of this kind that is known to be right.
    """
    model, example = entry.build(), entry.example()
    full = zoo_judge.tagged(model)
    verdict, slim = _pruned(full, zoo_judge.doubled(example), ratio, outputs, layers)
    if "backward" not in verdict.steps:
        plain, _ = _pruned(model, example, ratio, outputs, layers)
        return plain if len(plain.steps) > len(verdict.steps) else verdict
    if verdict.problem or not reliable:
        return verdict
    try:
        verdict.error = zoo_judge.error(full, slim, example)
        verdict.checked = "numeric"
        verdict.problem = f"wrong: off by {verdict.error:.0e}" if verdict.error > WRONG else ""
    except zoo_judge.NotASliceError as problem:
        verdict.problem = f"wrong: not a slice of the original, {problem}"
    return verdict


def _pruned(
    model: nn.Module, inputs: Any, ratio: float, outputs: Sequence[str], layers: Layers
) -> tuple[Verdict, nn.Module]:
    verdict, slim = Verdict(), copy.deepcopy(model).train()

    def go() -> None:
        start = time.perf_counter()
        prune(slim, copy.deepcopy(inputs), ratio, outputs, verdict.steps)
        verdict.seconds = time.perf_counter() - start
        follow(verdict, model, slim, inputs, layers)

    return guarded(verdict, go), slim


def slower(entry: Entry, outputs: Sequence[str], count: int) -> float:
    """Time of our trace, selection and slim copy over that of its graph and pruning, on the small example.

    Both take half of every layer by magnitude. The copy that it needs, since it prunes in place, is made outside.
    """
    model, inputs = entry.build().eval(), entry.example()
    stock = [copy.deepcopy(model) for _ in range(count + 1)]
    pairs = measure_pairs(
        lambda: analysis.ours(model, inputs), lambda: prune(stock.pop(), inputs, analysis.SPARSITY, outputs, []), count
    )
    return pairs.work_ratio.median
