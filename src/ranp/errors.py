"""The one family of errors: what failed, where, what was given and what is allowed, what to do next."""

from __future__ import annotations

import difflib
import errno
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class RanpError(Exception):
    """Anything ``ranp`` refuses to do. The message is one sentence a user can act on."""


class InfeasibleError(RanpError):
    """The request would remove every channel of some layer, or cannot be met at all."""


class UnsupportedError(RanpError):
    """The network or the option is outside of what ``ranp`` can do correctly."""


class PlanMismatchError(RanpError):
    """A plan, a set of scores and a network do not belong together."""


class DataError(RanpError):
    """Batches, loss or labels are not usable: empty, NaN, infinite, out of range, without gradient."""


class StorageError(RanpError):
    """A file is missing, torn, tampered with, or not what it claims to be."""


FULL_DISK = 28
"""Exit status where no space is left to write to: it is no fault of the input, and the same command may go on later."""


def exit_status(error: BaseException) -> int:
    """What the command line ends with: that of a full disk if one is behind it, else the error's own.

    >>> exit_status(UnsupportedError()), exit_status(OSError(errno.ENOSPC, "No space left on device"))
    (2, 28)
    """
    cause: BaseException | None = error
    while cause is not None:
        full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or getattr(cause, "status", None) == FULL_DISK:
            return FULL_DISK
        cause = cause.__cause__
    return int(getattr(error, "status", 2 if isinstance(error, RanpError) else 1))


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 60


def brief(value: object) -> str:
    """A value for a message: on one line, and short."""
    return " ".join(_BRIEF.repr(value).split())


_FLAGS: ContextVar[bool] = ContextVar("flags", default=False)


@contextmanager
def speaking_flags() -> Iterator[None]:
    """While active, messages name options as the command line does."""
    before = _FLAGS.set(True)
    try:
        yield
    finally:
        _FLAGS.reset(before)


_NOTHING = object()
_ONE_EACH = {"rates": "rate", "budgets": "budget", "arms": "arm", "inputs": "input"}
"""Arguments that hold several, and the flag that is repeated for each."""


def asked(name: str, value: object = _NOTHING, text: str = "") -> str:
    """An option, and perhaps its value, in the words of whoever asked.

    >>> asked("round_to", 4), asked("keep")
    ('round_to=4', 'keep=')
    >>> with speaking_flags():
    ...     asked("round_to", 4), asked("keep"), asked("exact", True), asked("keep", ["a", "b"])
    ('--round-to 4', '--keep', '--exact', '--keep a --keep b')
    """
    if not _FLAGS.get():
        return f"{name}=" if value is _NOTHING else f"{name}={text or brief(value)}"
    flag = "--" + _ONE_EACH.get(name, name).replace("_", "-")
    if value is _NOTHING or value is True:
        return flag
    if isinstance(value, list | tuple):
        return " ".join(f"{flag} {one}" for one in value) or flag
    return f"{flag} {value if isinstance(value, str) else text or brief(value)}"


def unknown_name(what: str, got: object, allowed: Iterable[str]) -> str:
    """The sentence for a name that is not in a list: what was meant, perhaps, and everything allowed.

    >>> unknown_name("method", "rnp-f", ["ranp-f", "ranp-m"])
    "unknown method 'rnp-f'; did you mean 'ranp-f'? Allowed: ranp-f, ranp-m."
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(got, names, n=1) if isinstance(got, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown {what} {brief(got)}{hint} Allowed: {', '.join(names)}."
