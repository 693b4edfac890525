"""How methods, networks and figures of merit are called and drawn everywhere: in figures, on the page, in tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ranp.reporting.format import sentence

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
# Okabe and Ito's colours, which people with any colour vision tell apart; and a grey.
GREY = "#777777"

FULL = "full"
"""The method of a network from which nothing was removed."""

Dashes = str | tuple[float, tuple[float, ...]]
_DASHED, _DOTTED, _BROKEN = (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2))


@dataclass(frozen=True, slots=True)
class Look:
    """How a method is called, and how its lines and markers are drawn.

    Attributes:
        name: Within a sentence.
        colour: In figures for print; the page has its own, ``shade``.
        marker: Matplotlib's.
        dashes: Matplotlib's, of lines in figures.
        dash: Plotly's, of lines on the page: colour alone does not tell them apart for everybody.
        shade: A variable of the page's style sheet, which knows light and dark.
    """

    name: str
    colour: str
    marker: str
    dashes: Dashes = "-"
    dash: str = "solid"
    shade: str = ""

    def line(self, **more: Any) -> dict[str, Any]:
        """What matplotlib takes to draw a line of this look."""
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "marker": self.marker,
            "markeredgewidth": 0,
            **more,
        }


_TABLE: Mapping[str, Look] = {
    FULL: Look("full network", BLACK, "*", _DASHED, "dot"),
    "ranp-f": Look("RANP-f", VERMILLION, "o"),
    "ranp-m": Look("RANP-m", ORANGE, "s"),
    "weighted": Look("weighted NP", SKY, "^"),
    "vanilla": Look("vanilla NP", BLUE, "v", dash="dash"),
    "layerwise": Look("layer-wise NP", GREEN, "D", dash="dashdot"),
    "random": Look("random NP", PURPLE, "P", dash="dash"),
    "snip": Look("SNIP NP", GREY, "X", dash="longdash"),
    "flat": Look("flat widths", BLACK, "s", _DOTTED, "dash"),
    "power": Look("power-law widths", BLUE, "h", _DOTTED, "dashdot"),
    "balanced": Look("balanced widths", GREEN, "p", _DOTTED),
    "pretrained": Look("pretrained", PURPLE, "X", _BROKEN, "longdash"),
}
METHODS = {method: replace(look, shade=f"var(--m{index})") for index, (method, look) in enumerate(_TABLE.items())}
"""Every method, those of the paper first, in the order in which networks are listed."""

PAPER = (FULL, "snip", "random", "layerwise", "vanilla", "weighted", "ranp-m", "ranp-f")
"""The methods of the paper, in the order of its main table."""

TITLES: Mapping[str, str] = {
    method: sentence(METHODS[method].name.removesuffix(" network"))
    for method in (*PAPER, *(method for method in METHODS if method not in PAPER))
}
"""What methods are called in figures and tables, in the order of the paper's main table; others follow."""

NETWORKS: Mapping[str, str] = {
    "unet3d-shapenet": "ShapeNet, 3D-UNet",
    "unet3d-shapenet-23": "ShapeNet, 23-layer 3D-UNet",
    "unet3d-brats": "BraTS, 3D-UNet",
    "unet3d-brats-23": "BraTS, 23-layer 3D-UNet",
    "mobilenetv2-ucf101": "UCF101, MobileNetV2",
    "i3d-ucf101": "UCF101, I3D",
    "psm-sceneflow": "SceneFlow, PSM",
}
"""What the paper's networks are called, each with its data."""

FIGURES: Mapping[str, str] = {
    "miou": "part mIoU",
    "accuracy": "accuracy",
    "dice": "Dice",
    "epe": "end-point error",
    "top1_video": "top-1 of videos",
    "top5_video": "top-5 of videos",
    "top1_clip": "top-1 of clips",
    "top5_clip": "top-5 of clips",
}
"""What validation figures are called within a sentence."""

_KNOWN = {written.lower(): method for method, title in TITLES.items() for written in (method, title, title.split()[0])}
_SPARE = tuple(
    Look("", colour, marker, dashes)
    for dashes in ("-", _DASHED, _DOTTED, _BROKEN)
    for colour, marker in zip((VERMILLION, BLUE, GREEN, PURPLE, ORANGE, SKY, BLACK), "ovDPs^X", strict=True)
)


def rank(method: str) -> int:
    """The place of a method in a list: full networks first, then those of the paper, own ones last."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS)


def method_name(method: str) -> str:
    """A method within a sentence, as the paper writes it; an own one as it is called."""
    return METHODS[method].name if method in METHODS else method


def title(method: str) -> str:
    """A method in a figure or a table, as the paper writes it; an own one as it is called."""
    return TITLES.get(method.lower(), method)


def look_of(method: str, index: int = 0) -> Look:
    """The look of a method on the page; an own one borrows the shade of the paper's ``index``-th, wrapping around."""
    shades = [look.shade for look in METHODS.values()]
    return METHODS.get(method) or Look(method, GREY, "o", shade=shades[index % len(shades)])


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name in a figure: a known method has its own, whatever is beside it; others take what is left.

    A method is known by its name, by what the paper calls it, and with something after a comma or a bracket: of several
    such names the first one has the method's look.
    """
    chosen: dict[str, Look] = {}
    for name in names:
        known = METHODS.get(_KNOWN.get(re.split(r"\s*[,(]", name)[0].lower(), ""))
        if known is not None and known not in chosen.values():
            chosen[name] = known
    used = {one.colour for one in chosen.values()}
    spares = iter([spare for spare in _SPARE if spare.colour not in used or spare.dashes != "-"])
    return {name: chosen[name] if name in chosen else next(spares, _SPARE[-1]) for name in names}
