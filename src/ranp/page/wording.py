"""Numbers and names as the page writes them, in one way everywhere."""

from __future__ import annotations

from ranp.reporting.figures import MB, UNITS, Amount, scaled, unit

__all__ = [
    "NOTHING",
    "colour",
    "dash",
    "factor",
    "figure_name",
    "flops",
    "less",
    "megabytes",
    "method_name",
    "sentence",
    "share",
    "value",
]

NOTHING = "\N{EN DASH}"
"""What stands where there is no figure."""

_METHODS = {
    "full": "full network",
    "ranp-f": "RANP-f",
    "ranp-m": "RANP-m",
    "weighted": "weighted NP",
    "vanilla": "vanilla NP",
    "layerwise": "layer-wise NP",
    "random": "random NP",
    "snip": "SNIP NP",
}
_FIGURES = {
    "miou": "part mIoU",
    "accuracy": "accuracy",
    "dice": "Dice",
    "epe": "end-point error",
    "top1_video": "top-1 of videos",
    "top5_video": "top-5 of videos",
    "top1_clip": "top-1 of clips",
    "top5_clip": "top-5 of clips",
}
_COLOURS = {name: f"var(--m{index})" for index, name in enumerate(_METHODS)}
_DASHES = {"full": "dot", "random": "dash", "vanilla": "dash", "layerwise": "dashdot", "snip": "longdash"}


def method_name(method: str) -> str:
    """A method as the paper writes it; an own one as it is called."""
    return _METHODS.get(method, method)


def sentence(words: str) -> str:
    """The same with a capital letter in front.

    >>> sentence("part mIoU rises.")
    'Part mIoU rises.'
    """
    return words[:1].upper() + words[1:]


def figure_name(figure: str) -> str:
    """A validation figure for people; an own one as it is called."""
    return _FIGURES.get(figure, figure)


def colour(method: str, index: int = 0) -> str:
    """The colour of a method on every chart: a variable of the style sheet, which knows light and dark."""
    return _COLOURS.get(method, f"var(--m{index % len(_COLOURS)})")


def dash(method: str) -> str:
    """The dash of a method's lines: colour alone does not tell them apart for everybody."""
    return _DASHES.get(method, "solid")


def share(fraction: float, digits: int = 1) -> str:
    """A fraction in percent.

    >>> share(0.6603)
    '66.0 %'
    """
    return f"{fraction * 100:.{digits}f} %"


def less(before: int, after: int) -> str:
    r"""How much less there is, in percent.

    >>> less(200, 50), less(200, 200), less(200, 250)
    ('\u221275.0 %', 'all of it', '+25.0 %')
    """
    removed = Amount(before, after).removed
    if not removed:
        return "all of it"
    return f"\N{MINUS SIGN}{share(removed)}" if removed > 0 else f"+{share(-removed)}"


def flops(amount: int) -> str:
    """FLOPs with the unit they are best read in.

    >>> flops(73694485)
    '73.69 MFLOPs'
    """
    name = unit(amount)
    return f"{scaled(amount, UNITS[name])} {name}"


def megabytes(elements: int) -> str:
    """Elements of activations as megabytes of float32.

    >>> megabytes(262144)
    '1.00 MB'
    """
    return f"{scaled(elements, MB)} MB"


def factor(amount: Amount) -> str:
    """How many times less there is.

    >>> factor(Amount(200, 50))
    '4.0'
    """
    times = amount.before / amount.after if amount.after else float("inf")
    return f"{times:,.1f}" if times < 100 else f"{times:,.0f}"


def value(number: float, *, percent: bool) -> str:
    """A validation figure.

    >>> value(0.2844, percent=True), value(1.5, percent=False)
    ('28.4 %', '1.500')
    """
    return share(number) if percent else f"{number:.3f}" if abs(number) < 1000 else f"{number:,.0f}"
