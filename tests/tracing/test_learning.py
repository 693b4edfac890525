"""Operators that play the same part in repeated blocks, and how few trials a network of many blocks needs."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.tracing import probing
from ranp.tracing.ledger import OpRecord
from ranp.tracing.siblings import Siblings
from ranp.tracing.tracer import Tracer
from zoo.video_hara import resnext


def record(name: str, where: str) -> OpRecord:
    return OpRecord(name, where, ())


def test_the_same_part_in_numbered_modules_and_both_modes() -> None:
    steps = [record("view", "blocks.0.gate"), record("add", "blocks.0"), record("view", "blocks.1.gate")]
    found = Siblings({False: steps, True: [*steps, record("view", "blocks.1.gate")]})
    assert found.of((False, 0)) == [(False, 0), (False, 2), (True, 0), (True, 2)]
    assert found.of((False, 1)) == [(False, 1), (True, 1)]
    assert found.of((True, 3)) == [(True, 3)]  # the second view of its module plays another part


class Written(nn.Module):
    """A block whose code is written for a width of six."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Conv3d(width, 2 * width, 1), nn.Conv3d(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(x))).view(x.shape[0], 6, *x.shape[2:])


def trials(blocks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many cut copies ran, and how many channels can go."""
    count = 0
    compare = probing.compare

    def counted(self: Tracer, *args: object) -> object:
        nonlocal count
        count += 1
        return compare(self, *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(probing, "compare", counted)
        model = nn.Sequential(nn.Conv3d(1, 6, 1), *(Written(6) for _ in range(blocks)), nn.Conv3d(6, 2, 1))
        trace = Tracer(model, torch.zeros(1, 1, 2, 2, 2)).trace()
    return count, sum(int((layer.classes != 0).sum()) for layer in trace.layers)


def test_many_blocks_need_no_more_trials_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    few, prunable = trials(3, monkeypatch)
    many, more = trials(60, monkeypatch)
    assert many == few
    assert (prunable, more) == (3 * 12, 60 * 12)  # the inner layers; the residual stream has a written width


def test_a_guess_is_not_taken_for_right_because_its_trial_cuts_nothing() -> None:
    """Widths that keep equal counts in pairs leave a trial nothing to cut: it then passes whatever is guessed."""
    model = resnext((1, 1, 1, 1), n_classes=5, width=32, shortcut="A")
    for block in model.modules():
        if isinstance(shortcut := getattr(block, "downsample", None), partial):
            block.downsample = lambda x, padded=shortcut: padded(x)  # where nobody finds the width
    trace = Tracer(model, torch.zeros(1, 3, 4, 16, 16)).trace()
    held = {layer.name for layer in trace.layers if (layer.classes == 0).any()}
    written = {"conv1", *(f"layer{number}.0.conv3" for number in (1, 2, 3, 4))}  # a width typed into the code
    assert held == {*written, "fc"}


class Masking(nn.Module):
    """Writes into an empty slice, as code that makes the masks of shifted windows does; its widths are typed in."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(3, 8), nn.Linear(8, 12), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, mask = self.b(torch.relu(self.a(x))), torch.zeros(4, 12)
        mask[0:-4] = 1
        y = y + mask.sum()
        return self.head(y.view(-1, 4, 12).flatten(0, 1)).view(x.shape[0], -1)


def test_an_empty_slice_near_a_written_width_is_no_width() -> None:
    trace = ranp.trace(Masking(), torch.randn(2, 4, 3))
    assert [layer.name for layer in trace.layers if not layer.pinned] == ["a"]
