"""Meters: what a candidate network needs of a quantity, without making it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ranp.choosing.budgets.probing import probes
from ranp.choosing.selection import Selection
from ranp.costs.quantities import Progress, Quantity
from ranp.costs.step import StepSetup, StepTrace
from ranp.costs.widths import StepAtWidths
from ranp.errors import UnsupportedError
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags
from ranp.tracing.trace import Trace

logger = logging.getLogger(__name__)


class CountingMeter:
    """A quantity that follows exactly from the trace.

    Args:
        quantity: Which one.
        setup: The full network and its inputs.
        trace: Of the full network.
        convention: How it is counted.
    """

    def __init__(self, quantity: Quantity, setup: StepSetup, trace: Trace, convention: str = "paper") -> None:
        self.quantity = quantity
        self._setup, self._trace, self._convention = setup, trace, convention
        self._is_trusted = True

    def __call__(self, stays: Flags) -> float:
        """The figure of a candidate."""
        choice = Choice(self._trace, stays)
        if self.quantity.of_choice is None or not self._is_trusted:
            return self.checked(stays)
        return self.quantity.of_choice(choice, self._convention)

    def checked(self, stays: Flags) -> float:
        """The same from a copy that is cut, if the quantity can be told from one."""
        choice, of_network = Choice(self._trace, stays), self.quantity.of_network
        if of_network is None:
            return self.quantity.of_choice(choice, self._convention) if self.quantity.of_choice else 0.0
        try:
            return of_network(choice.cut(self._setup.model), self._setup.example, self._convention)
        except UnsupportedError:  # its code asks for the values of tensors
            return of_network(choice.cut(self._setup.model, meta=False), self._setup.example, self._convention)

    def distrust(self) -> None:
        """From now on every candidate is cut."""
        self._is_trusted = False


class StepMeter:
    """A quantity that follows from the step of a candidate: its peak memory, its time.

    Args:
        quantity: Which one.
        steps: Of the candidates.
        progress: Told ``(done, all)`` while times are measured.
    """

    def __init__(self, quantity: Quantity, steps: CandidateSteps, progress: Progress | None = None) -> None:
        if quantity.of_step is None:
            raise UnsupportedError(f"{quantity.name} is not about a step, and so has no budget.")
        self.quantity = quantity
        self._steps, self._figure = steps, quantity.of_step(steps.full, progress)

    def __call__(self, stays: Flags) -> float:
        """The figure of a candidate."""
        return self._figure(self._steps.at(stays))

    def checked(self, stays: Flags) -> float:
        """The same from a copy that is cut, and its step traced."""
        return self._figure(self._steps.real(stays))

    def distrust(self) -> None:
        """From now on the step of every candidate is traced."""
        self._steps.distrust()


class CandidateSteps:
    """Steps of one network at any choice of channels: traced at a few widths, then known at all of them.

    Where sizes at a few widths do not tell those at all, the step of every candidate is traced.

    Args:
        setup: What is traced.
        selection: The classes of channels.
        inference: One inference instead of a training step.
    """

    def __init__(self, setup: StepSetup, selection: Selection, *, inference: bool = False) -> None:
        self._setup, self._trace, self._inference = setup, selection.coupling.trace, inference
        self._latest: tuple[bytes, StepTrace] | None = None
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
        key = stays.tobytes()
        if self._latest is None or self._latest[0] != key:
            self._latest = (key, self.real(stays) if self._known is None else self._known.at(stays))
        return self._latest[1]

    def real(self, stays: Flags) -> StepTrace:
        """The same, traced."""
        return self._setup.trace(Choice(self._trace, stays).cut(self._setup.model), inference=self._inference)

    def distrust(self) -> None:
        """From now on the step of every candidate is traced."""
        self._known = self._latest = None


CheckedMeter = CountingMeter | StepMeter


def meters_for(
    quantities: Iterable[Quantity], setup: StepSetup, selection: Selection, *, progress: Progress | None = None
) -> list[CheckedMeter]:
    """Meters for these quantities, cheap ones first; what times are missing for them is measured now."""
    wanted = sorted(quantities, key=lambda one: (one.of_step is not None, one.is_inference, not one.rises))
    steps: dict[bool, CandidateSteps] = {}
    meters: list[CheckedMeter] = []
    for one in wanted:
        if one.of_step is None:
            meters.append(CountingMeter(one, setup, selection.coupling.trace))
            continue
        if one.is_inference not in steps:
            steps[one.is_inference] = CandidateSteps(setup, selection, inference=one.is_inference)
        meters.append(StepMeter(one, steps[one.is_inference], progress))
    return meters
