"""The paper's figures, drawn with matplotlib: plain values in, a figure out, ``save`` writes it.

Example:
    >>> figure = retained({"vanilla": [0.1, 0.9], "ranp-f": [0.5, 0.4]}, ["conv1", "conv2"])
    >>> [line.get_ydata().tolist() for line in figure.axes[0].lines]
    [[0.1, 0.9], [0.5, 0.4]]
    >>> save(figure, "retained.svg")  # doctest: +SKIP
"""

from __future__ import annotations

from ranp.reporting.drawing.convergence import convergence
from ranp.reporting.drawing.examples import examples
from ranp.reporting.drawing.importance import importance, initialisation, retained
from ranp.reporting.drawing.saving import FORMATS, rendered, save
from ranp.reporting.drawing.scatter import scatter
from ranp.reporting.drawing.sparsity import accuracy, resources
from ranp.reporting.drawing.style import ONE_COLUMN, TWO_COLUMNS
from ranp.reporting.drawing.values import Curve, Panel, Picture, Scale, ScatterPoint

__all__ = [
    "FORMATS",
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "Curve",
    "Panel",
    "Picture",
    "Scale",
    "ScatterPoint",
    "accuracy",
    "convergence",
    "examples",
    "importance",
    "initialisation",
    "rendered",
    "resources",
    "retained",
    "save",
    "scatter",
]
