"""What pruning returns: the slim network, what was decided, and what its training step needs."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from ranp.choosing.plan import Plan
from ranp.costs.memory import Footprint, peak
from ranp.costs.step import StepSetup
from ranp.costs.timing import Stepper, ratio, seconds
from ranp.costs.tuning import Tuned, tuned
from ranp.errors import UnsupportedError
from ranp.reporting.report import Report
from ranp.running.calling import unwrap
from ranp.scoring.scores import Scores
from ranp.slimming.verification import Verification
from ranp.tables import html
from ranp.tracing import Trace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What ``prune`` returns.

    Attributes:
        model: The slim network: dense, ordinary, trainable.
        plan: What was kept; save it, edit it, apply it to another size.
        scores: The scores that decided, after weighting.
        raw: The scores before it; a sweep over sparsities or methods needs no others.
        report: Before and after, layer by layer; ``print`` it.
        trace: What the run of the network showed.
        verification: What the checks of the slim network found.
        setup: The full network, the example, and what a training step is.
    """

    model: nn.Module
    plan: Plan
    scores: Scores
    report: Report
    trace: Trace
    verification: Verification
    raw: Scores
    setup: StepSetup

    def _repr_html_(self) -> str:
        return html([f"a slim {type(unwrap(self.model)).__name__}", *self.report.sections()])

    def training_memory(self) -> tuple[Footprint, Footprint]:
        """What a training step of the full and of the slim network needs at its peak, predicted.

        Raises:
            UnsupportedError: The network does not run without data.
        """
        before, after = (peak(self.setup.trace(network)) for network in (self.setup.model, self.model))
        return before, after

    def tune(self, *, compile_seconds: float = 0.0) -> Tuned:
        """The fastest way to run the slim network on this machine, measured; see ``ranp.tune``.

        Raises:
            UnsupportedError: The network does not run on the example.
        """
        return tuned(self.setup, self.model, compile_seconds=compile_seconds)

    def tuned(self) -> Pruned:
        """The same, with that way in the report; without, where the network does not run on the example."""
        try:
            found = self.tune()
        except UnsupportedError as error:
            logger.info("how the slim network runs fastest is not known: %s", error)
            return self
        return self.with_settings(tuned={**asdict(found), "ratios": dict(found.ratios)})

    def step_times(self) -> tuple[float, float]:
        """Seconds of a training step of the full and of the slim network, measured in turn on this machine.

        Raises:
            UnsupportedError: The network does not run on the example.
        """
        with Stepper(self.setup, self.setup.model) as full, Stepper(self.setup, self.model) as slim:
            before = seconds(full)
            return before, before * ratio(slim, full)

    def with_step(self, *, timed: bool = False) -> Pruned:
        """The same, with what a training step needs in the report: its peak, predicted; ``timed``, its time, measured.

        What a budget says already is not repeated; what cannot be found on this example is left out.
        """
        known = {entry["resource"] for entry in self.report.settings.get("budget", ())}

        def peaks() -> tuple[float, float]:
            before, after = self.training_memory()
            return before.peak, after.peak

        found, ways = [], {"train-memory": peaks, **({"step-time": self.step_times} if timed else {})}
        for name, way in ways.items():
            if name not in known:
                try:
                    found.append({"resource": name, **dict(zip(("before", "after"), way(), strict=True))})
                except UnsupportedError as error:
                    logger.info("%s is not known: %s", name, error)
        return self.with_settings(of_step=found, step=self.setup.to_dict()) if found else self

    def with_settings(self, **settings: Any) -> Pruned:
        """The same, with more in the settings of the report."""
        return replace(self, report=replace(self.report, settings={**self.report.settings, **settings}))
