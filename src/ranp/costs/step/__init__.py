"""One training step, or one inference, without data: operator by operator, and the life of every piece of memory."""

from __future__ import annotations

from ranp.costs.step.records import Call, Rehearsal, Sized, Storage, TrainingStep
from ranp.costs.step.running import rehearse
from ranp.costs.step.settings import rerun

__all__ = ["Call", "Rehearsal", "Sized", "Storage", "TrainingStep", "rehearse", "rerun"]
