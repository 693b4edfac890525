"""Whatever a public function is given, what comes out is a result or one sentence of a RanpError."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp import arguments
from ranp.errors import DataError, InfeasibleError, RanpError, UnsupportedError

X, Y = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))


class Odd:
    """An object of no use, which cannot even be shown."""

    def __repr__(self) -> str:
        raise ValueError("no words for it")


def takes_nothing() -> int:
    return 1


def returns_text(*_: Any, **__: Any) -> str:
    return "x"


WRONG: dict[str, Any] = {
    "None": None,
    "five": 5,
    "negative": -1,
    "huge": 2**70,
    "fraction": 1.5,
    "nan": float("nan"),
    "True": True,
    "text": "x",
    "bytes": b"x",
    "list": [5],
    "nested": [[None]],
    "dict": {"a": 5},
    "set": {1, 2},
    "tensor": torch.ones(2),
    "number in a tensor": torch.tensor(3),
    "array": np.ones(2),
    "object": Odd(),
    "class": nn.Linear,
    "function of nothing": takes_nothing,
    "function to text": returns_text,
}


@functools.cache
def made() -> dict[str, Any]:
    """One of every value that the steps pass on."""
    model = build()
    trace = ranp.trace(model, X)
    scores = ranp.score(model, [(X, Y)], F.cross_entropy, trace=trace)
    plan = ranp.select(scores, trace, sparsity=0.3)
    return {"model": model, "trace": trace, "scores": scores, "plan": plan, "slim": ranp.slim(model, plan)}


def trained(_network: nn.Module, _training: Any) -> dict[str, float]:
    return {"loss": 1.0}


def enter(model: Any, example: Any) -> None:
    with ranp.checkpointed(model, example):
        pass


def calls(folder: Path) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public function with arguments that it takes."""
    model, trace, scores, plan, slim = made().values()
    file, other = folder / "network.safetensors", folder / "scores.safetensors"
    ranp.save(file, slim, plan)
    scores.save(other)
    scored = {"model": model, "batches": [(X, Y)], "loss": F.cross_entropy, "criterion": "mpmg-sum", "mode": "train"}
    scored |= {"max_batches": None, "seed": 0, "checkpointing": False, "progress": False}
    chosen = {"keep": (), "tie": "max", "exact": False, "min_channels": 1, "round_to": 1}
    weighed = {"method": "ranp-f", "resource": "flops", "strength": 11.0, "example": X, "init": "copy", "step": None}
    stepped = {"model": model, "example": X, "step": ranp.TrainingStep(), "loss": F.cross_entropy, "target": Y}
    criterion = {"name": "m", "values": torch.mul, "reduction": "sum", "linear": False, "needs": "gradients"}
    method = {"name": "m", "criterion": "mpmg-sum", "balance": True, "resource": "flops", "scope": "network"}
    settings = {"channels": {"a": torch.ones(2)}, "stage": "raw", "criterion": "c", "weights": {}, "excluded": {}}
    return {
        "prune": (ranp.prune, {**scored, **chosen, **weighed, "sparsity": 0.3}),
        "prune to a budget": (functools.partial(ranp.prune, model, [(X, Y)], F.cross_entropy), {"budget": "flops=50%"}),
        "trace": (ranp.trace, {"model": model, "example": X}),
        "score": (ranp.score, {**scored, "trace": trace}),
        "measure": (ranp.measure, {"trace": trace, "resource": "flops", "convention": "paper"}),
        "balance": (ranp.balance, {"scores": scores}),
        "reweight": (ranp.reweight, {"scores": scores, "costs": ranp.measure(trace), "strength": 11}),
        "select": (
            ranp.select,
            {**chosen, "scores": scores, "trace": trace, "sparsity": 0.3, "scope": "network", "seed": 0}
            | {"settings": None},
        ),
        "max_sparsity": (
            ranp.max_sparsity,
            {"scores": scores, "trace": trace, "keep": (), "tie": "max", "scope": "network", "seed": 0},
        ),
        "slim": (ranp.slim, {"model": model, "plan": plan, "init": "glorot", "seed": 0}),
        "verify": (ranp.verify, {"model": model, "plan": plan, "example": X, "slim": slim}),
        "profile": (ranp.profile, {"model": model, "example": X, "convention": "true"}),
        "save": (ranp.save, {"path": file, "model": slim, "plan": plan, "note": "x"}),
        "load": (ranp.load, {"path": file, "build": build}),
        "training_memory": (ranp.training_memory, stepped),
        "step_time": (functools.partial(ranp.step_time, model, X), {"step": ranp.TrainingStep()}),
        "latency": (ranp.latency, {"model": model, "example": X}),
        "tune": (functools.partial(ranp.tune, model, X), {"step": ranp.TrainingStep(), "compile_seconds": 0}),
        "compare": (
            functools.partial(ranp.compare, build, [(X, Y)], F.cross_entropy, trained, out=folder / "compare"),
            {"arms": ("flat",), "budgets": "flops=60%", "reference": "flat", "seeds": 1, "rates": (0.1,)}
            | {"exploration": 1, "random_widths": 0, "random_seeds": 1, "metric": "loss", "goal": "min"}
            | {"fails": None, "init": "paired", "jobs": 1},
        ),
        "checkpointed": (enter, {"model": model, "example": X}),
        "Scores": (ranp.Scores, {**settings, "batches": 0}),
        "Scores.save": (scores.save, {"path": other}),
        "Scores.load": (ranp.Scores.load, {"path": other}),
        "Costs": (ranp.Costs, {"values_by_layer": {"a": 1.0}}),
        "Method": (ranp.Method, method),
        "Criterion": (ranp.Criterion, {**criterion, "on": "weights", "keeps_weights": False}),
        "TrainingStep": (
            ranp.TrainingStep,
            {"batch": None, "optimiser": "adam", "precision": "float32", "checkpointing": False},
        ),
    }


