"""What every verb has in common: JSON for programs, flags that look like flags, both spellings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from ranp.cli import app, main


def verbs(group: Any = None, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command by what is typed for it."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, *before, name)
        else:
            yield (*before, name), command


VERBS = dict(verbs())


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_has_json(words: tuple[str, ...]) -> None:
    assert "--json" in itertools.chain.from_iterable(param.opts for param in VERBS[words].params)


@pytest.mark.parametrize("words", [(), ("plan",), *VERBS], ids=" ".join)
def test_flags_are_shown_as_flags(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    told = capsys.readouterr().out.lower()
    assert "--help" in told
    assert "bool" not in told


def test_both_spellings_are_one_option(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("prune",), ("fit",), ("compare",)):
        found = [param for param in VERBS[words].params if param.name == "optimizer"]
        assert [set(param.opts) for param in found] == [{"--optimizer", "--optimiser"}]
