"""Every table and figure of the paper, each a list of cells and what is made of their results, one file each."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from ranp.errors import UnsupportedError, unknown_name
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.running import Place, run_all, run_cell

__all__ = ["Experiment", "Place", "Presentation", "Results", "Wanted", "get", "names", "run_all", "run_cell"]

_EXPERIMENTS: Mapping[str, str] = {
    "criteria": "CRITERIA",
    "main": "MAIN",
    "equal-resources": "EQUAL_RESOURCES",
    "psm-parts": "PSM_PARTS",
    "initialisation": "INITIALISATION",
    "scalability": "SCALABILITY",
    "transfer": "TRANSFER",
    "single-gpu": "SINGLE_GPU",
    "importance": "IMPORTANCE",
    "retained": "RETAINED",
    "scatter": "SCATTER",
    "examples": "EXAMPLES",
    "resources": "RESOURCES",
    "accuracy": "ACCURACY",
    "fast-training": "FAST_TRAINING",
}
"""Each is the value of that name in the module of its own, in the order of the paper; imported when it is asked for."""


def names() -> tuple[str, ...]:
    """The names that ``get`` knows, in the order of the paper."""
    return tuple(_EXPERIMENTS)


def get(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        UnsupportedError: There is none.
    """
    if name not in _EXPERIMENTS:
        raise UnsupportedError(unknown_name("experiment", name, (*_EXPERIMENTS, "all")))
    module = importlib.import_module(f"ranp.paper.experiments.{name.replace('-', '_')}")
    experiment: Experiment = getattr(module, _EXPERIMENTS[name])
    return experiment
