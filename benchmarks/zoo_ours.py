"""Our side of the coverage table: ``ranp.prune`` on one network, its checks, and what the analysis costs."""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import ranp
from benchmarks import zoo_judge
from benchmarks.judges import called
from benchmarks.pairs import measure_pairs
from benchmarks.zoo_verdict import Layers, Verdict, follow, guarded
from ranp.errors import InfeasibleError, UnsupportedError
from ranp.reporting.causes import by_cause, sentence, what_stays
from zoo.entry import Entry, loss

AFFORDABLE = 1.5e11
"""Forward FLOPs of an ordinary step that is still timed: about ten seconds on one core."""
CHEAP = 1e10
"""Forward FLOPs of a step that is timed more than once."""


@dataclass(slots=True)
class Ours:
    """What one network told.

    Attributes:
        verdicts: By ratio.
        channels: Of all layers.
        prunable: Those that may go.
        outputs: Layers that make the outputs.
        layers: Where each layer has its output channels.
        pins: Channels that stay beside the outputs, by cause: how many and the longest reason.
        judge: What the judge of weights says of our slim network at the first ratio; NaN if it cannot tell.
        analysis: Trace, selection and slim copy over a forward and backward pass at an ordinary size.
        trace: Seconds of the trace at that size.
        note: Why there is no such figure.
    """

    verdicts: dict[float, Verdict] = field(default_factory=dict)
    channels: int = 0
    prunable: int = 0
    outputs: tuple[str, ...] = ()
    layers: Layers = field(default_factory=dict)
    pins: dict[str, tuple[int, str]] = field(default_factory=dict)
    judge: float = math.nan
    analysis: float = math.nan
    trace: float = math.nan
    note: str = ""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Ours:
        """From the plain values of ``dataclasses.asdict``."""
        verdicts = {float(ratio): Verdict.of(one) for ratio, one in kept["verdicts"].items()}
        return cls(**{**kept, "verdicts": verdicts, "outputs": tuple(kept["outputs"])})


def examined(entry: Entry, ratios: tuple[float, ...], count: int) -> Ours:
    """Everything about one network."""
    ours = Ours()
    for ratio in ratios:
        verdict = ours.verdicts[ratio] = Verdict()

        def go(ratio: float = ratio, verdict: Verdict = verdict) -> None:
            pruned = _pruned(entry, ratio, verdict)
            _learn(ours, pruned.trace, pruned.plan)
            _check(entry, pruned, verdict)
            verdict.even = _even(entry, pruned, ratio)
            if math.isnan(ours.judge):
                ours.judge = _judged(entry, pruned.plan)

        guarded(verdict, go)
    if not ours.channels:  # the other side must know the outputs all the same
        guarded(Verdict(), lambda: _learn(ours, ranp.trace(entry.build(), entry.example())))
    if count:
        guarded(Verdict(), lambda: _time(ours, entry, count))
    return ours


def _pruned(entry: Entry, ratio: float, verdict: Verdict) -> ranp.Pruned:
    """Prunes with the default method, at the largest feasible ratio if that one is not."""
    model, start = entry.build(), time.perf_counter()

    def prune(sparsity: float) -> ranp.Pruned:
        return ranp.prune(model, entry.batches(), loss, sparsity=sparsity, exact=True)

    try:
        pruned = prune(ratio)
    except InfeasibleError as error:
        largest = largest_share(error)
        verdict.note = f"largest feasible {100 * largest:.1f} %"
        pruned = prune(largest)
    except UnsupportedError:
        verdict.steps.append("traced")
        raise
    verdict.seconds = time.perf_counter() - start
    verdict.steps += ["traced", "pruned"]
    verdict.requested = round(ratio * pruned.plan.sparsity.prunable)
    follow(verdict, model, pruned.model, entry.example(), _outputs(pruned.trace))
    verdict.removed = pruned.plan.sparsity.removed
    if not pruned.plan.sparsity.prunable:
        verdict.problem, verdict.note = "", "nothing is prunable"
    return pruned


