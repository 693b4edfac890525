"""Step 1 of 6: run the model once with labels on its channels; see which stand or fall together."""

from __future__ import annotations

from ranp.running.flops import OpCall
from ranp.running.recording import LeafCall
from ranp.tracing.groups import Group, Join
from ranp.tracing.trace import PINNED, Cause, Layer, Pin, Trace
from ranp.tracing.tracer import trace

__all__ = ["PINNED", "Cause", "Group", "Join", "Layer", "LeafCall", "OpCall", "Pin", "Trace", "trace"]
