"""Copies of module trees, against ``copy.deepcopy``."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from ranp.errors import UnsupportedError
from ranp.running.copies import copy_model, copy_tree, replicate
from tests.support.topologies import TOPOLOGIES


def same(a: Any, b: Any) -> bool:
    """True if two values are equal and share nothing that can change."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.requires_grad == b.requires_grad and (a is not b or not a.numel())
    if isinstance(a, nn.Module):
        return a is not b and type(a) is type(b) and vars(a).keys() == vars(b).keys() and all(
            same(value, vars(b)[name]) for name, value in vars(a).items() if name != "parent"
        )  # fmt: skip
    if isinstance(a, dict):
        return a.keys() == b.keys() and type(a) is type(b) and a is not b and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_copies_as_deepcopy_does(name: str) -> None:
    model = TOPOLOGIES[name].build()
    try:
        twin = copy.deepcopy(model)
    except RuntimeError as refused:
        pytest.skip(f"deepcopy refuses it: {refused}")
    assert same(model, copy_tree(model, {}))
    assert list(copy_tree(model, {}).state_dict()) == list(twin.state_dict())


def test_shared_modules_cycles_and_shared_parameters_stay_so() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model.append(model[0])
    model.me = [model]
    twin = copy_tree(model, {})
    assert twin[0] is twin[2]
    assert twin[0].weight is twin[1].weight
    assert twin.me[0] is twin


def test_classes_with_a_way_of_their_own_are_asked() -> None:
    class Own(nn.Linear):
        def __deepcopy__(self, memo: dict[int, Any]) -> Own:
            return self

    model = nn.Sequential(Own(2, 2), nn.GRU(2, 3), parametrizations.weight_norm(nn.Conv1d(2, 2, 1)))
    twin = copy_tree(model, {})
    assert twin[0] is model[0]
    x = torch.randn(4, 1, 2)
    assert torch.equal(twin[1](x)[0], model[1](x)[0])
    assert twin[1]._flat_weights[0] is twin[1].weight_ih_l0
    assert torch.equal(twin[2].weight, model[2].weight)
    assert twin[2].parametrizations.weight.original1 is not model[2].parametrizations.weight.original1


def test_replacements_take_the_place_of_tensors() -> None:
    model = nn.Linear(2, 3)
    other = nn.Parameter(torch.zeros(1, 2))
    assert copy_tree(model, {id(model.weight): other}).weight is other


def test_hooks_come_along_and_new_ones_stay_apart() -> None:
    model, seen = nn.Linear(2, 2), []
    model.register_forward_hook(lambda *_: seen.append("old"))
    twin = copy_tree(model, {})
    twin.register_forward_hook(lambda *_: seen.append("new"))
    model(torch.ones(1, 2))
    assert seen == ["old"]
    twin(torch.ones(1, 2))
    assert seen == ["old", "old", "new"]


class Uncopied(nn.Module):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = (step for step in range(2))


def test_garbage_is_collected_again_after_a_copy_and_after_one_that_fails() -> None:
    assert gc.isenabled()
    copy_model(nn.Linear(1, 1), meta=True)
    assert gc.isenabled()
    with pytest.raises(UnsupportedError, match="cannot be copied"):
        replicate(Uncopied())
    assert gc.isenabled()
    gc.disable()
    try:
        replicate(nn.Linear(1, 1))
        assert not gc.isenabled()
    finally:
        gc.enable()
