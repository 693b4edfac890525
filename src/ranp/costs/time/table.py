"""Times of operators on this machine, kept in a file; and from them the seconds of any traced step."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from ranp.costs.step import Call, StepTrace
from ranp.costs.time.calls import Heavy, Light, placed, pointwise_amounts, pointwise_at, resized, thinned
from ranp.costs.time.covering import boxes_of, copy_of, regimes_of
from ranp.costs.time.grids import Curve, Grid
from ranp.costs.time.machine import Machine, cache_folder, this_machine
from ranp.costs.time.overhead import PHASES, measure_overhead
from ranp.costs.time.stored import Content, load, save
from ranp.costs.time.timing import Stopwatch
from ranp.errors import StorageError, UnsupportedError
from ranp.progress import Progress

logger = logging.getLogger(__name__)

Measure = Callable[[Call], float]

_SAVE_EVERY = 10.0
_DIVISORS = (4, 16)
_DRIFT = 1.3


class Table:
    """Times of operators, measured once per machine, version of torch and number of threads.

    Use ``Table.open``; ``ranp.costs.time.step_time`` does so by itself.

    Args:
        path: Its file; made when something was measured.
        machine: What it holds for.
        content: What was measured so far.
        measure: Seconds of a call, by default on this machine's clock.
    """

    def __init__(
        self, path: Path, machine: Machine, content: Content | None = None, measure: Measure | None = None
    ) -> None:
        self.path = path
        self.machine = machine
        self._content = Content() if content is None else content
        self._given = measure
        self._watch: Stopwatch | None = None
        self._saved = time.monotonic()

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str] | None = None, *, device: str = "cpu", measure: Measure | None = None
    ) -> Table:
        """The table of this machine, empty if nothing was measured yet.

        Args:
            folder: Where tables are kept, default ``$RANP_CACHE`` or ``~/.cache/ranp``.
            device: Type of the device.
            measure: Another way to time a call than running it here; nothing is then added for Python and autograd.

        A file that was damaged or changed since it was written is left out: its times are measured again.

        Raises:
            UnsupportedError: The file is from another machine.
        """
        machine = this_machine(device)
        path = (cache_folder() if folder is None else Path(folder)) / machine.file
        content = None
        if path.exists():
            try:
                content = load(path, machine)
            except StorageError as error:
                logger.warning("measured times are not used, but measured again: %s", error)
        return cls(path, machine, content, measure)

    def cover(
        self, traced: StepTrace, *, widths: Sequence[StepTrace] | None = None, progress: Progress | None = None
    ) -> None:
        """Measures what is missing to tell the time of this step trace, and of the same network at any lower widths.

        Saves as it goes, so that an interrupted run loses little.

        Args:
            traced: Of the full network.
            widths: The same network at other widths, call by call: what is equal in all of them is then taken for
                fixed and measured at this size only. Default: every width may fall.
            progress: Called with the number of measurements done and of all.

        Raises:
            UnsupportedError: The step trace is of another device, or ``widths`` are of another network.
            StorageError: The file cannot be written.
        """
        self._check_device(traced)
        tasks: dict[tuple[str, tuple[int, ...]], Callable[[], None]] = {}
        examples: dict[str, Call] = {}
        for call, box in boxes_of(traced, widths):
            place = placed(call)
            if isinstance(place, Heavy):
                examples.setdefault(place.key, call)
                grid = self._content.heavy.get(place.key)
                if grid is None:
                    grid = self._content.heavy[place.key] = Grid(regimes_of(call, place, box, self.machine.block))
                elif not grid.covers(box):
                    grid.regimes = max(grid.regimes, regimes_of(call, place, box, self.machine.block), key=len)
                grid.extend(box)
            elif isinstance(place, Light):
                for at, task in self._light(call, place):
                    tasks[place.key, at] = task
        for key, example in examples.items():
            grid = self._content.heavy[key]
            for at in grid.missing():
                tasks[key, at] = _heavy_task(grid, at, example, self._time)
        if not tasks and self._content.overhead:
            return
        self._begin()
        for done, task in enumerate(tasks.values(), 1):
            task()
            if progress is not None:
                progress(done, len(tasks))
            if time.monotonic() - self._saved > _SAVE_EVERY:
                self.save()
        self.save()

    def save(self) -> None:
        """Writes the file.

        Raises:
            StorageError: It cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the folder {str(self.path.parent)!r} for measured times: {error.strerror or error}."
                " Set RANP_CACHE to a folder that is writable."
            ) from error
        save(self.path, self.machine, self._content)
        self._saved = time.monotonic()

    def seconds(self, traced: StepTrace) -> float:
        """Seconds of the step or inference, from the table alone.

        Raises:
            UnsupportedError: Something of it was never covered.
        """
        return sum(self.by_call(traced))

    def by_call(self, traced: StepTrace) -> tuple[float, ...]:
        """Seconds of each call, with its share of what Python and autograd cost.

        Raises:
            UnsupportedError: Something of it was never covered.
        """
        self._check_device(traced)
        overhead = self._content.overhead
        if not overhead:
            raise UnsupportedError("the table of times is empty. Call its cover() with the full network's step trace.")
        inference = traced.step is None
        taken = []
        for call in traced.calls:
            phase = "inference" if inference else "forward" if call.phase == "loss" else call.phase
            taken.append(self._alone(call) + overhead[phase])
        return tuple(taken)

    def by_module(self, traced: StepTrace) -> dict[str, float]:
        """Seconds of each module that ran a call itself, forward, backward and in the optimiser together.

        Raises:
            UnsupportedError: Something of it was never covered.
        """
        sums: defaultdict[str, float] = defaultdict(float)
        for call, seconds in zip(traced.calls, self.by_call(traced), strict=True):
            sums[call.module] += seconds
        return dict(sums)

    @property
    def reference(self) -> float:
        """Seconds of a small fixed piece of work when the table was begun; 0 before that."""
        return self._content.reference

    @property
    def size(self) -> int:
        """How many times it holds."""
        grids, curves = self._content.heavy.values(), self._content.light.values()
        return sum(len(grid.points) for grid in grids) + sum(len(curve.points) for curve in curves)

    def _alone(self, call: Call) -> float:
        """Seconds of the operator by itself."""
        place = placed(call)
        if place is None:
            return 0.0
        found: float | None
        if isinstance(place, Heavy):
            grid = self._content.heavy.get(place.key)
            found = None if grid is None else grid.seconds(place.widths)
        else:
            curve = self._content.light.get(place.key)
            if curve is None or (place.is_pointwise and place.amount > curve.most):
                curve = self._content.kinds().get(place.kind)
            found = None if curve is None else curve.seconds(place.amount, self._content.floor)
        if found is None:
            shapes = ", ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in call.inputs)
            raise UnsupportedError(
                f"the table of times does not cover {call.op} of {shapes} in {call.module or 'the network'!r};"
                " call its cover() with a step trace of the full network at this size of inputs"
            )
        return found

    def _light(self, call: Call, place: Light) -> list[tuple[tuple[int, ...], Callable[[], None]]]:
        """What is to be measured for a light call."""
        curve = self._content.light.get(place.key) or Curve()
        variants: list[tuple[int, Call]] = []
        if place.is_pointwise:
            variants.extend(
                (amount, pointwise_at(call, amount)) for amount in pointwise_amounts(place.amount, curve.most)
            )
        else:
            variants.append((place.amount, call))
            if place.amount > curve.most:
                for thin in (thinned(call, divisor) for divisor in _DIVISORS):
                    other = None if thin is None else placed(thin)
                    if thin is not None and isinstance(other, Light) and other.key == place.key:
                        variants.append((other.amount, thin))
        return [
            ((amount,), self._light_task(place, amount, variant, is_optional=variant is not call))
            for amount, variant in variants
            if amount not in curve.points
        ]

    def _light_task(self, place: Light, amount: int, call: Call, *, is_optional: bool) -> Callable[[], None]:
        def task() -> None:
            try:
                seconds = self._time(call)
            except Exception as error:  # An operator may refuse numbers that stand in for the network's own.
                if is_optional and not place.is_pointwise:
                    return
                logger.info("%s cannot be run by itself (%s); taken for a copy of as much data", call.op, error)
                seconds = self._time(copy_of(call, place.amount))
            self._content.add_light(place.key, place.kind, amount, seconds)

        return task

    def _begin(self) -> None:
        """Measures what every table needs, once; tells if the machine is not what it was."""
        content = self._content
        if self._given is None and this_machine(self.machine.device) != self.machine:
            raise UnsupportedError(
                f"the table of times is for {self.machine}; this process now runs {this_machine(self.machine.device)}."
                " Open the table again after torch.set_num_threads."
            )
        if content.overhead:
            if self._given is None and content.reference:
                now = self._stopwatch().reference()
                if not 1 / _DRIFT < now / content.reference < _DRIFT:
                    logger.warning(
                        "this machine now takes %.2f times as long as when %s was begun; delete the file to measure"
                        " anew if that lasts",
                        now / content.reference,
                        self.path,
                    )
            return
        if self._given is not None:
            content.overhead = dict.fromkeys(PHASES, 0.0)
            return
        watch = self._stopwatch()
        content.reference = watch.reference()
        alone: dict[str, float] = {}

        def seconds(call: Call) -> float:
            place = placed(call)
            if place is None:
                return 0.0
            text = f"{place}"
            if text not in alone:
                alone[text] = watch(call)
            return alone[text]

        content.overhead = measure_overhead(watch, seconds, self.machine.device)
        content.floor = min(alone.values(), default=0.0)

    def _time(self, call: Call) -> float:
        return self._stopwatch()(call) if self._given is None else self._given(call)

    def _stopwatch(self) -> Stopwatch:
        if self._watch is None:
            self._watch = Stopwatch(self.machine.device)
        return self._watch

    def _check_device(self, traced: StepTrace) -> None:
        if traced.device != self.machine.device:
            raise UnsupportedError(
                f"the step trace is of a network on {traced.device!r}, the table of times is of"
                f" {self.machine.device!r}. Open the table with device={traced.device!r}."
            )


def _heavy_task(grid: Grid, at: tuple[int, ...], example: Call, measure: Measure) -> Callable[[], None]:
    def task() -> None:
        grid.points[at] = measure(resized(example, at))

    return task
