"""Docstrings as the site shows them: interpreter sessions and indented examples become highlighted code.

The reference is read from the source without importing it, which cannot tell the function ``ranp.tracing.trace`` from
the module of that name; ``HOMES`` says which is meant.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_SESSION = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)(?! *$).*)*", re.MULTILINE)
_LITERAL = re.compile(r"::\n\n(?P<code>(?: {4,}.*\n?|\n(?= {4}))+)", re.MULTILINE)


HOMES = {"ranp.trace": "ranp.tracing.tracer.trace"}
"""Public name -> where it is defined, for names that a module has too."""


class Examples(griffe.Extension):
    """Puts fences around the examples of every docstring, and public names where they belong."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Leads ambiguous names to their home."""
        for name, home in HOMES.items():
            package, _, member = name.rpartition(".")
            if pkg.path == package:
                pkg.set_member(member, griffe.Alias(member, home, parent=pkg))

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of one object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose examples are fenced.

    A session (``>>>``) ends at the next empty line; an indented block after ``::`` is Python.
    """
    return _SESSION.sub(_session, _LITERAL.sub(_literal, text))


def _session(found: re.Match[str]) -> str:
    # Without the indent, which would make the fence part of a code block, or of the section above it.
    return f"```pycon\n{textwrap.dedent(found[0])}\n```"


def _literal(found: re.Match[str]) -> str:
    return f":\n\n```python\n{textwrap.dedent(found['code']).rstrip()}\n```\n"
