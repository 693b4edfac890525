"""Meters: what a candidate network needs of a quantity, without making it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ranp.choosing.budgets.probing import probes
from ranp.choosing.selection import Selection
from ranp.costs.quantities import TRAINING, Quantity
from ranp.costs.step import StepSetup, StepTrace
from ranp.costs.widths import StepAtWidths
from ranp.errors import UnsupportedError
from ranp.progress import Progress
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
    """Meters for these quantities, cheap ones first; what times are missing for them is measured now."""
    steps: dict[str, CandidateSteps] = {}
    meters: list[CheckedMeter] = []
    for one in sorted(quantities, key=lambda one: (one.of_step is not None, one.part, not one.rises)):
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