def test_a_wrong_value_is_taken_or_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = calls(tmp_path)
    functions = {name for name in ranp.__all__ if not isinstance(getattr(ranp, name), type)}
    assert functions <= table.keys()
    bare = []
    for name, (function, given) in table.items():
        function(**given)
        for argument in given:
            for what, value in WRONG.items():
                try:
                    function(**{**given, argument: value})
                except RanpError as refusal:
                    said = str(refusal)
                    if "\n" in said or not said:
                        bare.append((name, argument, what, said))
                except Exception as error:
                    bare.append((name, argument, what, repr(error)))
    assert not bare


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": None}, "model=None is not allowed. Pass a network, an nn.Module."),
        ({"model": nn.Linear}, "model is the class Linear. Pass an instance: Linear(...)."),
        ({"model": torch.jit.trace(build(), X)}, "model is TorchScript, whose code cannot be followed. Pass"),
        ({"model": nn.ReLU()}, "the model has no convolution or linear layer to score."),
        ({"batches": None}, "batches=None cannot be iterated. Pass a loader or a list of (inputs, target) pairs."),
        ({"batches": 5}, "batches=5 cannot be iterated."),
        ({"loss": None}, "loss=None is not allowed. Pass a function loss(output, target) that returns a scalar."),
        ({"loss": "x"}, "loss='x' is not allowed."),
        ({"loss": nn.CrossEntropyLoss}, "loss is the class CrossEntropyLoss. Pass an instance: CrossEntropyLoss(...)."),
        ({"seed": -1}, "seed=-1 is not allowed. Pass a whole number from 0 to 2**63 - 1."),
        ({"seed": 2**70}, "seed=1180591620717411303424 is not allowed."),
        ({"seed": 1.5}, "seed=1.5 is not allowed."),
        ({"seed": True}, "seed=True is not allowed."),
        ({"keep": 5}, "keep=5 is not allowed. Pass a list of layer names or fnmatch patterns, such as ['encoder.*']."),
        ({"max_batches": 0}, "max_batches=0 is not allowed. Pass a whole number from 1 on, or None for all batches."),
        ({"max_batches": "a"}, "max_batches='a' is not allowed."),
        ({"sparsity": "0.5"}, "sparsity='0.5' is not allowed. Pass a fraction to remove, a number from 0 up to, not"),
        ({"sparsity": True}, "sparsity=True is not allowed."),
        ({"sparsity": None, "budget": 5}, "budget=5 is not allowed. Pass text such as 'flops=5%', or a list of such"),
        ({"exact": "no"}, "exact='no' is not allowed. Pass True or False."),
        ({"step": 5}, "step=5 is not allowed. Pass a ranp.TrainingStep, or None."),
        ({"example": "x"}, "the network does not run on the example of shapes []: TypeError"),
    ],
)
def test_what_prune_says_to_a_mistake(wrong: dict[str, Any], said: str) -> None:
    given = {"model": build(), "batches": [(X, Y)], "loss": F.cross_entropy, "sparsity": 0.3, **wrong}
    with pytest.raises(RanpError, match=re.escape(said)):
        ranp.prune(**given)


