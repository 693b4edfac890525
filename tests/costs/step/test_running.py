"""A step trace against the step that really runs, operator by operator, and against what it may not do."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ranp.costs.step import StepTrace, TrainingStep, recorder, trace_step
from ranp.costs.step.records import OPTIMISERS
from ranp.errors import UnsupportedError
from ranp.running import copies
from ranp.running.operators import flat_tensors
from tests.support.training_networks import NETWORKS, TinyUNet, network


class Log(TorchDispatchMode):
    """What really runs: names, shapes and types."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not str(func).startswith(("prim.", "profiler.")):
            came, left = ([(tuple(t.shape), t.dtype) for t in flat_tensors(tree)] for tree in ((args, kwargs), out))
            self.seen.append((str(func), came, left))
        return out


def real_step(model: nn.Module, x: Tensor, target: Tensor, optimiser: torch.optim.Optimizer, amp: bool) -> list[Any]:
    for _ in range(2):
        optimiser.zero_grad(set_to_none=True)
        with Log() as log:
            with torch.autocast("cpu", torch.bfloat16, enabled=amp):
                output = model(x)
                value = F.cross_entropy(output, target)
            value.backward()
            optimiser.step()
    return log.seen


@pytest.mark.hardware
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("amp", [False, True])
def test_is_the_real_step_operator_by_operator(name: str, amp: bool) -> None:
    model, x = network(name)
    seen = trace_step(model, x, step=TrainingStep(precision="amp-bfloat16" if amp else "float32"))
    labels = next(s for s in seen.storages if s.kind == "input" and s.dtype == torch.int64)
    real = real_step(
        model.train(), x, torch.zeros(labels.shape, dtype=torch.int64), torch.optim.Adam(model.parameters()), amp
    )
    assert [call.op for call in seen.calls] == [op for op, _, _ in real]
    for call, (_, came, left) in zip(seen.calls, real, strict=True):
        assert [(x.shape, x.dtype) for x in call.inputs] == came, call
        assert [(x.shape, x.dtype) for x in call.outputs] == left, call


@pytest.mark.parametrize("name", OPTIMISERS)
def test_state_is_what_torch_keeps(name: str) -> None:
    model, x = network("unet")
    seen = trace_step(model, x, step=TrainingStep(optimiser=name))
    optimiser = {
        "sgd": lambda p: torch.optim.SGD(p), "momentum": lambda p: torch.optim.SGD(p, momentum=0.9),
        "nesterov": lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True),
        "adam": torch.optim.Adam, "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
        "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop, "none": None,
    }[name]  # fmt: skip
    kept = 0
    if optimiser is not None:
        real = optimiser(model.parameters())
        model(x).sum().backward()
        real.step()
        entries = [item for state in real.state.values() for item in state.values()]
        kept = sum(item.nbytes for item in entries if isinstance(item, Tensor))
    assert sum(s.bytes for s in seen.storages if s.kind == "state") == kept
    assert any(call.phase == "optimiser" for call in seen.calls) == (name != "none")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_every_storage_lives_once_and_only_while_it_lives(name: str, checkpointing: bool) -> None:
    model, x = network(name)
    seen = trace_step(model, x, step=TrainingStep(checkpointing=checkpointing))
    end = len(seen.calls)
    made = [call_index for call_index, call in enumerate(seen.calls) for _ in call.outputs]
    assert made
    for number, storage in enumerate(seen.storages):
        assert -1 <= storage.born <= storage.dies <= end
        if storage.kind in ("parameter", "buffer", "input", "state"):
            assert (storage.born, storage.dies) == (-1, end)
        else:
            assert any(tensor.storage == number for tensor in seen.calls[storage.born].outputs)
        if storage.kind == "gradient":
            assert storage.dies == end
            assert seen.calls[storage.born].phase == "backward"
    for index, call in enumerate(seen.calls):
        for tensor in (*call.inputs, *call.outputs):
            assert seen.storages[tensor.storage].born <= index <= seen.storages[tensor.storage].dies
            assert tensor.bytes <= seen.storages[tensor.storage].bytes or tensor.scattered
    by_kind = {kind: sum(s.bytes for s in seen.storages if s.kind == kind) for kind in ("parameter", "gradient")}
    assert by_kind["parameter"] == by_kind["gradient"] == sum(p.nbytes for p in model.parameters())


def same(first: StepTrace, second: StepTrace) -> bool:
    return first.calls == second.calls and first.storages == second.storages


def test_is_the_same_every_time_and_on_meta() -> None:
    model, x = network("unet")
    first = trace_step(model, x)
    assert same(first, trace_step(model, x))
    assert same(first, trace_step(copies.copy_model(model, meta=True), x.to("meta")))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16"])
def test_shortcuts_change_nothing(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(name)
    step = TrainingStep(precision=precision, optimiser="rmsprop")
    quick = trace_step(model, x, step=step)
    monkeypatch.setattr(recorder, "shortcut", lambda *_: None)
    assert same(quick, trace_step(model, x, step=step))


def test_other_widths_run_the_same_operators_with_the_same_settings() -> None:
    x = torch.empty(2, 1, 8, 8, 8, device="meta")
    wide, slim = trace_step(TinyUNet(12), x), trace_step(TinyUNet(5), x)
    assert [call.op for call in wide.calls] == [call.op for call in slim.calls]
    views = ("aten.slice", "aten.split", "aten.narrow")
    differing = {a.op for a, b in zip(wide.calls, slim.calls, strict=True) if a.settings != b.settings}
    assert all(op.startswith(views) for op in differing), differing


def test_leaves_the_model_alone() -> None:
    model, x = network("unet")
    model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.get_rng_state()
    trace_step(model, x, step=TrainingStep(checkpointing=True))
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())


