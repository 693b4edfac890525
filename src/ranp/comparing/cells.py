"""Cells of a comparison: one arm at one budget, one seed, one learning rate; each is run once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ranp.choosing.plan import Plan
from ranp.comparing.arms import Arm
from ranp.comparing.subject import Subject, Training
from ranp.costs.measuring import profile
from ranp.costs.memory import training_memory
from ranp.costs.step import TrainingStep
from ranp.errors import StorageError, UnsupportedError
from ranp.files import atomic
from ranp.files.claims import claimed
from ranp.progress import Labelled, silent
from ranp.pruning import prune
from ranp.reporting.folder import versions
from ranp.scoring.passes import first_batch
from ranp.slimming.pairing import share_weights
from ranp.slimming.slim import apply_plan

DECISION, OUTCOME, VERSION = "ranp-decision", "ranp-outcome", 1


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run.

    Attributes:
        arm: How widths are chosen.
        budget: What the network may cost; empty for the full one.
        seed: Of everything.
        lr: The learning rate.
    """

    arm: Arm
    budget: str
    seed: int
    lr: float

    @property
    def decision(self) -> str:
        """Names what is decided before training: it is the same at every learning rate."""
        text = json.dumps([self.arm.to_dict(), self.budget, self.seed], sort_keys=True)
        return "-".join([_plain(self.arm.name), _plain(self.budget) or "full", str(self.seed), _digest(text)])

    @property
    def id(self) -> str:
        """Names its file."""
        return f"{self.decision}-{_plain(repr(self.lr))}"


@dataclass(frozen=True, slots=True)
class Decision:
    """A slim network before training.

    Attributes:
        plan: What was kept; None for the full network.
        costs: FLOPs, parameters, bytes of activations and of a training step of the network.
        full: The same of the full network.
        used: The share of each budget that is used.
    """

    plan: Plan | None
    costs: Mapping[str, float]
    full: Mapping[str, float]
    used: Mapping[str, float]

    @property
    def widths(self) -> dict[str, int]:
        """Channels by layer; empty for the full network."""
        return {} if self.plan is None else self.plan.widths

    @property
    def narrowest(self) -> int | None:
        """Channels of the narrowest layer that lost some; None where none did."""
        channels = {} if self.plan is None else self.plan.channels
        return min((width for name, width in self.widths.items() if width < channels[name]), default=None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished cell.

    Attributes:
        cell: What was run.
        figures: What the training returned; not a number where it diverged.
        seconds: How long the training took.
        decision: The network.
    """

    cell: Cell
    figures: Mapping[str, float]
    seconds: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class Place:
    """Where a comparison lies.

    Attributes:
        folder: Of everything.
        init: ``"paired"``, or an initialisation of ``ranp.prune``.
    """

    folder: Path
    init: str = "paired"

    def outcome(self, cell: Cell) -> Path:
        """The file of a finished cell."""
        return self.folder / "cells" / f"{cell.id}.json"


def run_cell(cell: Cell, progress: Labelled = silent, *, subject: Subject, place: Place) -> Outcome:
    """Runs a cell, or reads what came out of it.

    Raises:
        RanpError: It cannot be run; the message says why.
    """
    path = place.outcome(cell)
    with claimed(path.with_suffix(".lock"), wait=True):
        if path.is_file():
            return read(cell, place)
        full = subject.full(cell.seed)
        decision = decide(cell, subject, place, full)
        network = full
        if decision.plan is not None:
            copies = place.init == "paired"
            network = apply_plan(full, decision.plan, init="copy" if copies else place.init, seed=cell.seed)
            if copies:
                share_weights(network, full)
        folder = place.folder / "training" / cell.id
        folder.mkdir(parents=True, exist_ok=True)
        label = f"{cell.arm.name} {cell.budget} seed {cell.seed} lr {cell.lr:g}"
        training = Training(cell.seed, cell.lr, folder, lambda done, total: progress(label, done, total, ""))
        begun = time.perf_counter()
        figures = subject.trained(network, training)
        outcome = Outcome(cell, figures, time.perf_counter() - begun, decision)
        value = {
            "figures": {name: figure if math.isfinite(figure) else None for name, figure in figures.items()},
            "seconds": outcome.seconds,
            "cell": {**asdict(cell), "arm": cell.arm.to_dict()},
            "versions": versions(),
        }
        atomic.write_json(path, value, kind=OUTCOME, version=VERSION)
    return outcome


def read(cell: Cell, place: Place) -> Outcome:
    """What came out of a finished cell.

    Raises:
        StorageError: A file is damaged, or was changed since it was written.
    """
    value = _read(place.outcome(cell), OUTCOME)
    figures = {name: math.nan if figure is None else float(figure) for name, figure in value["figures"].items()}
    return Outcome(cell, figures, float(value["seconds"]), _decided(place, cell))


def decide(cell: Cell, subject: Subject, place: Place, full: nn.Module | None = None) -> Decision:
    """The slim network of a cell, before training: cells that differ in the learning rate alone share it."""
    path = _decision_file(place, cell)
    with claimed(path.with_suffix(".lock"), wait=True):
        if path.is_file():
            return _decided(place, cell)
        full = subject.full(cell.seed) if full is None else full
        batches = subject.scored_on(cell.seed)
        first, batches = first_batch(batches, needed=True)
        example = first[0] if subject.example is None else subject.example
        step = subject.step or TrainingStep()
        plan, slim, used = None, full, {}
        if cell.arm.prunes:
            options = cell.arm.pruning(cell.budget, cell.seed)
            given = {name: getattr(options, name) for name in options.__dataclass_fields__} | {"step": subject.step}
            pruned = prune(full, batches, subject.loss, example=example, **given)
            plan, slim = pruned.plan, pruned.model
            used = {entry["budget"]: entry["after"] / entry["limit"] for entry in plan.settings["budget"]}
        found = Decision(plan, _costs(slim, example, step), _costs(full, example, step), used)
        value = {**asdict(found), "plan": None if plan is None else plan.to_json()}
        atomic.write_json(path, value, kind=DECISION, version=VERSION)
    return found


def _decision_file(place: Place, cell: Cell) -> Path:
    return place.folder / "plans" / f"{cell.decision}.json"


def _decided(place: Place, cell: Cell) -> Decision:
    path = _decision_file(place, cell)
    value = _read(path, DECISION)
    plan = value.pop("plan")
    return Decision(plan=None if plan is None else Plan.from_json(plan, source=str(path)), **value)


def _read(path: Path, kind: str) -> dict[str, Any]:
    try:
        return atomic.read_json(path, kind=kind, version=VERSION)
    except StorageError as error:
        raise StorageError(f"{error} Remove it to run the cell again.") from error


def _costs(network: nn.Module, example: Any, step: TrainingStep) -> dict[str, float]:
    found = profile(network, example)
    costs = {"flops": float(found.flops), "params": float(found.params), "memory": float(found.memory_bytes)}
    with suppress(UnsupportedError):  # the network asks for values, and cannot be run without data
        costs["train_memory"] = float(training_memory(network, example, step=step).peak)
    return costs


def _plain(text: str) -> str:
    """Text that every file system takes for a name."""
    return re.sub(r"[^\w.+-]+", "_", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
