"""Names for the command line: one small table from a name to a value, with close matches for a wrong name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from ranp.errors import UnsupportedError, unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """A table of named values of one type.

    Wherever a name is accepted, the value itself is too; register a value only to give it a name.

    >>> shapes: Registry[int] = Registry("shape")
    >>> shapes.register("triangle", 3)
    3
    >>> shapes.get("triangle"), shapes.names()
    (3, ('triangle',))

    Args:
        what: What a name in this table names, for error messages: ``"method"``.
    """

    __slots__ = ("_values", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self._values: dict[str, T] = {}

    def register(self, name: str, value: T) -> T:
        """Gives ``value`` a name and returns it.

        Raises:
            UnsupportedError: The name is empty or taken by another value.
        """
        if not name or not isinstance(name, str):
            raise UnsupportedError(f"a {self.what} needs a name, got {name!r}. Pass a non-empty string.")
        taken = self._values.get(name, value)
        if taken is not value and taken != value:
            raise UnsupportedError(f"the {self.what} name {name!r} is taken. Choose another name.")
        self._values[name] = value
        return value

    def get(self, name: str) -> T:
        """The value of that name.

        Raises:
            UnsupportedError: There is no such name; the message lists the close and the allowed ones.
        """
        if not isinstance(name, str) or name not in self._values:
            raise UnsupportedError(unknown_name(self.what, name, self._values))
        return self._values[name]

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