def test_backward_belongs_to_the_module_that_ran_forward() -> None:
    model, x = network("unet")
    seen = trace_step(model, x)
    forward = [call.module for call in seen.calls if call.op == "aten.convolution.default"]
    backward = [call.module for call in seen.calls if call.op == "aten.convolution_backward.default"]
    assert forward == ["first.0", "deep.0", "last.0", "head"]
    assert backward == forward[::-1]
    owners = {s.module for s in seen.storages if s.kind == "gradient"}
    assert owners == {name.rpartition(".")[0] for name, _ in model.named_parameters()}


def test_inference_keeps_nothing() -> None:
    model, x = network("unet")
    seen = trace_step(model.train(), x, step=None)
    assert {call.phase for call in seen.calls} == {"forward"}
    assert {s.kind for s in seen.storages} == {"parameter", "buffer", "input", "activation"}
    outliving = [s for s in seen.storages if s.kind == "activation" and s.dies == len(seen.calls)]
    assert [s.shape for s in outliving] == [(2, 3, 16, 16, 16)]


def test_autocast_computes_in_half_and_keeps_single() -> None:
    model, x = network("unet")
    seen = trace_step(model, x, step=TrainingStep(precision="amp-bfloat16"))
    convolutions = [call for call in seen.calls if call.op.startswith("aten.convolution")]
    assert {x.dtype for call in convolutions for x in call.inputs} == {torch.bfloat16}
    assert {s.dtype for s in seen.storages if s.kind in ("parameter", "gradient")} == {torch.float32}
    casts = [s for s in seen.storages if s.shape == (16, 8, 3, 3, 3) and s.dtype == torch.bfloat16]
    loss_begins = next(i for i, call in enumerate(seen.calls) if call.phase == "loss")
    assert casts[0].born < loss_begins < casts[0].dies


@pytest.mark.parametrize(("precision", "dtype"), [("float64", torch.float64), ("bfloat16", torch.bfloat16)])
def test_whole_network_in_another_precision(precision: str, dtype: torch.dtype) -> None:
    model, x = network("residual")
    seen = trace_step(model, x, step=TrainingStep(precision=precision))
    kinds = ("parameter", "gradient", "activation")
    assert {s.dtype for s in seen.storages if s.kind in kinds and s.dtype.is_floating_point} == {dtype}


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batch_is_that_of_the_step(batch: int) -> None:
    model, x = network("residual")
    asked = trace_step(model, x, step=TrainingStep(batch=batch))
    given = trace_step(model, torch.empty(batch, *x.shape[1:], device="meta"))
    assert same(asked, given)


def test_batch_of_one_that_norms_refuse_becomes_two() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    seen = trace_step(model, torch.empty(1, 4))
    assert seen.step is not None
    assert seen.step.batch == 2
    assert same(seen, trace_step(model, torch.empty(2, 4)))


def test_loss_and_target_are_the_users() -> None:
    model, x = network("residual")
    target = torch.zeros(1, 2, 12, 12, 12)
    seen = trace_step(model, x, loss=lambda output, wanted: (output - wanted).abs().mean(), target=target)
    assert next(call.op for call in seen.calls if call.phase == "loss") == "aten.sub.Tensor"
    assert sum(s.bytes for s in seen.storages if s.kind == "input") == x.nbytes + target.nbytes


def test_integer_inputs_may_be_asked_for_their_values() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.words(x[:, : int(x.max())])).mean(1)

    seen = trace_step(Words(), torch.tensor([[1, 2, 3, 0], [1, 1, 1, 1]]))
    assert next(call for call in seen.calls if "embedding" in call.op).outputs[0].shape == (2, 3, 4)


def test_network_that_asks_for_values_is_refused() -> None:
    class Gated(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(UnsupportedError, match="Gated cannot run a step without data"):
        trace_step(Gated(3, 3), torch.ones(2, 3))


def test_wrong_example_is_refused_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnsupportedError, match="cannot run a step without data"):
        trace_step(TinyUNet(), torch.empty(2, 7, 8, 8, 8))
    assert not caplog.records


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"optimiser": "adm"}, "unknown optimiser 'adm'; did you mean 'adam'"),
        ({"optimizer": "adm"}, "unknown optimiser 'adm'; did you mean 'adam'"),
        ({"optimizer": "sgd", "optimiser": "adam"}, "are the same. Pass one of them"),
        ({"precision": "float8"}, "unknown precision 'float8'"),
        ({"batch": 0}, "batch=0"),
    ],
)
def test_unknown_names_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UnsupportedError, match=match):
        TrainingStep(**options)


def test_both_spellings_make_the_same_step() -> None:
    step = TrainingStep(4, optimizer="sgd")
    assert step == TrainingStep(4, "sgd")
    assert step.optimizer == step.optimiser == "sgd"
    assert replace(step, optimiser="adam") == TrainingStep(4)
    assert pickle.loads(pickle.dumps(step)) == step
    assert asdict(step) == {"batch": 4, "optimiser": "sgd", "precision": "float32", "checkpointing": False}
