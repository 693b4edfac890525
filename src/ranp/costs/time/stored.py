"""The file of a table of times: JSON that names its machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ranp.costs.time.grids import Curve, Grid, Regime
from ranp.costs.time.machine import Machine
from ranp.costs.time.overhead import PHASES
from ranp.errors import RanpError, StorageError, UnsupportedError
from ranp.files.atomic import read_json, write_json

KIND, VERSION = "ranp-times", 2


@dataclass(slots=True)
class Content:
    """What was measured.

    Attributes:
        heavy: Tables over widths, by key.
        light: Curves over amounts of data, by key.
        kind: The operator and types of each curve.
        overhead: Seconds of a call beside its operator, by phase; empty before anything was measured.
        floor: Seconds of an operator without data.
        reference: Seconds of a fixed piece of work when the table was begun.
    """

    heavy: dict[str, Grid] = field(default_factory=dict)
    light: dict[str, Curve] = field(default_factory=dict)
    kind: dict[str, str] = field(default_factory=dict)
    overhead: dict[str, float] = field(default_factory=dict)
    floor: float = 0.0
    reference: float = 0.0
    _kinds: dict[str, Curve] = field(default_factory=dict, repr=False)

    def add_light(self, key: str, kind: str, amount: int, seconds: float) -> None:
        """Adds a point to a curve."""
        self.light.setdefault(key, Curve()).add(amount, seconds)
        self.kind[key] = kind
        self._kinds.clear()

    def kinds(self) -> dict[str, Curve]:
        """The curves of all shapes of an operator taken together, the mean where several meet."""
        if not self._kinds:
            gathered: dict[str, dict[int, list[float]]] = {}
            for key, curve in self.light.items():
                for amount, seconds in curve.points.items():
                    gathered.setdefault(self.kind[key], {}).setdefault(amount, []).append(seconds)
            self._kinds = {
                kind: Curve({amount: sum(times) / len(times) for amount, times in points.items()})
                for kind, points in gathered.items()
            }
        return self._kinds


def save(path: Path, machine: Machine, content: Content) -> None:
    """Writes a table.

    Raises:
        StorageError: The file cannot be written.
    """
    heavy = {
        key: {
            "regimes": [[regime.start, regime.kernel, regime.block] for regime in grid.regimes],
            "boxes": [[list(side) for side in box] for box in grid.boxes],
            "points": {",".join(map(str, widths)): seconds for widths, seconds in grid.points.items()},
        }
        for key, grid in content.heavy.items()
    }
    light = {
        key: {"kind": content.kind[key], "points": {str(amount): seconds for amount, seconds in curve.points.items()}}
        for key, curve in content.light.items()
    }
    value = {
        "machine": asdict(machine),
        "reference": content.reference,
        "floor": content.floor,
        "overhead": content.overhead,
        "heavy": heavy,
        "light": light,
    }
    write_json(path, value, kind=KIND, version=VERSION)


def load(path: Path, machine: Machine) -> Content:
    """Reads a table.

    Raises:
        StorageError: The file is damaged, or was changed since it was written.
        UnsupportedError: It was measured elsewhere.
    """
    try:
        value = read_json(path, kind=KIND, version=VERSION)
        found = Machine(**value["machine"])
        if found == machine:
            return _content(value)
    except (RanpError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{str(path)!r} is no table of times ({error!r}). Delete it.") from error
    raise UnsupportedError(
        f"{str(path)!r} was measured on another machine ({found}); this is {machine}. Delete it, or set RANP_CACHE to"
        " another folder."
    )


def _content(value: dict[str, Any]) -> Content:
    overhead = {phase: _time(value["overhead"][phase]) for phase in PHASES}
    content = Content(overhead=overhead, floor=_time(value["floor"]), reference=_time(value["reference"]))
    for key, table in value["heavy"].items():
        content.heavy[key] = Grid(
            tuple(Regime(int(start), str(kernel), int(block)) for start, kernel, block in table["regimes"]),
            tuple(tuple((int(low), int(high)) for low, high in box) for box in table["boxes"]),
            _points(table["points"], lambda text: tuple(int(part) for part in text.split(","))),
        )
        if not content.heavy[key].regimes or content.heavy[key].regimes[0].start != 1:
            raise ValueError(f"no kernel for the least width of {key!r}")
    for key, curve in value["light"].items():
        content.light[key] = Curve(_points(curve["points"], int))
        content.kind[key] = str(curve["kind"])
    return content


def _points(given: dict[str, Any], place: Callable[[str], Any]) -> dict[Any, float]:
    return {place(text): _time(seconds) for text, seconds in given.items()}


def _time(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{value!r} is not a time")
    return seconds
