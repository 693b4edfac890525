"""Seconds of a training step or an inference at any channel widths, from operators timed on this machine."""

from __future__ import annotations

from ranp.costs.time.predicting import latency, step_time
from ranp.costs.time.table import Table

__all__ = ["Table", "latency", "step_time"]
