"""Arms: ways to choose widths, by name, each a method of ``ranp.prune`` with perhaps some options of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ranp.choosing.methods import METHODS, Method
from ranp.choosing.widths import drawn
from ranp.errors import UnsupportedError, unknown_name
from ranp.options import Options
from ranp.paper.naming import code
from ranp.reporting.looks import FULL, method_name

DEFAULT = (FULL, "flat", "balanced", "ranp-f", "layerwise", "random")
"""The arms of a comparison that nobody chose others for."""

_OWN = ("sparsity", "budget", "seed", "method", "init")
"""Options that a comparison sets itself."""
_CODED = ("criterion", "resource")
"""Options whose value may be code: ``package.module:name``."""
_DRAWN = re.compile(r"widths-(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to choose widths.

    >>> Arm.of("bare=ranp-f,min_channels=1")
    Arm(name='bare', method='ranp-f', options=(('min_channels', 1),))

    Attributes:
        name: In tables and folders.
        method: ``"full"``, a method of ``ranp.prune``, or ``"widths-K"``: the K-th random vector of widths; with a name
            of its own it is an arm like the others.
        options: Other options of ``ranp.prune``; a criterion or a resource may be code, ``package.module:name``.
    """

    name: str
    method: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, given: str | Arm) -> Arm:
        """The arm that a text names: ``METHOD``, ``METHOD,option=value`` or ``NAME=METHOD,option=value``.

        Raises:
            UnsupportedError: The method or an option is unknown, or an option belongs to the comparison.
        """
        if isinstance(given, Arm):
            return given
        head, *others = (part.strip() for part in str(given).split(","))
        name, _, method = head.rpartition("=")
        pairs = [tuple(part.partition("=")[::2]) for part in others]
        for option, _value in pairs:
            if option in _OWN:
                raise UnsupportedError(f"arm {given!r}: {option} is the comparison's own. Leave it out.")
        found = cls(name or given.strip(), method, tuple((option, _value_of(text)) for option, text in pairs))
        if not re.fullmatch(r"[\w.,:=+-]{1,80}", found.name):
            raise UnsupportedError(f"arm {given!r}: name it with letters, digits, dots and dashes, as in bare=ranp-f.")
        if method != FULL and not _DRAWN.fullmatch(method):
            if method not in METHODS.names():
                raise UnsupportedError(f"arm {given!r}: {unknown_name('method', method, [FULL, *METHODS.names()])}")
            found.pruning("flops=50%", 0)
        return found

    @property
    def prunes(self) -> bool:
        """Whether it is a slim network."""
        return self.method != FULL

    @property
    def is_drawn(self) -> bool:
        """Whether it is one of the random vectors of widths that percentiles are taken among: one without a name."""
        return self.name == self.method and bool(_DRAWN.fullmatch(self.method))

    @property
    def title(self) -> str:
        """What tables call it."""
        return method_name(self.method) if self.name == self.method else self.name

    def pruning(self, budget: str, seed: int) -> Options:
        """What to prune and how.

        Raises:
            UnsupportedError: An option is unknown or not allowed.
        """
        found = _DRAWN.fullmatch(self.method)
        method: str | Method = self.method
        if found:
            method = Method(self.method, criterion="random", scope=drawn(int(found[1])))
        own = {
            name: code(value, name) if name in _CODED and ":" in str(value) else value for name, value in self.options
        }
        try:
            return Options.of({"budget": budget, "seed": seed, "method": method, **own}, self.name)
        except TypeError as error:
            raise UnsupportedError(f"arm {self.name!r}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The arm as plain values."""
        return {"name": self.name, "method": self.method, "options": dict(self.options)}


def arms_of(given: Iterable[str | Arm], random_widths: int = 0) -> tuple[Arm, ...]:
    """The arms of a comparison, random vectors of widths last.

    Raises:
        UnsupportedError: There is none, two have one name, or one is refused.
    """
    arms = [*map(Arm.of, given), *(Arm.of(f"widths-{draw}") for draw in range(random_widths))]
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnsupportedError(f"two arms are called {twice!r}. Name one of them otherwise, as in other=ranp-f.")
    if not any(arm.prunes for arm in arms):
        raise UnsupportedError(f"there is nothing to compare. Pass arms such as {', '.join(DEFAULT)}.")
    return tuple(arms)


def _value_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
