"""Step 4 of 6: Scores + Costs -> Scores: balance the layers, then favour the cheap ones.

Both functions multiply the scores of a layer by one factor, in float64, so the order of the channels inside a layer
never changes. Layers that ``Scores.excluded`` names take no part and keep their zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from ranp import arguments
from ranp.errors import DataError, PlanMismatchError
from ranp.scoring.scores import Scores


def balance(scores: Scores) -> Scores:
    """Gives every layer the same mean score, the largest mean of any layer (paper, weighting equation).

    ``s_l *= max_k(mean_k) / mean_l``, so that no layer is emptied only because its gradients are small.

    >>> raw = Scores({"a": torch.tensor([1.0, 3.0]), "b": torch.tensor([10.0, 30.0])})
    >>> balance(raw)["a"].tolist()
    [10.0, 30.0]

    Raises:
        DataError: The scores are balanced or reweighted already, or a layer that is not excluded has only zeros.
    """
    if _checked(scores).stage != "raw":
        raise DataError(
            f"the scores are {scores.stage} already; only raw ones can be balanced. Balance once, and before reweight."
        )
    means = {name: float(scores[name].mean()) for name in _included(scores)}
    for name, mean in means.items():
        if mean <= 0:
            raise DataError(
                f"all scores of layer {name!r} are zero, so its mean cannot be raised to that of the others. "
                "Name the layer in Scores.excluded, as ranp.score does."
            )
    largest = max(means.values())
    return _scaled(scores, {name: largest / mean for name, mean in means.items()}, "balanced")


def reweight(scores: Scores, costs: Mapping[str, float], strength: float) -> Scores:
    """Raises the scores of cheap layers more than those of costly ones (paper, reweighting equation).

    ``s_l *= 1 + strength * softmax_l(-cost_l / max cost)``. No layer's factor exceeds another's by more than e.

    Deviation: the paper's equation has ``softmax(-cost)`` without the division. Taken literally, with costs of 1e9,
    that is one-hot: the cheapest layer alone is favoured. The authors' experiments divide.

    >>> raw = Scores({"a": torch.tensor([1.0]), "b": torch.tensor([1.0])})
    >>> [round(float(s), 3) for s in reweight(raw, {"a": 1.0, "b": 0.0}, 1.0).values()]
    [1.269, 1.731]

    Args:
        scores: Raw or balanced scores.
        costs: Layer name -> cost; a ``Costs``, or any mapping. Other layers may be in it.
        strength: The paper's lambda, at least 0; 0 changes no score.

    Raises:
        DataError: Strength or a cost is negative, NaN or infinite, or the scores are reweighted already.
        PlanMismatchError: ``costs`` lacks a layer of the scores.
    """
    strength = arguments.number("strength", strength, "a finite number, at least 0; 11 is usual", error=DataError)
    arguments.kind(
        "costs", costs, Mapping, "a mapping from layer name to cost, such as ranp.measure returns", DataError
    )
    if _checked(scores).stage == "reweighted":
        raise DataError("the scores are reweighted already. Reweight the balanced ones, once.")
    names = _included(scores)
    for name in names:
        if name not in costs:
            raise PlanMismatchError(
                f"layer {name!r} has scores but no cost. Measure the costs on a trace of the model that was scored."
            )
        if math.isnan(arguments.amount(costs[name])):
            raise DataError(
                f"the cost of layer {name!r} is {arguments.shown(costs[name])}; it must be a finite number, at least 0."
            )
    taus = torch.tensor([float(costs[name]) for name in names], dtype=torch.float64)
    largest = taus.max()
    shares = torch.softmax(-taus / largest if largest > 0 else taus, 0)
    return _scaled(scores, {n: 1 + strength * float(s) for n, s in zip(names, shares, strict=True)}, "reweighted")


def _checked(scores: Scores) -> Scores:
    return arguments.kind("scores", scores, Scores, "what ranp.score returns", DataError)


def _included(scores: Scores) -> tuple[str, ...]:
    if not scores.included:
        raise DataError("every layer of these scores is excluded: there is nothing to weigh. Score with other batches.")
    return scores.included


def _scaled(scores: Scores, factors: Mapping[str, float], stage: str) -> Scores:
    """The scores with each layer multiplied by its factor, those of single weights too; other layers as they are."""
    return replace(
        scores,
        channels={name: values * factors.get(name, 1.0) for name, values in scores.items()},
        weights={name: values * factors.get(name, 1.0) for name, values in scores.weights.items()},
        stage=stage,
    )