def _even(entry: Entry, pruned: ranp.Pruned, ratio: float) -> float:
    """What is left where no method prefers some layers: what the structure of the network allows."""
    full = entry.build()
    slim = ranp.slim(full, exactly(pruned.scores, pruned.trace, ratio, scope="layer"))
    after, before = (sum(parameter.numel() for parameter in net.parameters()) for net in (slim, full))
    return after / before


def exactly(scores: ranp.Scores, trace: ranp.Trace, ratio: float, **options: Any) -> ranp.Plan:
    """The plan for just that share, or for the largest feasible one."""
    try:
        return ranp.select(scores, trace, sparsity=ratio, exact=True, **options)
    except InfeasibleError as error:
        return ranp.select(scores, trace, sparsity=largest_share(error), exact=True, **options)


def largest_share(error: InfeasibleError) -> float:
    """The share of prunable channels that the message names as feasible."""
    found = re.search(r"here is (\d\.\d+)", str(error))
    if found is None and "no channel of this network may be removed" not in str(error):
        raise error
    return float(found.group(1)) if found else 0.0


def _check(entry: Entry, pruned: ranp.Pruned, verdict: Verdict) -> None:
    """What ``prune`` found, or ``ranp.verify`` at the whole example where ``prune`` made the check smaller."""
    found = pruned.verification
    if not found.numeric or found.where:
        found = ranp.verify(entry.build(), pruned.plan, entry.example(), slim=pruned.model)
    verdict.error, verdict.checked = found.max_error, "numeric" if found.numeric else "certificate"
    if not found.ok:
        verdict.problem = f"wrong: {found.where}"


def _outputs(trace: ranp.Trace) -> dict[str, tuple[str, int]]:
    """The tensor and dimension that hold all output channels of a layer, where there is one."""
    whole = [at for at in trace.layers if at.kind != "transposed" or at.groups == 1]
    return {at.name: (at.weight, at.out_dim) for at in whole}


def _learn(ours: Ours, trace: ranp.Trace, plan: ranp.Plan | None = None) -> None:
    stays = what_stays(trace, plan.notes if plan else ())
    ours.channels, ours.prunable = trace.channels, plan.sparsity.prunable if plan else trace.prunable
    ours.outputs = tuple(dict.fromkeys(name for at in stays if at.cause == "output" for name in at.layers))
    ours.layers = _outputs(trace)
    counts = by_cause(stays)
    for one in reversed(stays):  # the one that holds most comes first, so it is the last to write
        text = sentence(one.cause, one.reason, one.op, one.where)
        ours.pins[one.cause] = (counts[one.cause], " ".join(text.split()).replace("|", "/"))


def _judged(entry: Entry, plan: ranp.Plan) -> float:
    """The judge of weights must agree with what is known to be right, or its word on others counts for nothing."""
    full = zoo_judge.tagged(entry.build())
    try:
        return zoo_judge.error(full, ranp.slim(full, plan), entry.example())
    except Exception:
        return math.inf


def analysis_of(model: nn.Module, example: Any) -> Callable[[], nn.Module]:
    """Trace, plan and slim copy; the scores are at hand."""
    layers = ranp.trace(model, example).layers
    generator = torch.Generator().manual_seed(0)
    scores = ranp.Scores({layer.name: torch.rand(layer.channels, generator=generator) + 0.01 for layer in layers})

    def analyse() -> nn.Module:
        plan = exactly(scores, ranp.trace(model, example), 0.5)
        return ranp.slim(model, plan, example=example)

    return analyse


def _time(ours: Ours, entry: Entry, count: int) -> None:
    """The analysis against one forward and backward pass, both at the size that people train with."""
    model, example = entry.build().train(), entry.example(ordinary=True)
    start = time.process_time()
    trace = ranp.trace(model, example)
    ours.trace = time.process_time() - start
    flops = sum(op.flops for op in trace.ops)
    if flops > AFFORDABLE:
        ours.note = f"{flops / 1e9:.0f} GFLOPs a pass: not timed"
        return
    trained = copy.deepcopy(model)

    def train() -> None:
        trained.zero_grad(set_to_none=True)
        loss(called(trained, example)).backward()

    cheap = flops <= CHEAP
    pairs = measure_pairs(analysis_of(model, example), train, count if cheap else 1, warmup=int(cheap))
    ours.analysis = pairs.work_ratio.median