def test_options_are_refused_before_a_batch_is_read() -> None:
    def unread() -> Iterator[Any]:
        pytest.fail("a batch was read")
        yield

    for wrong in ({"keep": 5}, {"tie": "min"}, {"strength": -1}, {"round_to": 0}, {"min_channels": 0}, {"init": "x"}):
        with pytest.raises(RanpError, match=r"not allowed|unknown"):
            ranp.prune(build(), unread(), F.cross_entropy, sparsity=0.3, **wrong)


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_network_is_refused_by_name() -> None:
    quantised = torch.ao.quantization.quantize_dynamic(build(), {nn.Linear})
    for function in (ranp.trace, ranp.profile, ranp.training_memory):
        with pytest.raises(
            UnsupportedError, match=r"model is quantised: '0' \(Linear\) holds packed weights.*Prune the"
        ):
            function(quantised, X)


def test_criteria_that_look_at_weights_alone_need_neither_batches_nor_loss() -> None:
    pruned = ranp.prune(build(), None, None, sparsity=0.3, example=X, criterion="magnitude")  # type: ignore[arg-type]
    assert pruned.plan.sparsity.removed


def test_numbers_of_other_libraries_are_numbers() -> None:
    given = {
        "sparsity": np.float32(0.3),
        "seed": np.int64(3),
        "max_batches": torch.tensor(1),
        "strength": np.float64(2),
    }
    theirs = ranp.prune(build(), [(X, Y)], F.cross_entropy, min_channels=np.int32(2), **given)
    assert theirs.plan.settings["seed"] == 3
    assert type(theirs.plan.settings["seed"]) is int


def stuck_networks() -> dict[str, tuple[nn.Module, dict[str, Any]]]:
    aware = build().train()
    aware.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    return {"kept": (build(), {"keep": "*"}), "quantised": (torch.ao.quantization.prepare_qat(aware), {})}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["kept", "quantised"])
@pytest.mark.parametrize("wish", [{"sparsity": 0.4}, {"sparsity": 0.4, "exact": True}, {"budget": "flops=50%"}])
def test_a_network_that_must_stay_whole_is_no_answer(how: str, wish: dict[str, Any]) -> None:
    model, options = stuck_networks()[how]
    with pytest.raises(
        InfeasibleError, match=r"cannot be met: no channel of this network may be removed \(.*channels: "
    ):
        ranp.prune(model, [(X, Y)], F.cross_entropy, **wish, **options)


def test_asking_for_nothing_of_a_network_that_must_stay_whole_is_fine() -> None:
    for wish in ({"sparsity": 0}, {"budget": "flops=100%"}):
        pruned = ranp.prune(build(), [(X, Y)], F.cross_entropy, keep=["*"], **wish)
        assert pruned.plan.sparsity.removed == 0


