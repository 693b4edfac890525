"""Copies without data, and runs that leave nothing behind."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.utils import weight_norm as hooked_weight_norm

from ranp.errors import UnsupportedError
from ranp.running.calling import call, named_modules, named_parameters, named_tensors, tensors_in, unwrap
from ranp.running.copies import copy_model
from ranp.running.dataless import MetaMode, to_meta
from tests.support.topologies import TOPOLOGIES


def test_meta_copies_hold_no_data_and_integers_keep_theirs() -> None:
    model = nn.Sequential(nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2))
    model[1].register_buffer("order", torch.tensor([1, 0]))
    copy = copy_model(model, meta=True)
    assert all(p.device.type == "meta" for p in copy.parameters())
    assert copy[1].order.tolist() == [1, 0]
    assert copy[1].order is not model[1].order
    assert all(p.device.type == "cpu" for p in model.parameters())


def test_shared_parameters_stay_shared() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    for copy in (copy_model(model, meta=True), copy_model(model, meta=False)):
        assert copy[0].weight is copy[1].weight
        assert copy[0].weight is not model[0].weight


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_computed_by_a_hook_do_not_stop_a_copy() -> None:
    model = hooked_weight_norm(nn.Linear(3, 2))
    model(torch.ones(1, 3))
    assert not model.weight.is_leaf
    copy = copy_model(model, meta=False)
    assert torch.equal(copy(torch.ones(1, 3)), model(torch.ones(1, 3)))


def test_wrappers_are_taken_off() -> None:
    inner = nn.Linear(2, 2)
    assert unwrap(nn.DataParallel(inner)) is inner
    assert unwrap(torch.compile(nn.DataParallel(inner))) is inner


def test_lazy_modules_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"'0\.weight' is not initialised.*Run the model once"):
        copy_model(nn.Sequential(nn.LazyLinear(3)), meta=True)


def test_inputs_follow_the_batch_convention() -> None:
    class Sum(nn.Module):
        def forward(self, a, b=0):
            return a[0] + b if isinstance(a, list) else a + b

    assert call(Sum(), (1, 2)) == 3
    assert call(Sum(), {"a": 1, "b": 4}) == 5
    assert call(Sum(), [7]) == 7
    assert call(Sum(), 2) == 2


def test_tensors_are_found_in_any_container() -> None:
    @dataclass
    class Plain:
        value: torch.Tensor

    @dataclass(slots=True)
    class Slotted:
        value: torch.Tensor

    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    assert [t.numel() for t in tensors_in({"x": [a, None, (b,)], "y": Plain(c)})] == [1, 2, 3]
    assert [t.numel() for t in tensors_in([Slotted(b)])] == [2]


def test_code_for_a_real_device_runs_without_data() -> None:
    class Code(nn.Module):
        def forward(self, x):
            grid = torch.linspace(0, 1, x.shape[-1], device="cpu")
            volume = torch.zeros(x.shape, device="cpu")
            volume[:, :1] = x[:, :1]
            order = torch.arange(x.shape[1] - 1, -1, -1)
            return (volume.cpu() + grid)[:, order]

    with torch.no_grad(), MetaMode():
        out = Code()(to_meta(torch.zeros(2, 3, 4)))
    assert out.shape == (2, 3, 4)
    assert out.device.type == "meta"


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_flat_walks_give_what_torch_gives(name: str) -> None:
    model = TOPOLOGIES[name].build()
    assert named_modules(model) == list(model.named_modules())
    parameters, buffers = list(model.named_parameters()), list(model.named_buffers())
    for ours, torchs in (
        (list(named_parameters(model)), parameters),
        (list(named_tensors(model)), [*parameters, *buffers]),
    ):
        assert [name for name, _ in ours] == [name for name, _ in torchs]
        assert all(one is other for (_, one), (_, other) in zip(ours, torchs, strict=True))


def test_a_walk_ends_where_modules_hold_each_other() -> None:
    inner, outer = nn.Module(), nn.Module()
    outer.inner, outer.again = inner, inner
    outer.register_module("none", None)
    inner.outer = outer
    assert named_modules(outer) == [("", outer), ("inner", inner)]
