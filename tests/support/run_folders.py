"""Small run folders that tests of the page read: pruned for real, trained in words only where no weights are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import ranp
from ranp.files import atomic
from ranp.files.checkpoints import Mark
from ranp.files.journal import Journal
from ranp.paper import models
from ranp.paper.training.network import whole
from ranp.reporting.folder import write_run

MODEL, SIZE = "unet3d-shapenet", "1x1x8x8x8"
OPTIONS = {"widths": [8, 16], "classes": 3}


def network() -> torch.nn.Module:
    """The full network of every run here."""
    return models.build(MODEL, widths=(8, 16), classes=3)


@lru_cache
def pruned(
    method: str = "ranp-f", sparsity: float | None = 0.15, seed: int = 0, budget: str | None = None
) -> ranp.Pruned:
    """The network, pruned on two random batches; nobody changes it."""
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(1, 1, 8, 8, 8, generator=generator), torch.randint(3, (1, 8, 8, 8), generator=generator))
        for _ in range(2)
    ]
    loss = torch.nn.functional.cross_entropy
    return ranp.prune(network(), batches, loss, sparsity=sparsity, budget=budget, method=method, seed=seed)


def recipe(**more: Any) -> dict[str, Any]:
    """What ``recipe.json`` says of a run."""
    return {"model": MODEL, "options": OPTIONS, "inputs": [SIZE], "task": "shapenet", "recipe": {"seed": 0}, **more}


def write_pruned(folder: Path, method: str = "ranp-f", sparsity: float = 0.15, **more: Any) -> ranp.Pruned:
    """A run folder of a network that was pruned and not trained."""
    made = pruned(method, sparsity)
    write_run(folder, made, recipe(**more))
    return made


def write_within(folder: Path, budget: str) -> ranp.Pruned:
    """A run folder of a network that was pruned to a budget."""
    made = pruned("ranp-f", None, 0, budget)
    write_run(folder, made, recipe())
    return made


def write_full(folder: Path, **more: Any) -> None:
    """A run folder of a full network."""
    folder.mkdir(parents=True)
    whole(network()).save(folder / "plan.json")
    atomic.write_json(folder / "recipe.json", recipe(**more), kind="ranp-recipe", version=2)


def write_journal(folder: Path, losses: Sequence[float], figures: Sequence[Mapping[str, float] | None]) -> None:
    """A journal of two steps in each epoch."""
    lines = []
    for epoch, (loss, valid) in enumerate(zip(losses, figures, strict=True), 1):
        for step in (2 * epoch - 1, 2 * epoch):
            lines.append({"kind": "step", "epoch": epoch, "step": step, "loss": loss, "seconds": float(step)})
        lines.append({"kind": "epoch", "epoch": epoch, "step": 2 * epoch, "loss": loss, "seconds": 2.0 * epoch})
        if valid is not None:
            lines[-1]["valid"] = dict(valid)
    journal = Journal(folder, Mark(), 0, tensorboard=False)
    for line in lines:
        journal.write(line)
    journal.close()


def write_table(path: Path, **more: Any) -> None:
    """A table of a reproduction."""
    value = {
        "name": path.stem,
        "title": "Main results",
        "caption": "What was measured.",
        "columns": [{"name": "method", "left": True}, {"name": "GFLOPs", "left": False}],
        "groups": [{"title": "ShapeNet, 3D-UNet", "rows": [["RANP-f", "78.24"], ["Full", "237.85"]]}],
        "notes": ["One seed."],
        "figures": {},
        "command": "ranp reproduce main --out runs/main",
    }
    atomic.write_json(path, {**value, **more}, kind="ranp-table", version=2)
