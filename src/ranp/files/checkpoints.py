"""Checkpoints: everything a run needs to go on bit by bit, in files that are whole or not there.

Weights and the optimiser's tensors are safetensors; position, learning rates and the random state of every rank are
JSON in the header; a checksum covers both. The last few are kept: one that is torn or changed is passed
over for the one before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ranp.errors import StorageError
from ranp.files import sealed

__all__ = ["Checkpoints", "Mark", "Position", "State"]

logger = logging.getLogger(__name__)

_KIND, _VERSION = "ranp-checkpoint", 2
_NEEDS = ("state", "random", "run")
_NAME = re.compile(r"checkpoint-(\d{9})\.safetensors")
_LEFT_OVER = re.compile(r"\.checkpoint-\d{9}\.safetensors\.[0-9a-f]+\.tmp")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run is.

    Attributes:
        epoch: Epochs that are over.
        step: Steps of the present epoch that are over.
        steps: Steps in all.
        seconds: Spent on training, over all starts of the run.
        loss: Sum of the losses of the present epoch's steps.
    """

    epoch: int = 0
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        """Refuses what no run has reached: positions are read from files."""
        counts = (self.epoch, self.step, self.steps)
        if any(type(count) is not int or not 0 <= count < 2**63 for count in counts) or any(
            type(value) not in (int, float) for value in (self.seconds, self.loss)
        ):
            raise StorageError(f"no run is at epoch {self.epoch!r}, step {self.step!r} of {self.steps!r} in all.")


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the journal was.

    Attributes:
        lines: How many it had.
        seal: Of the last of them, which vouches for all; empty if there was none.
    """

    lines: int = 0
    seal: str = ""

    @classmethod
    def of(cls, told: Any) -> Mark:
        """The mark that a file holds.

        Raises:
            StorageError: It holds something else.
        """
        lines, seal = (told.get(name) for name in ("lines", "seal")) if isinstance(told, dict) else (None, None)
        if type(lines) is not int or not isinstance(seal, str):
            raise StorageError(f"{told!r} does not say how far a journal was. Restore a copy of the file.")
        return cls(lines, seal)


@dataclass(frozen=True, slots=True)
class State:
    """A run at rest between two steps.

    Attributes:
        position: Where it is.
        model: Parameters and buffers by name.
        optimiser: As torch's ``state_dict`` gives it.
        scaler: Of float16 gradients; empty where there is none.
        random: ``randomness.capture`` of each rank.
        run: Tells which run it is of: another recipe's checkpoint is not gone on from.
        journal: What ``metrics.jsonl`` had told by then.
        versions: Of what it ran on.
    """

    position: Position
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Any]
    scaler: Mapping[str, Any]
    random: tuple[str, ...]
    run: str
    journal: Mark = Mark()
    versions: Mapping[str, str] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of a run folder.

    Args:
        folder: Where they lie.
        keep: How many are kept; older ones are removed when a new one is safely there.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def files(self) -> list[Path]:
        """The checkpoints there are, the newest first."""
        named = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)] if self.folder.is_dir() else []
        return sorted(named, reverse=True)

    def write(self, state: State) -> Path:
        """Writes a checkpoint, whole or not at all, and removes those that are too many.

        Raises:
            StorageError: It cannot be written; those there were are still there.
        """
        path = self.folder / f"checkpoint-{state.position.steps:09d}.safetensors"
        tensors = {f"model.{name}": tensor for name, tensor in state.model.items()}
        numbers: dict[str, dict[str, Any]] = {}
        for index, values in state.optimiser["state"].items():
            for key, value in values.items():
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{index}.{key}"] = value
                else:
                    numbers.setdefault(str(index), {})[key] = value
        about = {
            "position": asdict(state.position),
            "groups": state.optimiser["param_groups"],
            "numbers": numbers,
            "scaler": dict(state.scaler),
            "journal": asdict(state.journal),
            "versions": dict(state.versions),
        }
        entries = {
            "state": sealed.to_json("the state of training", about),
            "random": sealed.to_json("the random state", {str(rank): text for rank, text in enumerate(state.random)}),
            "run": state.run,
        }
        sealed.write(path, tensors, entries, kind=_KIND, version=_VERSION)
        self._thin_out()
        return path

    def newest(self, run: str) -> State | None:
        """The newest checkpoint that is whole; None if there is none at all.

        Raises:
            StorageError: There are some, and none is whole; or the newest is of another run.
        """
        self._tidy()
        found, broken = self.files(), list[StorageError]()
        for path in found:
            try:
                state = _read(path)
            except StorageError as error:
                broken.append(error)
                continue
            for problem in broken:
                logger.warning("checkpoint passed over: %s", problem)
            if state.run != run:
                raise StorageError(
                    f"{str(path)!r} is of a run with another network or recipe. Go on with the options that run was "
                    "started with, or name another folder."
                )
            if not broken:
                self._thin_out()  # the process that wrote it may have been killed before it did
            return state
        if found:
            raise StorageError(
                f"none of the {len(found)} checkpoints in {str(self.folder)!r} is whole, from {found[0].name!r} on. "
                "Restore one, or start again in another folder."
            )
        return None

    def journal(self) -> Mark | None:
        """How far the journal was at the newest checkpoint; its header is read, not its tensors."""
        for path in self.files():
            with suppress(StorageError):
                return Mark.of(sealed.entry(path, _header(path), "state").get("journal"))
        return None

    def drop_after(self, steps: int) -> None:
        """Removes the checkpoints of later steps: they were passed over, and what is trained now takes their place."""
        for path in self.files():
            if int(path.name.removeprefix("checkpoint-").partition(".")[0]) > steps:
                with suppress(OSError):
                    path.unlink()

    def _thin_out(self) -> None:
        """Removes the oldest checkpoints if there are too many."""
        for old in self.files()[self.keep :]:
            with suppress(OSError):
                old.unlink()

    def _tidy(self) -> None:
        """Removes what a killed process left half written."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if _LEFT_OVER.fullmatch(path.name):
                    with suppress(OSError):
                        path.unlink()


def _header(path: Path) -> dict[str, str]:
    return sealed.header(path, kind=_KIND, version=_VERSION, needs=_NEEDS, writer="ranp train")


def _read(path: Path) -> State:
    told, tensors = sealed.read(path, kind=_KIND, version=_VERSION, needs=_NEEDS, writer="ranp train")
    try:
        return _state(sealed.entry(path, told, "state"), sealed.entry(path, told, "random"), told["run"], tensors)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{str(path)!r} is not a state of training ({error}). Restore a copy.") from error


def _state(about: dict[str, Any], random: dict[str, Any], run: str, tensors: Mapping[str, Tensor]) -> State:
    model: dict[str, Tensor] = {}
    values: dict[int, dict[str, Any]] = {int(index): dict(numbers) for index, numbers in about["numbers"].items()}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part == "model":
            model[rest] = tensor
        else:
            index, _, key = rest.partition(".")
            values.setdefault(int(index), {})[key] = tensor
    return State(
        Position(**about["position"]),
        model,
        {"state": values, "param_groups": [_group(group) for group in about["groups"]]},
        about["scaler"],
        tuple(random[str(rank)] for rank in range(len(random))),
        run,
        Mark.of(about["journal"]),
        about["versions"],
    )


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the optimiser as it writes them itself: JSON knows no tuples (Adam's betas)."""
    return {name: tuple(v) if isinstance(v, list) and name != "params" else v for name, v in group.items()}
