"""Widths fitted to trainings: what another channel is worth in each part of a network, by what random widths reached.

    python -m benchmarks.evidence.fitted runs/shapes16 shapes16

reads the random vectors of widths of a comparison, their log losses, and prints the worth of a channel in each part:
log loss = c + sum over parts of worth * mean of 1 / width. Worths are at least 0 and shrunk towards those of
``balanced``; how far is chosen by leaving out each run in turn.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

import ranp
from ranp.choosing.widths import worths
from ranp.costs.layers import memory_by_layer
from ranp.tracing.layout import Floats

SHRUNK = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""How strongly worths are drawn towards those of ``balanced``, relative to the spread of the data."""


def parts(trace: ranp.Trace) -> dict[str, str]:
    """The part of every layer: how far its resolution is halved, on the way down or, behind the coarsest, up."""
    elements = memory_by_layer(trace, "true")
    voxels = [elements[layer.name] / layer.channels for layer in trace.layers]
    coarsest = voxels.index(min(voxels))
    return {
        layer.name: f"{'down' if index <= coarsest else 'up'}-{round(np.log2(max(voxels) / count) / 3)}"
        for index, (layer, count) in enumerate(zip(trace.layers, voxels, strict=True))
    }


def by_part(trace: ranp.Trace, by_layer: Mapping[str, float]) -> dict[str, float]:
    """The mean over the layers of each part."""
    found: dict[str, list[float]] = {}
    for layer, part in parts(trace).items():
        found.setdefault(part, []).append(by_layer[layer])
    return {part: float(np.mean(values)) for part, values in found.items()}


def runs(folder: Path, trace: ranp.Trace) -> tuple[Floats, Floats]:
    """Of every random vector of widths: the mean of 1 / width in each part, and the log loss it reached."""
    thin, reached = [], []
    for path in sorted((folder / "cells").glob("widths-*.json")):
        cell = json.loads(path.read_text())
        name = path.name.rsplit("-", 1)[0]  # its plan has the name without the learning rate
        plan = ranp.Plan.from_json(json.loads((folder / "plans" / f"{name}.json").read_text())["plan"])
        thin.append(list(by_part(trace, {layer: 1 / width for layer, width in plan.widths.items()}).values()))
        reached.append(cell["figures"]["log_loss"])
    return np.asarray(thin), np.asarray(reached)


def fit(thin: Floats, reached: Floats, prior: Floats) -> Floats:
    """The worth of each part."""
    error = {}
    for strength in SHRUNK:
        others = (~np.eye(len(thin), dtype=bool)).tolist()
        left_out = [_solved(thin[own], reached[own], prior, strength) for own in others]
        expected = [at @ worth + constant for at, (worth, constant) in zip(thin, left_out, strict=True)]
        error[strength] = float(np.mean(np.square(reached - expected)))
        print(f"shrunk by {strength:g}: error left out {error[strength]:.4f}, of the mean alone {reached.var():.4f}")
    return _solved(thin, reached, prior, min(error, key=error.__getitem__))[0]


def _solved(thin: Floats, reached: Floats, prior: Floats, strength: float) -> tuple[Floats, float]:
    """Least squares with worths at least 0, drawn towards the multiple of the prior that fits best."""
    at, of = thin - thin.mean(0), reached - reached.mean()
    along = at @ prior
    multiple = max(float(along @ of / (along @ along)), 0.0) * prior
    ridge = np.sqrt(strength) * np.diag(at.std(0) * np.sqrt(len(at)))
    worth, _ = nnls(np.vstack([at, ridge]), np.concatenate([of, ridge @ multiple]))
    return worth, float(reached.mean() - thin.mean(0) @ worth)


def main(folder: str, task: str) -> None:
    module = importlib.import_module(f"benchmarks.evidence.{task}")
    trace = ranp.trace(module.model(), module.batches(0)[0][0])
    prior = by_part(trace, worths(trace))
    worth = fit(*runs(Path(folder), trace), np.asarray(list(prior.values())))
    print({part: round(float(value), 3) for part, value in zip(prior, worth, strict=True)})


if __name__ == "__main__":
    main(*sys.argv[1:])
