"""Checkpoints: everything a run needs to go on bit by bit, in files that are whole or not there.

Weights and the optimiser's tensors are safetensors; position, learning rates and the random state of every rank are
JSON in the header; a checksum covers both. The last few are kept: one that is torn or changed is passed
over for the one before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ranp.errors import StorageError
from ranp.files import sealed

logger = logging.getLogger(__name__)

_FORMAT = sealed.Format("ranp-checkpoint", 2, ("state", "random", "run"), "ranp train")
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
    def of(cls, value: Any) -> Mark:
        """The mark that a file holds.

        Raises:
            StorageError: It holds something else.
        """
        lines, seal = (value.get("lines"), value.get("seal")) if isinstance(value, dict) else (None, None)
        if type(lines) is not int or not isinstance(seal, str):
            raise StorageError(f"{value!r} does not say how far a journal was. Restore a copy of the file.")
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
        run: Which run it is of: another recipe's checkpoint is not gone on from.
        journal: How far ``metrics.jsonl`` was by then.
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
        random = {str(rank): text for rank, text in enumerate(state.random)}
        _FORMAT.write(path, tensors, {"state": about, "random": random, "run": state.run})
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
                return Mark.of(_FORMAT.header(path).object("state").get("journal"))
        return None

    def drop_after(self, steps: int) -> None:
        """Removes the checkpoints of later steps: they were passed over, and what is trained now takes their place."""
        _remove(path for path in self.files() if int(path.name.removeprefix("checkpoint-").partition(".")[0]) > steps)

    def _thin_out(self) -> None:
        """Removes the oldest checkpoints if there are too many."""
        _remove(self.files()[self.keep :])

    def _tidy(self) -> None:
        """Removes what a killed process left half written."""
        if self.folder.is_dir():
            _remove(path for path in self.folder.iterdir() if _LEFT_OVER.fullmatch(path.name))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _read(path: Path) -> State:
    header, tensors = _FORMAT.read(path)
    try:
        return _state(header.object("state"), header.object("random"), header["run"], tensors)
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
