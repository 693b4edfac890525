"""How much memory a training step needs at its peak: predicted without running it, or measured."""

from __future__ import annotations

from ranp.costs.memory.measuring import measured_peak
from ranp.costs.memory.peak import Footprint, kept_by_module, kept_bytes, peak, training_memory

__all__ = ["Footprint", "kept_by_module", "kept_bytes", "measured_peak", "peak", "training_memory"]
