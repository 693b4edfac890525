"""Networks by name or by code: what is typed is found, and what a file says is found only where it may be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ranp.errors import StorageError, UnsupportedError
from ranp.paper.naming import NOTHING, Trust, code, find_network, stored_example, stored_network

WHERE = Path("run/recipe.json")


def test_the_working_folder_is_searched_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wave.py").write_text("open = 'mine'\n")  # of a module that is installed and not loaded yet
    (tmp_path / "only_in_the_working_folder.py").write_text("answer = 42\n")
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    assert code("wave:open", "--example") != "mine"
    assert code("only_in_the_working_folder:answer", "--example") == 42
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


def test_code_runs_for_the_command_line_and_for_trust_alone() -> None:
    recipe = {"model": "collections:OrderedDict", "options": {"a": 1}}
    with pytest.raises(UnsupportedError, match=r"names 'collections:OrderedDict' with a=1 as its network; nothing was"):
        stored_network(recipe, WHERE, NOTHING)
    with pytest.raises(UnsupportedError, match=r"gives a=1 to 'collections:OrderedDict'.* nothing was run"):
        stored_network(recipe, WHERE, Trust("collections:OrderedDict"))
    assert stored_network(recipe, WHERE, Trust(everything=True)).build() == {"a": 1}
    assert find_network("collections:OrderedDict").build() == {}


def test_arguments_of_registered_networks_are_within_bounds() -> None:
    good = {
        "model": "unet3d-shapenet",
        "options": {"widths": [4, 8], "softmax_in_eval": False},
        "inputs": ["1x1x8x8x8"],
    }
    network = stored_network(good, WHERE, NOTHING)
    assert [layer.out_channels for layer in network.build().modules() if hasattr(layer, "out_channels")][-1] == 50
    assert stored_example(network, good, WHERE, NOTHING).shape == (1, 1, 8, 8, 8)
    for options in ({"widths": [4, 10**6]}, {"classes": True}, {"classes": 0}, {"softmax_in_eval": 1}, {"seed": 3}):
        with pytest.raises(StorageError, match=next(iter(options))):
            stored_network({**good, "options": options}, WHERE, NOTHING)
