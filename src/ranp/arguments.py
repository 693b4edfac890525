"""Below all steps: what public functions may be given, one check for each kind of value, and whose an error is.

A check returns the value as the steps want it, or raises one sentence: the argument, the value, what is allowed. Code
of the user's that fails (network, loss, batches, criterion) is named as such, with its file and line.
"""

from __future__ import annotations

import math
import operator
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
import torch
from torch import nn

from ranp.errors import DataError, RanpError, UnsupportedError, asked, brief, unknown_name

LARGEST_SEED = 2**63 - 1
"""Torch takes seeds up to 2**64 - 1; every batch adds its number to the seed."""

Kind = TypeVar("Kind")
_OURS = os.path.dirname(__file__) + os.sep
_PYTHONS = (sysconfig.get_paths()["stdlib"] + os.sep, "<frozen ")
_SENT = "\nOriginal Traceback"
"""Torch sends errors of a loader's workers as text."""
_TORCHS = os.path.dirname(torch.__file__) + os.sep


def refused(name: str, value: object, allowed: str, error: type[RanpError] = UnsupportedError) -> RanpError:
    """The error for a value that an argument does not take.

    >>> str(refused("seed", -1, "a whole number from 0 on"))
    'seed=-1 is not allowed. Pass a whole number from 0 on.'
    """
    return error(f"{asked(name, value, shown(value))} is not allowed. Pass {allowed}.")


def shown(value: object) -> str:
    """A value for a message: on one line, and short."""
    if isinstance(value, torch.Tensor):
        return f"<{type(value).__name__} of shape {tuple(value.shape)}>"
    if isinstance(value, nn.Module):
        return f"<{type(value).__name__}>"
    return f"<class {value.__name__}>" if isinstance(value, type) else brief(value)


def whole(
    name: str,
    value: Any,
    least: int = 1,
    most: int | None = None,
    *,
    allowed: str = "",
    error: type[RanpError] = UnsupportedError,
) -> int:
    """A whole number from ``least`` to ``most``: anything Python takes for an index, but no truth value."""
    number = None
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        try:
            number = operator.index(value)
        except (TypeError, RuntimeError):  # such as a tensor of several numbers
            number = None
    if number is None or number < least or (most is not None and number > most):
        raise refused(
            name, value, allowed or f"a whole number from {least} {'on' if most is None else f'to {most}'}", error
        )
    return number


def width(name: str, value: Any) -> int:
    """A number of channels; none is larger than fits an array."""
    return min(whole(name, value), 2**31 - 1)


def seed(value: Any) -> int:
    """What every random generator takes."""
    return whole("seed", value, 0, LARGEST_SEED, allowed="a whole number from 0 to 2**63 - 1")


def number(
    name: str, value: Any, allowed: str, *, below: float = math.inf, error: type[RanpError] = UnsupportedError
) -> float:
    """A finite number from 0 up to, not including, ``below``; no text and no truth value."""
    found = amount(value)
    if not 0 <= found < below:
        raise refused(name, value, allowed, error)
    return found


def amount(value: Any) -> float:
    """The value as a float; NaN where it is not a finite number from 0 on."""
    if not isinstance(value, SupportsFloat) or isinstance(value, bool | np.bool_):
        return math.nan
    try:
        found = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # such as a tensor of several numbers
        return math.nan
    return found if 0 <= found < math.inf else math.nan


def choice(what: str, value: Any, allowed: Iterable[str], error: type[RanpError] = UnsupportedError) -> str:
    """One of several names."""
    names = tuple(allowed)
    if not isinstance(value, str) or value not in names:
        raise error(unknown_name(what, value, names))
    return value


def flag(name: str, value: Any) -> bool:
    """True or False: what else counts as true is more often a mistake."""
    if not isinstance(value, bool | np.bool_):
        raise refused(name, value, "True or False")
    return bool(value)


def kind(
    name: str,
    value: Any,
    wanted: type[Kind] | tuple[type[Kind], ...],
    allowed: str,
    error: type[RanpError] = UnsupportedError,
) -> Kind:
    """A value of one class."""
    if not isinstance(value, wanted):
        raise refused(name, value, allowed, error)
    return value


def function(name: str, value: Any, allowed: str, error: type[RanpError] = UnsupportedError) -> Callable[..., Any]:
    """Something to call; a class of modules is one that its user forgot to make an instance of."""
    if isinstance(value, type) and issubclass(value, nn.Module):
        raise error(f"{name} is the class {value.__name__}. Pass an instance: {value.__name__}(...).")
    if not callable(value):
        raise refused(name, value, allowed, error)
    return value  # type: ignore[no-any-return]


def several(name: str, value: Any, wanted: type[Kind] | tuple[type[Kind], ...], allowed: str) -> tuple[Kind, ...]:
    """One value of a class, or several."""
    if isinstance(value, wanted):
        return (value,)
    items = tuple(value) if isinstance(value, Iterable) and not isinstance(value, torch.Tensor) else (None,)
    if not all(isinstance(item, wanted) for item in items):
        raise refused(name, value, allowed)
    return items


def patterns(keep: Any) -> tuple[str, ...]:
    """The patterns of ``keep``."""
    return several("keep", keep, str, "a list of layer names or fnmatch patterns, such as ['encoder.*']")


def path(value: Any, name: str = "path") -> str | os.PathLike[str]:
    """The name of a file."""
    if not isinstance(value, str | os.PathLike):
        raise refused(name, value, "the name of a file, a str or a pathlib.Path")
    return value


@contextmanager
def blamed(whose: str, when: str = "", error: type[RanpError] = DataError) -> Iterator[None]:
    """Runs code of the user's: what it raises becomes one sentence that says so, with the original as its cause.

    Args:
        whose: ``"the loss"``, ``"batches"``.
        when: ``"in batch 3 (counting from 1)"``.
        error: What to raise.
    """
    try:
        yield
    except RanpError:
        raise
    except Exception as cause:  # It may raise anything.
        check = "Check" if _place(cause)[0] is None else "That is your code: check"
        raise error(
            f"{whose} failed{f' {when}' if when else ''}: {described(cause)}. {check} it and what it is given."
        ) from cause


def described(error: BaseException) -> str:
    """An error of the user's code on one line: its type, its first line, and the user's own line that raised it.

    Frames of the user's files come first, then of other packages; those of Python, torch and this package say nothing.
    """
    text = str(error).strip()
    said = f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
    if _SENT in text:
        said = text.splitlines()[-1]
    own, apart = _place(error)
    place = own or apart
    return said[:300].rstrip(". ") + (f", at {place[0]} line {place[1]}" if place else "")


def _place(error: BaseException) -> tuple[tuple[str, int | None] | None, tuple[str, int | None] | None]:
    """The last line of the user's own files that an error came through, and the last of a package's."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if _SENT in str(error):
        frames += [(name, int(line)) for name, line in re.findall(r'File "(.+?)", line (\d+)', str(error))]
    apart = [frame for frame in frames if not frame[0].startswith((_OURS, _TORCHS)) and not _of_python(frame[0])]
    own = [frame for frame in apart if f"{os.sep}site-packages{os.sep}" not in frame[0]]
    return next(reversed(own), None), next(reversed(apart), None)


def _of_python(name: str) -> bool:
    return name.startswith(_PYTHONS) and f"{os.sep}site-packages{os.sep}" not in name
