"""One training step, or one inference, without data: operator by operator, and the life of every piece of memory."""

from __future__ import annotations

from ranp.costs.step.records import Call, Sized, StepTrace, Storage, TrainingStep
from ranp.costs.step.running import trace_step
from ranp.costs.step.settings import Settings
from ranp.costs.step.setup import StepSetup, target_for

__all__ = [
    "Call",
    "Settings",
    "Sized",
    "StepSetup",
    "StepTrace",
    "Storage",
    "TrainingStep",
    "target_for",
    "trace_step",
]
