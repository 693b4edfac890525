"""Plans whose files were edited in one place: what is accepted is right, by a judge that knows nothing of classes."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.choosing.plan import Plan
from ranp.errors import StorageError
from ranp.paper.models.unet3d import UNet3d
from tests.support.oracles import random_plan, randomise, slim_error
from tests.support.topologies import TOPOLOGIES

NETWORKS = (
    "conv3d_chain",
    "residual_chain_with_norms",
    "concatenation_of_additions",
    "depthwise_multiplier",
    "flatten_to_linear",
    "grouped",
    "grouped_transposed",
    "group_norm_fewer_groups",
    "unet_transposed",
    "channel_shuffle",
    "unet3d",
)
PER_KIND = 4
"""Edits of each kind that are tried in each network."""


@functools.cache
def prepared(name: str) -> tuple[nn.Module, Plan, Any]:
    """A network without equal values anywhere, a plan that removes about half of it, and its inputs."""
    torch.manual_seed(0)
    if name == "unet3d":
        model, inputs = randomise(UNet3d(1, 3, widths=(4, 8))), torch.randn(1, 1, 4, 4, 4)
    else:
        model, inputs = randomise(TOPOLOGIES[name].build()), TOPOLOGIES[name].inputs()
    plan = random_plan(ranp.trace(model, inputs), np.random.default_rng(3), 0.4, scope="layer")
    assert plan.cuts
    return model, plan, inputs


def written(indices: set[int]) -> str:
    return ", ".join(map(str, sorted(indices)))


def edits(plan: Plan, rng: np.random.Generator) -> list[tuple[str, Any]]:
    """Single edits: of one cut to as many other indices or another count, of one layer, and two cuts exchanged."""
    entries = [(tensor, dim) for tensor, by_dim in plan.cuts.items() for dim in by_dim]
    found: list[tuple[str, Any]] = []

    def cut_to(tensor: str, dim: int, keep: set[int]) -> Any:
        return lambda value: value["cuts"][tensor][str(dim)].update(keep=written(keep))

    for _ in range(PER_KIND):
        tensor, dim = entries[rng.integers(len(entries))]
        cut = plan.cuts[tensor][dim]
        keep, removed = set(cut.keep), set(range(cut.size)) - set(cut.keep)
        gone, taken = int(rng.choice(sorted(keep))), int(rng.choice(sorted(removed)))
        found.append((f"{tensor}[{dim}] keeps {taken} for {gone}", cut_to(tensor, dim, keep - {gone} | {taken})))
        found.append((f"{tensor}[{dim}] keeps {taken} too", cut_to(tensor, dim, keep | {taken})))
        if len(keep) > 1:
            found.append((f"{tensor}[{dim}] loses {gone}", cut_to(tensor, dim, keep - {gone})))
        other = entries[rng.integers(len(entries))]
        found.append((f"{tensor}[{dim}] and {other} exchanged", functools.partial(exchange, (tensor, dim), other)))
        found.append((f"{tensor}[{dim}] deleted", lambda value, at=(tensor, dim): value["cuts"][at[0]].pop(str(at[1]))))
        layer = sorted(plan.kept)[rng.integers(len(plan.kept))]
        kept = set(plan.kept[layer])
        some = kept - {int(rng.choice(sorted(kept)))} | {int(rng.integers(plan.channels[layer]))}
        change = functools.partial(lambda layer, some, value: value["layers"][layer].update(kept=written(some)))
        found.append((f"layer {layer} keeps {sorted(some)}", functools.partial(change, layer, some)))
    return found


def exchange(one: tuple[str, int], two: tuple[str, int], value: dict[str, Any]) -> None:
    """Gives each of two cuts what the other keeps."""
    first, second = (value["cuts"][tensor][str(dim)] for tensor, dim in (one, two))
    first["keep"], second["keep"] = second["keep"], first["keep"]


@pytest.mark.parametrize("name", NETWORKS)
def test_an_edit_in_one_place_is_refused_or_right(name: str, tmp_path: Path) -> None:
    model, plan, inputs = prepared(name)
    assert slim_error(model, plan, inputs) < 1e-9
    assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()
    path, wrong, refused = tmp_path / "plan.json", [], 0
    rng = np.random.default_rng(sum(map(ord, name)))
    for what, edit in edits(plan, rng):
        plan.save(path)
        value = json.loads(path.read_text(encoding="utf-8"))
        before = json.dumps(value)
        edit(value)
        path.write_text(json.dumps(value), encoding="utf-8")
        try:
            found = Plan.load(path)
        except StorageError:
            refused += json.dumps(value) != before
            continue
        if (found.kept, found.cuts) != (plan.kept, plan.cuts):
            try:
                error = slim_error(model, found, inputs)
            except (RuntimeError, ranp.errors.RanpError):
                error = 1.0  # a plan that is accepted must apply
            if error > 1e-9:
                wrong.append(what)
    assert not wrong
    assert refused > 10, "the edits hardly change anything"


def test_there_are_over_a_hundred_edits() -> None:
    assert sum(len(edits(prepared(name)[1], np.random.default_rng(0))) for name in NETWORKS) > 100
