"""The options of pruning: one value, the same checks for whoever asks, in their words."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from typing import Any

import pytest

import ranp
from ranp.cli import options as flags
from ranp.errors import RanpError, asked, speaking_flags
from ranp.options import Options

WRONG: dict[str, list[Any]] = {
    "sparsity": [1, -0.1, "half", float("nan"), True],
    "budget": ["flops", "flops=-1", 5, "beauty=5%"],
    "method": ["ranp", 3],
    "strength": [-1.0, float("inf"), "11"],
    "criterion": ["mpmg", 3],
    "mode": ["training", None],
    "keep": [3, [3]],
    "tie": ["min", None],
    "attention": ["head", None],
    "exact": [1, "yes"],
    "min_channels": [0, 1.5, True],
    "round_to": [0, "much", "auto"],
    "fill": ["memory", 8, "time"],
    "init": ["xavier", 3],
    "max_batches": [0, 1.5],
    "seed": [-1, 2**64, 0.5],
    "step": ["adam"],
    "checkpointing": ["no"],
    "convention": ["torch", 1],
    "unchecked": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_what_is_not_allowed_is_refused_when_the_value_is_made(name: str, value: Any) -> None:
    with pytest.raises(RanpError) as refused:
        Options(**{name: value})
    assert "\n" not in str(refused.value)


def test_every_option_is_told_to_python_and_to_the_command_line() -> None:
    names = {field.name for field in fields(Options)}
    assert names <= set(inspect.signature(ranp.prune).parameters)
    assert set(flags.PRUNING) <= names
    assert names - set(flags.PRUNING) == {"step", "checkpointing"}  # the flags of a training step
    assert set(WRONG) | {"resource"} == names


def test_defaults_are_those_of_the_flags() -> None:
    assert flags.options_of({name: flags.DEFAULTS[name] for name in flags.PRUNING}) == Options()


def test_options_survive_a_recipe() -> None:
    options = Options(budget=["flops=5%", "params=1M"], method="weighted", keep=["head.*"], tie="union", round_to=4)
    told = {name: value for name, value in options.to_dict().items() if value is not None}
    assert Options(**told) == replace(options, criterion="mpmg-sum")


def test_a_name_that_is_not_an_option_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"ranp\.prune got an unexpected keyword.*did you mean 'sparsity'"):
        ranp.prune(None, [], None, sparcity=0.5)


def test_messages_speak_the_language_of_whoever_asked() -> None:
    for ask, words in ((lambda: Options(round_to=0), ("round_to=0", "--round-to 0")),):
        with pytest.raises(RanpError, match=words[0]):
            ask()
        with speaking_flags(), pytest.raises(RanpError, match=words[1]):
            ask()
    with pytest.raises(RanpError, match=r"sparsity=0\.5 and budget='flops=5%' are both given"):
        Options(sparsity=0.5, budget="flops=5%")
    with speaking_flags(), pytest.raises(RanpError, match=r"--sparsity 0\.5 and --budget flops=5% are both given"):
        Options(sparsity=0.5, budget="flops=5%")
    assert asked("keep", ["a"]) == "keep=['a']"


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({}, "ranp-f"),
        ({"sparsity": 0.5}, "ranp-f"),
        ({"budget": "flops=5%"}, "balanced"),
        ({"budget": ["params=5%", "train-memory=8GiB"]}, "balanced"),
        ({"budget": "flops=5%", "resource": "memory"}, "ranp-f"),
        ({"budget": "flops=5%", "strength": 15.0}, "ranp-f"),
        ({"budget": "flops=5%", "method": "snip"}, "snip"),
    ],
    ids=str,
)
def test_the_method_that_is_meant_where_nobody_names_one(given: dict[str, Any], method: str) -> None:
    assert Options(**given).method == Options(**given).how.name == method
    assert flags.options_of({**{name: flags.DEFAULTS[name] for name in flags.PRUNING}, **given}).method == method
