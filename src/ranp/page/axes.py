"""What charts for plotly have in common: layout, axes, safe text, short numbers."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from ranp.page.templates import verbatim

__all__ = ["layout", "logarithmic", "plain", "safe", "titled"]


def layout(height: int) -> dict[str, Any]:
    """What all charts share: no background of their own, a legend above, axes that make room for their labels."""
    return {**json.loads(verbatim("chart.json")), "height": height}


def titled(words: str) -> dict[str, Any]:
    """The title of an axis."""
    return {"text": safe(words), "font": {"color": "var(--soft)", "size": 13}, "standoff": 8}


def logarithmic(values: Sequence[float]) -> dict[str, Any]:
    """An axis from the least to the greatest value, with a few round numbers on it."""
    good = [value for value in values if value > 0] or [1.0]
    low, high = math.log10(min(good)), math.log10(max(good))
    edge = max(0.06 * (high - low), 0.05)
    decades = high - low
    tick: dict[str, Any] = {"dtick": math.ceil(decades / 6), "exponentformat": "power", "tickformat": ""}
    if decades < 2.2:
        tick = {"dtick": "D2" if decades > 0.5 else "D1", "exponentformat": "none", "tickformat": "~r"}
    return {"type": "log", "range": [plain(low - edge), plain(high + edge)], **tick}


def safe(words: str) -> Markup:
    """Text for plotly, which reads tags in it; templates do not escape it again."""
    return Markup(html.escape(words, quote=False))


def plain(value: float) -> float:
    """A number as short as a screen can tell it; never one that JSON cannot say."""
    return float(f"{value:.5g}") if math.isfinite(value) else 0.0
