"""One training step, or one inference, without data: operator by operator, and the life of every piece of memory."""

from __future__ import annotations

from ranp.rehearsal.records import Call, Rehearsal, Sized, Storage, TrainingStep
from ranp.rehearsal.running import rehearse
from ranp.rehearsal.settings import rerun

__all__ = ["Call", "Rehearsal", "Sized", "Storage", "TrainingStep", "rehearse", "rerun"]
