"""Axes that say their units shortly: powers of ten without formulas, shares in per cent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis

__all__ = ["percent", "power", "powers"]

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(value: float) -> str:
    """A power of ten as text; others are not labelled.

    >>> power(1e-4), power(2e-4)
    ('10⁻⁴', '')
    """
    exponent = math.log10(value) if value > 0 else math.nan
    if not math.isfinite(exponent) or abs(exponent - round(exponent)) > 1e-9:
        return ""
    return f"10{str(round(exponent)).translate(_RAISED)}"


def powers(axis: Axis) -> None:
    """Labels a logarithmic axis with at most five powers of ten; a range within one decade with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    if low > 0 and math.floor(math.log10(high)) - math.ceil(math.log10(low)) < 1:
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}"))
    else:
        axis.set_major_locator(LogLocator(base=10, numticks=5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axis.set_minor_locator(NullLocator())


def percent(axis: Axis) -> None:
    """Labels shares in per cent."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
