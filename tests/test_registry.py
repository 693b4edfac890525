"""Names: registering, finding, and not finding."""

from __future__ import annotations

import pytest

from ranp.errors import UnsupportedError
from ranp.registry import Registry


def test_names_keep_their_order_and_values() -> None:
    table: Registry[int] = Registry("number")
    assert table.register("two", 2) == 2
    table.register("one", 1)
    assert table.names() == ("two", "one") == tuple(table)
    assert table.get("one") == 1
    assert [name in table for name in ("two", "three")] == [True, False]
    assert len(table) == 2


def test_an_unknown_name_answers_with_the_close_one_and_the_list() -> None:
    table: Registry[int] = Registry("number")
    table.register("seven", 7)
    table.register("eight", 8)
    with pytest.raises(UnsupportedError, match=r"unknown number 'sevn'; did you mean 'seven'\? Allowed: eight, seven"):
        table.get("sevn")
    with pytest.raises(UnsupportedError, match="unknown number 7"):
        table.get(7)  # type: ignore[arg-type]


def test_a_name_is_given_once() -> None:
    table: Registry[int] = Registry("number")
    table.register("one", 1)
    table.register("one", 1)
    with pytest.raises(UnsupportedError, match="number name 'one' is taken"):
        table.register("one", 2)
    with pytest.raises(UnsupportedError, match="needs a name"):
        table.register("", 3)
    assert table.get("one") == 1
