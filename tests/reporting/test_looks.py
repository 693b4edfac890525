"""One table says how methods are called and drawn; what the paper has and what it has not are both looked up in it."""

from __future__ import annotations

from importlib import resources

from ranp.choosing.methods import METHODS as CHOOSING
from ranp.reporting.looks import FULL, METHODS, TITLES, look_of, looks, method_name, rank, title


def test_every_method_that_prunes_has_a_look_of_its_own() -> None:
    assert set(METHODS) == {FULL, *CHOOSING.names()}
    assert len({(look.colour, look.marker) for look in METHODS.values()}) == len(METHODS)
    assert len({look.shade for look in METHODS.values()}) == len(METHODS)


def test_the_style_sheet_has_every_shade_for_light_and_dark() -> None:
    style = resources.files("ranp.page").joinpath("template/page.css").read_text(encoding="utf-8")
    for look in METHODS.values():
        assert style.count(f"{look.shade[4:-1]}: #") == 2


def test_methods_are_called_as_the_paper_calls_them_and_own_ones_as_they_are() -> None:
    assert list(TITLES.items())[:3] == [(FULL, "Full"), ("snip", "SNIP NP"), ("random", "Random NP")]
    assert (title("Layerwise"), method_name("layerwise")) == ("Layer-wise NP", "layer-wise NP")
    assert (title("mine"), method_name("mine")) == ("mine", "mine")


def test_full_networks_come_first_and_own_methods_last() -> None:
    assert sorted(["mine", "random", "ranp-f", FULL], key=rank) == [FULL, "ranp-f", "random", "mine"]


def test_an_own_method_takes_a_look_that_no_other_has() -> None:
    chosen = looks(["mine", "ranp-f", "RANP-f, seed 1", "vanilla"])
    assert chosen["ranp-f"] == METHODS["ranp-f"]
    assert len({(look.colour, look.dashes) for look in chosen.values()}) == 4
    assert look_of("mine", len(METHODS) + 1).shade == METHODS["ranp-f"].shade