def test_inference_mode_around_a_call_changes_nothing() -> None:
    model = build()
    outside = ranp.prune(model, [(X, Y)], F.cross_entropy, sparsity=0.3)
    with torch.inference_mode():
        inside = ranp.prune(model, [(X, Y)], F.cross_entropy, sparsity=0.3)
        slim = ranp.slim(build(), outside.plan)
        assert ranp.trace(model, X).prunable == outside.trace.prunable
    assert inside.plan == outside.plan
    for network in (inside.model, slim):
        F.cross_entropy(network(X), Y).backward()


def line_of(function: Any) -> str:
    return f"{__file__} line {function.__code__.co_firstlineno + 1}"


def test_an_error_in_the_loss_names_the_loss_its_batch_and_its_line() -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return output[target + 100].sum() if seen.append(1) or len(seen) == 2 else F.cross_entropy(output, target)

    seen: list[int] = []
    said = rf"the loss failed in batch 2 \(counting from 1\): IndexError: .*, at {re.escape(line_of(loss))}\."
    with pytest.raises(DataError, match=said) as caught:
        ranp.score(build(), [(X, Y)] * 3, loss, trace=made()["trace"])
    assert isinstance(caught.value.__cause__, IndexError)


class Fails(nn.Module):
    """Runs without data, not with this."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x if x.is_meta or x.sum() < 1e3 else x[:, :2])


def test_an_error_in_the_model_names_the_model_its_batch_and_its_line() -> None:
    model = Fails()
    said = (
        rf"the model failed in batch 2 \(counting from 1\): RuntimeError: .*, at {re.escape(line_of(Fails.forward))}\."
    )
    with pytest.raises(DataError, match=said) as caught:
        ranp.score(model, [(X, Y), (X + 1e4, Y)], F.cross_entropy, trace=ranp.trace(model, X))
    assert isinstance(caught.value.__cause__, RuntimeError)
    said = (
        rf"does not run on the example of shapes \[\(4, 2\)\]: RuntimeError: .*, at {re.escape(line_of(Fails.forward))}"
    )
    with pytest.raises(UnsupportedError, match=said):
        ranp.trace(model, torch.zeros(4, 2))


class Broken(torch.utils.data.Dataset[Any]):
    """A data set of three samples, the last of which cannot be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return (X[index], Y[index]) if index < 2 else self.missing  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_the_loader_names_batches_and_the_line(workers: int) -> None:
    loader = torch.utils.data.DataLoader(Broken(), batch_size=1, num_workers=workers)
    line = re.escape(line_of(Broken.__getitem__))
    said = rf"batches failed at batch 3 \(counting from 1\): AttributeError: .*missing.*, at {line}\."
    with pytest.raises(DataError, match=said) as caught:
        ranp.prune(build(), loader, F.cross_entropy, sparsity=0.3)
    assert isinstance(caught.value.__cause__, AttributeError)


def test_errors_of_other_code_of_the_users_name_it() -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("where is it")

    model, trace, scores, plan, _ = made().values()
    for whose, attempt in {
        "the criterion": lambda: ranp.score(model, [(X, Y)], F.cross_entropy, trace=trace, criterion=fails),
        "progress": lambda: ranp.score(model, [(X, Y)], F.cross_entropy, trace=trace, progress=fails),
        "resource 'fails'": lambda: ranp.measure(trace, fails),
        "scope 'fails'": lambda: ranp.select(scores, trace, sparsity=0.3, scope=fails),
        "init": lambda: ranp.slim(model, plan, init=fails),
    }.items():
        with pytest.raises(
            DataError, match=rf"{whose} failed.*: KeyError: 'where is it', at {re.escape(line_of(fails))}\."
        ):
            attempt()


def test_an_error_of_ours_is_not_taken_for_the_users() -> None:
    with pytest.raises(UnsupportedError, match=r"^as it was$"), arguments.blamed("the loss"):
        raise UnsupportedError("as it was")
