"""Meters: what a candidate network needs of a quantity, without making it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ranp.choosing.budgets.probing import probes
from ranp.choosing.selection import Selection
from ranp.costs import timing
from ranp.costs.quantities import INFERENCE, TRAINING, Quantity
from ranp.costs.step import StepSetup, StepTrace
from ranp.costs.widths import StepAtWidths
from ranp.errors import UnsupportedError
from ranp.progress import Progress
from ranp.running import ranks
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags
from ranp.tracing.trace import Trace

logger = logging.getLogger(__name__)

Figure = Callable[[Flags], float]


class CheckedMeter:
    """What candidates need of a quantity, and what copies of them that are really cut need.

    Args:
        quantity: Which one.
        quick: The figure of a candidate, without making it.
        checked: The same from a copy that is cut.
    """

    def __init__(self, quantity: Quantity, quick: Figure, checked: Figure) -> None:
        self.quantity, self.checked, self._quick = quantity, checked, quick

    def __call__(self, stays: Flags) -> float:
        """The figure of a candidate."""
        return self._quick(stays)

    def distrust(self) -> None:
        """From now on every candidate is cut."""
        self._quick = self.checked

    def close(self) -> None:
        """Gives back what it holds."""


def counting_meter(quantity: Quantity, setup: StepSetup, trace: Trace, convention: str = "true") -> CheckedMeter:
    """For a quantity that follows exactly from the trace; one that no network can tell is not checked."""
    of_choice, of_network = quantity.of_choice, quantity.of_network
    if of_choice is None:
        raise UnsupportedError(f"{quantity.name} cannot be told of a choice of channels, and so has no budget.")

    def quick(stays: Flags) -> float:
        return of_choice(Choice(trace, stays), convention)

    def checked(stays: Flags) -> float:
        if of_network is None:
            return quick(stays)
        choice = Choice(trace, stays)
        try:
            return of_network(choice.cut(setup.model), setup.example, convention)
        except UnsupportedError:  # its code asks for the values of tensors
            return of_network(choice.cut(setup.model, meta=False), setup.example, convention)

    return CheckedMeter(quantity, quick, checked)


class TimeMeter(CheckedMeter):
    """Seconds of real steps, or inferences, of candidates that are really cut, each in turn with another network.

    Candidates run beside the first of them; what is handed out runs beside the full network, with more care. Of several
    ranks, all go by what the first one measures, so that they come to the same plan.

    Args:
        quantity: Which one.
        setup: What runs.
        trace: Of the full network.
        progress: Told how many networks were measured.
    """

    def __init__(self, quantity: Quantity, setup: StepSetup, trace: Trace, progress: Progress | None = None) -> None:
        super().__init__(quantity, self._beside_first, self._beside_full)
        self._setup, self._trace, self._progress = setup, trace, progress
        self._full = self._stepper(None)
        self._seconds = ranks.agreed(timing.seconds(self._full, timing.SURE))
        self._first: tuple[timing.Stepper, float] | None = None
        self._measured = 0

    def _beside_first(self, stays: Flags) -> float:
        if stays.all():
            return self._seconds
        other, base = self._first or (self._full, self._seconds)
        stepper = self._stepper(stays)
        found = base * ranks.agreed(timing.ratio(stepper, other, timing.QUICK))
        if self._first is None:
            self._first = (stepper, found)
        else:
            stepper.close()
        return found

    def _beside_full(self, stays: Flags) -> float:
        with self._stepper(stays) as stepper:
            return self._seconds * ranks.agreed(timing.ratio(stepper, self._full, timing.SURE))

    def _stepper(self, stays: Flags | None) -> timing.Stepper:
        model = self._setup.model
        network = model if stays is None else Choice(self._trace, stays).cut(model, meta=False)
        if self._progress is not None and stays is not None:
            self._measured += 1
            self._progress(self._measured, None)
        return timing.Stepper(self._setup, network, inference=self.quantity.part == INFERENCE)

    def close(self) -> None:
        """Gives the networks back."""
        self._full.close()
        if self._first is not None:
            self._first[0].close()


class CandidateSteps:
    """Steps of one network at any choice of channels: traced at a few widths, then known at all of them.

    Where sizes at a few widths do not tell those at all, the step of every candidate is traced.

    Args:
        setup: What is traced.
        selection: The classes of channels.
        part: Which part of a training step.
    """

    def __init__(self, setup: StepSetup, selection: Selection, part: str = TRAINING) -> None:
        self._setup, self._trace, self._part = setup, selection.coupling.trace, part
        self._latest: dict[bool, tuple[bytes, StepTrace]] = {}
        runs = [(stays, self.real(stays)) for stays in probes(selection)]
        self.full = runs[0][1]
        """The step of the full network."""
        self._known: StepAtWidths | None = None
        try:
            self._known = StepAtWidths(selection.coupling.layout, runs)
        except UnsupportedError as error:
            logger.info("the step of every candidate is traced: %s", error)

    def at(self, stays: Flags) -> StepTrace:
        """The step of the network that keeps these classes."""
        known = self._known
        return self.real(stays) if known is None else self._once(False, stays, known.at)

    def real(self, stays: Flags) -> StepTrace:
        """The same, traced."""

        def traced(stays: Flags) -> StepTrace:
            return self._setup.trace(Choice(self._trace, stays).cut(self._setup.model), part=self._part)

        return self._once(True, stays, traced)

    def _once(self, is_real: bool, stays: Flags, step: Callable[[Flags], StepTrace]) -> StepTrace:
        """Several meters ask for the step of the same candidate."""
        key = stays.tobytes()
        if is_real not in self._latest or self._latest[is_real][0] != key:
            self._latest[is_real] = (key, step(stays))
        return self._latest[is_real][1]


def meters_for(
    quantities: Iterable[Quantity],
    setup: StepSetup,
    selection: Selection,
    *,
    convention: str = "true",
    progress: Progress | None = None,
) -> list[CheckedMeter]:
    """Meters for these quantities, cheap ones first; the time of the full network is measured now."""
    steps: dict[str, CandidateSteps] = {}
    meters: list[CheckedMeter] = []
    for one in sorted(quantities, key=lambda one: (one.is_measured, one.of_step is not None, one.part)):
        if one.is_measured:
            meters.append(TimeMeter(one, setup, selection.coupling.trace, progress))
            continue
        counting = None if one.needs_step else counting_meter(one, setup, selection.coupling.trace, convention)
        if counting is not None and (one.of_step is None or convention != "true"):
            meters.append(counting)
            continue
        try:
            found = steps[one.part] = steps.get(one.part) or CandidateSteps(setup, selection, one.part)
        except UnsupportedError as error:
            if counting is None:
                raise
            logger.info("every candidate is cut and run to see what it keeps: %s", error)
            counting.distrust()
            meters.append(counting)
            continue
        meters.append(_step_meter(one, found, progress, counting))
    return meters


def _step_meter(
    quantity: Quantity, steps: CandidateSteps, progress: Progress | None, counting: CheckedMeter | None
) -> CheckedMeter:
    """Of a quantity of a step; what a profile tells too is checked by that."""
    if quantity.of_step is None:
        raise UnsupportedError(f"{quantity.name} is not known of a step.")
    figure = quantity.of_step(steps.full, progress)
    checked = (lambda stays: figure(steps.real(stays))) if counting is None else counting.checked
    return CheckedMeter(quantity, lambda stays: figure(steps.at(stays)), checked)
