"""Meters: what a candidate network needs, without making it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ranp.choosing.budgets.staging import Scene, Stage, cut
from ranp.choosing.selection import Selection
from ranp.costs.measuring import profile
from ranp.costs.memory import peak
from ranp.costs.prices import Prices
from ranp.costs.step import Rehearsal
from ranp.costs.time import Table
from ranp.errors import UnsupportedError
from ranp.tracing.layout import Flags

COUNTED = ("flops", "macs", "params", "memory")
"""Resources that follow from the trace alone."""


class CountingMeter:
    """FLOPs, multiply-adds, parameters and memory, exactly, from the trace.

    Attributes:
        resources: Those it is asked for.
    """

    rises = True

    def __init__(self, scene: Scene, selection: Selection, resources: Iterable[str]) -> None:
        self.resources = tuple(resources)
        self._scene, self._selection = scene, selection
        self._prices: Prices | None = Prices(selection.coupling.trace)

    def __call__(self, stays: Flags) -> Sequence[float]:
        """One figure per resource."""
        if self._prices is None:
            return self.checked(stays)
        bill = self._prices.at(stays)
        return tuple(getattr(bill, name) for name in self.resources)

    def checked(self, stays: Flags) -> Sequence[float]:
        """The same from a copy that is cut and profiled."""
        try:
            network = cut(self._selection, self._scene.model, stays)
            figures = profile(network, self._scene.example, convention="paper")
        except UnsupportedError:  # its code asks for the values of tensors
            network = cut(self._selection, self._scene.model, stays, meta=False)
            figures = profile(network, self._scene.example, convention="paper")
        params = sum(parameter.numel() for parameter in network.parameters())
        return tuple(params if name == "params" else getattr(figures, name) for name in self.resources)

    def mistrusted(self) -> None:
        """From now on every candidate is cut and profiled."""
        self._prices = None


class StepMeter:
    """What follows from the step of a network: its peak memory, its time.

    Attributes:
        resources: The one that it is about.
        rises: Whether more channels never need less.
    """

    def __init__(self, resource: str, stage: Stage, figure: Callable[[Rehearsal], float], *, rises: bool) -> None:
        self.resources, self.rises = (resource,), rises
        self._stage, self._figure = stage, figure

    def __call__(self, stays: Flags) -> Sequence[float]:
        """One figure."""
        return (self._figure(self._stage.at(stays)),)

    def checked(self, stays: Flags) -> Sequence[float]:
        """The same from a copy that is cut and rehearsed."""
        return (self._figure(self._stage.real(stays)),)

    def mistrusted(self) -> None:
        """From now on every candidate is rehearsed by itself."""
        self._stage.mistrusted()


Metering = CountingMeter | StepMeter


def meters_for(
    resources: Iterable[str],
    scene: Scene,
    selection: Selection,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> list[Metering]:
    """Meters for these resources, cheap ones first; what times are missing for them is measured now."""
    wanted = set(resources)
    counted = [name for name in COUNTED if name in wanted]
    meters: list[Metering] = [CountingMeter(scene, selection, counted)] if counted else []
    if wanted & {"train-memory", "step-time"}:
        stage = Stage(scene, selection)
        if "train-memory" in wanted:
            meters.append(StepMeter("train-memory", stage, lambda rehearsal: peak(rehearsal).peak, rises=True))
        if "step-time" in wanted:
            meters.append(_timed("step-time", stage, progress))
    if "latency" in wanted:
        meters.append(_timed("latency", Stage(scene, selection, inference=True), progress))
    return meters


def _timed(resource: str, stage: Stage, progress: Callable[[int, int], object] | None) -> StepMeter:
    table = Table.open()
    table.cover(stage.full, progress=progress)
    return StepMeter(resource, stage, table.seconds, rises=False)
