"""How widths and costs of a network move with the sparsity, method by method: what charts and sliders show."""

from __future__ import annotations

from ranp.reporting.study.sweeping import study
from ranp.reporting.study.values import LayerStudy, Step, Study, Sweep

__all__ = ["LayerStudy", "Step", "Study", "Sweep", "study"]
