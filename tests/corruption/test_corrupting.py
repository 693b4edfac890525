"""Whatever happens to a file that ranp wrote, it is found or does no harm."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.corrupting import Kind, as_table, corrupt, failures, write_all


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kind]]:
    logging.disable()  # a warning for each of a thousand files
    yield write_all(tmp_path_factory.mktemp("files"))
    logging.disable(logging.NOTSET)


def check(kinds: list[Kind], damages: int, digits: int, seed: int) -> None:
    found = corrupt(kinds, damages, digits, seed)
    assert sum(counts.total() for counts in found.values()) == damages + digits
    assert failures(found) == {}, as_table(found)
    for kind in kinds:  # a reader that refuses everything, or nothing, would prove nothing
        assert found[kind.name, "damage"]["refused"] + found[kind.name, "damage"]["edited"] > 0
        assert found[kind.name, "digit"]["refused"] + found[kind.name, "digit"]["edited"] > 0


def test_damaged_files_are_found(kinds: list[Kind]) -> None:
    check(kinds, 10 * len(kinds), 5 * len(kinds), 0)


@pytest.mark.slow
def test_two_thousand_damages_and_a_thousand_digits_are_found(kinds: list[Kind]) -> None:
    check(kinds, 2000, 1000, 1)
