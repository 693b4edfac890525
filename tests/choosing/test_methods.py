"""Methods are compositions with a name."""

from __future__ import annotations

import pytest

from ranp.choosing import methods
from ranp.choosing.methods import METHODS, Method
from ranp.choosing.scopes import SCOPES
from ranp.choosing.selection import select
from ranp.errors import UnsupportedError


def test_the_seven_methods_of_the_paper() -> None:
    assert METHODS.names()[:7] == ("ranp-f", "ranp-m", "weighted", "vanilla", "layerwise", "random", "snip")
    table = {
        name: (method.criterion, method.balance, method.resource, method.scope)
        for name, method in ((name, methods.resolve(name)) for name in METHODS.names()[:7])
    }
    assert table == {
        "ranp-f": ("mpmg-sum", True, "flops", "network"),
        "ranp-m": ("mpmg-sum", True, "memory", "network"),
        "weighted": ("mpmg-sum", True, None, "network"),
        "vanilla": ("mpmg-sum", False, None, "network"),
        "layerwise": ("mpmg-sum", False, None, "layer"),
        "random": ("random", False, None, "random"),
        "snip": ("snip", False, None, "weights"),
    }


def test_the_methods_that_are_widths() -> None:
    assert METHODS.names()[7:] == ("flat", "power", "balanced", "pretrained")
    for name in METHODS.names()[7:10]:
        method = methods.resolve(name)
        assert (method.criterion, method.balance, method.resource, method.scope) == ("mpmg-sum", True, None, name)
    of = methods.resolve("pretrained")
    assert (of.criterion, of.balance, of.resource, of.scope) == ("mpmg-group", False, None, "layer")
    assert {methods.resolve(name).floor for name in METHODS} == {4}


def test_every_scope_of_a_method_exists_and_every_method_says_what_it_does() -> None:
    assert select is not None
    for name in METHODS:
        method = methods.resolve(name)
        assert method.scope in SCOPES
        assert method.name == name
        assert method.description


def test_a_method_of_your_own() -> None:
    mine = Method("mine", criterion="magnitude", resource=lambda trace: {}, scope=lambda scores, trace, sparsity: {})
    assert methods.resolve(mine) is mine
    assert "mine" not in METHODS


def test_unknown_and_nameless_methods_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"unknown method 'rampf'.*did you mean 'ranp-f'"):
        methods.resolve("rampf")
    with pytest.raises(UnsupportedError, match="needs a name"):
        Method("")
    with pytest.raises(UnsupportedError, match="'ranp-f' is taken"):
        methods.register(Method("ranp-f"))
