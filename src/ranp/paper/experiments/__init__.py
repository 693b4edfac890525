"""Every table and figure of the paper, each the declaration of its lines and columns, one file each."""

from __future__ import annotations

import importlib

from ranp.errors import UnsupportedError, unknown_name
from ranp.paper.experiments import texts
from ranp.paper.experiments.experiment import Experiment, Line, Presentation, Results, Wanted
from ranp.paper.experiments.running import Place, run_all, run_cell

__all__ = ["Experiment", "Line", "Place", "Presentation", "Results", "Wanted", "get", "names", "run_all", "run_cell"]

_NAMES = tuple(texts.TABLES)
"""Each is the value of its name in the module of its name, imported when it is asked for."""


def names() -> tuple[str, ...]:
    """The names that ``get`` knows, in the order of the paper."""
    return _NAMES


def get(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        UnsupportedError: There is none.
    """
    if name not in _NAMES:
        raise UnsupportedError(unknown_name("experiment", name, (*_NAMES, "all")))
    identifier = name.replace("-", "_")
    module = importlib.import_module(f"ranp.paper.experiments.{identifier}")
    experiment: Experiment = getattr(module, identifier.upper())
    return experiment
