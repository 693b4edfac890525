r"""LaTeX to MathML while the site is built: browsers draw it themselves, so no script and no font is fetched.

``pymdownx.arithmatex`` finds the equations (``$...$`` and ``$$...$$``, never inside code); this hook turns what it
marks into ``<math>``, with the LaTeX kept as an annotation.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?:\((?P<inline>.*?)\\\)|\[(?P<block>.*?)\\\])</(?P=tag)>', re.DOTALL
)
_DIGITS = re.compile(r'<mn mathvariant="(?P<variant>bold|double-struck)">(?P<digits>\d+)</mn>')
_NOTHING = re.compile(r'<mo [^>]*fence="true"[^>]*/>')  # the half of a pair that is not drawn would take room
_ZERO = {"bold": 0x1D7CE, "double-struck": 0x1D7D8}
_MATHML = "{http://www.w3.org/1998/Math/MathML}"


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Turns the equations of a page into MathML; one that cannot be turned ends the build with its page and text."""

    def turned(found: re.Match[str]) -> str:
        block = found["block"] is not None
        try:
            math = mathml(unescape(found["block"] if block else found["inline"]).strip(), block=block)
        except ValueError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from error
        return f'<div class="equation">{math}</div>' if block else math

    return _MARKED.sub(turned, html)


def mathml(latex: str, *, block: bool = False) -> str:
    r"""One equation as a ``<math>`` element.

    >>> "<mi>x</mi>" in mathml("x")
    True

    Raises:
        ValueError: A command or an environment is unknown.
    """
    text = _NOTHING.sub("", convert(latex))
    text = _DIGITS.sub(lambda one: f"<mn>{_shifted(one['digits'], _ZERO[one['variant']])}</mn>", text)
    root = ElementTree.fromstring(re.sub(r"&(?![#\w]+;)", "&amp;", text))
    for leaf in root.iter():
        if leaf.text and (leaf.text.startswith("\\") or leaf.text == "&"):
            raise ValueError(f"no MathML for {leaf.text!r} in the equation {latex!r}. Write it in another way.")
    body = text[text.index(">") + 1 : text.rindex("</math>")]
    return (
        f'<math xmlns="{_MATHML[1:-1]}" display="{"block" if block else "inline"}"><semantics>{body}'
        f'<annotation encoding="application/x-tex">{escape(latex)}</annotation></semantics></math>'
    )


def _shifted(digits: str, zero: int) -> str:
    """Digits in the alphabet that begins at ``zero``: browsers do not know ``mathvariant`` on numbers."""
    return "".join(chr(zero + int(digit)) for digit in digits)
