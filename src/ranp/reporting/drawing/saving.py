"""Figures as files: the same bytes whenever the same figure is saved, whole or not at all, and small.

Matplotlib's SVG is written at half its size: nothing that can be seen changes.
"""

from __future__ import annotations

import base64
import io
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ranp.errors import UnsupportedError
from ranp.files import atomic
from ranp.reporting.drawing.style import DOTS, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No date and no release of matplotlib, so that a file changes only with its figure.
FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"dpi": 100, "metadata": {"Date": None, "Creator": None}},
    ".pdf": {"dpi": DOTS, "metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    ".png": {"dpi": DOTS, "metadata": {"Software": None}},
}
"""What can be written, by suffix."""
_IMAGE = re.compile(r"data:image/png;base64,\s*([A-Za-z0-9+/=\s]+)")
_GEOMETRY = re.compile(r' (d|x|y|width|height|transform|viewBox|points)="([^"]*)"')
_NUMBER = re.compile(r"-?\d+\.\d+")
_ID = re.compile(r' id="([^"]*)"')
_FAMILY = re.compile(r"font-family: ([^;\"]*)(?:; |(?=\"))")
_NO_TURN = re.compile(r' transform="rotate\(-?0 [^)]*\)"')
_GROUP = re.compile(r"<g>\n((?:<(?:use|path|text)\b[^>]*(?:/>|>[^<]*</\w+>)\n)*)</g>\n")
_MARKER = re.compile(r'<use [^>]* style="([^"]*)"/>\n')
_PALETTE = 256
_SHEER = 24  # colours of an image that is not opaque: a cloud of points
_QUALITIES = (85, 75, 65, 50, 30, 15)
_ENOUGH = 120_000
"""Bytes for all images of a file; beyond that they are of lower quality."""


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure as ``.svg``, ``.pdf`` or ``.png``, by the suffix of the path.

    Raises:
        UnsupportedError: Another suffix.
        StorageError: The file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UnsupportedError(
            f"{str(path)!r}: a figure is written as {', '.join(FORMATS)}, not as {suffix!r}. Name such a file."
        )
    atomic.write_atomic(path, rendered(figure, suffix))


def rendered(figure: Figure, suffix: str = ".svg") -> bytes:
    """The bytes that ``save`` writes."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format=suffix[1:], **FORMATS[suffix])
    if suffix != ".svg":
        return buffer.getvalue()
    return compacted(buffer.getvalue().decode("utf-8")).encode("utf-8")


def compacted(svg: str) -> str:
    """The same drawing in fewer bytes.

    Coordinates have two decimals (a hundredth of a point), names that nothing refers to are gone, the font stands once
    at the top, and images inside have their smallest form.
    """
    pieces = _IMAGE.split(svg)  # text, image, text, image, ..., text
    text, images = pieces[::2], pieces[1::2]
    used = {name for piece in text for name in re.findall(r"#([\w.-]+)", piece)}
    families = {name for piece in text for name in _FAMILY.findall(piece)}
    text = [_GEOMETRY.sub(lambda match: f' {match[1]}="{_rounded(match[2])}"', piece) for piece in text]
    text = [_ID.sub(lambda match: match[0] if match[1] in used else "", piece) for piece in text]
    text = [_NO_TURN.sub("", piece) for piece in text]
    if len(families) == 1:
        text = [_FAMILY.sub("", piece) for piece in text]
        text[0] = text[0].replace("<svg ", f'<svg font-family="{families.pop()}" ', 1)
    text = [_without_empty_groups(re.sub(r"\n\s+", "\n", piece)) for piece in text]
    text = ["".join(_shared_styles(piece)) for piece in text]
    small: list[str] = []
    for quality in _QUALITIES:
        small = [_smallest(image, quality) for image in images]
        if sum(map(len, small)) <= _ENOUGH:
            break
    return "".join(itertools.chain(*itertools.zip_longest(text, small, fillvalue="")))


def _without_empty_groups(text: str) -> str:
    """Groups that say nothing about the one thing in them are gone."""
    found = 1
    while found:
        text, found = _GROUP.subn(r"\1", text)
    return text


def _shared_styles(text: str) -> Iterator[str]:
    """Markers one after the other that look alike say so once, in a group around them."""
    for style, run in itertools.groupby(text.splitlines(keepends=True), key=_style_of_marker):
        lines = list(run)
        if style is None or len(lines) < 3:
            yield from lines
        else:
            yield f'<g style="{style}">\n'
            yield from (line.replace(f' style="{style}"', "") for line in lines)
            yield "</g>\n"


def _style_of_marker(line: str) -> str | None:
    match = _MARKER.fullmatch(line)
    return match[1] if match else None


def _rounded(value: str) -> str:
    return _NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), " ".join(value.split()))


def _smallest(encoded: str, quality: int) -> str:
    """An image of 32 bits a pixel with a palette, which loses nothing of few colours, or as a JPEG.

    One that is not opaque has a palette always: it is a cloud of equal points, of which only the edges are mixed.
    """
    from PIL import Image

    data = base64.b64decode(encoded)
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    forms = {"png": data}
    if image.getchannel("A").getextrema() != (255, 255):
        few = image.quantize(_SHEER, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        forms["png"] = _encoded(few, "png", optimize=True)
    else:
        solid = image.convert("RGB")
        if solid.getcolors(_PALETTE) is not None:
            forms["png"] = min(data, _encoded(_with_palette(solid), "png", optimize=True), key=len)
        forms["jpeg"] = _encoded(solid, "jpeg", quality=quality, subsampling=0 if quality > 60 else 2, optimize=True)
    kind = min(forms, key=lambda name: len(forms[name]))
    return f"data:image/{kind};base64,{base64.b64encode(forms[kind]).decode('ascii')}"


def _with_palette(image: Any) -> Any:
    """The same image with its colours in a table: exactly, since there are few enough of them."""
    from PIL import Image

    pixels = np.asarray(image)
    colours, places = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    indexed = Image.fromarray(places.reshape(pixels.shape[:2]).astype(np.uint8)).convert("P")
    indexed.putpalette(colours.astype(np.uint8).tobytes(), "RGB")
    return indexed


def _encoded(image: Any, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()
