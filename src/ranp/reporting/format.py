"""Numbers and words as reports, figures and the page write them, in one way everywhere."""

from __future__ import annotations

__all__ = [
    "MIB", "NOTHING", "UNITS", "factor", "figure", "flops", "less", "mebibytes", "scaled", "sentence", "share", "unit",
]  # fmt: skip

NOTHING = "\N{EN DASH}"
"""What stands where there is no figure."""

MIB = 1 / 1024**2
"""MiB of a byte."""

UNITS = {"GFLOPs": 1e-9, "MFLOPs": 1e-6, "kFLOPs": 1e-3}


def sentence(words: str) -> str:
    """The same with a capital letter in front.

    >>> sentence("part mIoU rises.")
    'Part mIoU rises.'
    """
    return words[:1].upper() + words[1:]


def share(fraction: float, digits: int = 1) -> str:
    """A fraction in percent.

    >>> share(0.6603)
    '66.0 %'
    """
    return f"{100 * fraction:.{digits}f} %"


def less(before: float, after: float) -> str:
    r"""How much less there is, in percent.

    >>> less(200, 50), less(200, 200), less(200, 250)
    ('\u221275.0 %', 'all of it', '+25.0 %')
    """
    removed = 1.0 - after / before if before else 0.0
    if not removed:
        return "all of it"
    return f"\N{MINUS SIGN}{share(removed)}" if removed > 0 else f"+{share(-removed)}"


def factor(before: float, after: float) -> str:
    """How many times less there is.

    >>> factor(200, 50)
    '4.0'
    """
    times = before / after if after else float("inf")
    return f"{times:,.1f}" if times < 100 else f"{times:,.0f}"


def unit(flops: int) -> str:
    """The unit in which a network of that many FLOPs is best read."""
    return next((unit for unit, scale in UNITS.items() if flops * scale >= 1), "kFLOPs")


def scaled(value: int, scale: float) -> str:
    """A whole number, or a figure in another unit with two decimals, as the paper prints it."""
    if not scale:
        return f"{value:,}"
    return "<0.01" if 0 < value * scale < 0.005 else f"{value * scale:,.2f}"


def flops(amount: int) -> str:
    """FLOPs with the unit they are best read in.

    >>> flops(73694485)
    '73.69 MFLOPs'
    """
    name = unit(amount)
    return f"{scaled(amount, UNITS[name])} {name}"


def mebibytes(amount: int) -> str:
    """Bytes in MiB.

    >>> mebibytes(1048576)
    '1.00 MiB'
    """
    return f"{scaled(amount, MIB)} MiB"


def figure(value: float, *, percent: bool) -> str:
    """A validation figure.

    >>> figure(0.2844, percent=True), figure(1.5, percent=False)
    ('28.4 %', '1.500')
    """
    return share(value) if percent else f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"
