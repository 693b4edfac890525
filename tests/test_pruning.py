"""The pipeline in one call: it is the six steps, leaves the user's things alone, and refuses by name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.errors import DataError, InfeasibleError, PlanMismatchError, UnsupportedError
from ranp.paper.models import UNet3d
from ranp.slimming.initialisation import initialise
from ranp.tracing.probing import Failure
from ranp.tracing.tracer import Tracer

CLASSES = 3
METHODS = ("ranp-f", "ranp-m", "weighted", "vanilla", "layerwise", "random", "snip", "flat", "power")


def unet() -> nn.Module:
    model = UNet3d(1, CLASSES, widths=(8, 16, 32))
    initialise(model, "glorot", seed=1)
    return model


def pairs(count: int = 2, size: int = 8) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(2, 1, size, size, size, generator=generator),
            torch.randint(CLASSES, (2, size, size, size), generator=generator),
        )
        for _ in range(count)
    ]


def prune(**options: Any) -> ranp.Pruned:
    options = {"sparsity": 0.3, **options}
    model, batches = options.pop("model", None) or unet(), options.pop("batches", None) or pairs()
    return ranp.prune(model, batches, nn.functional.cross_entropy, **options)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_verified_network_that_trains(method: str) -> None:
    sparsity = {"snip": 0.97, "ranp-m": 0.25}.get(method, 0.3)  # of weights, for snip
    result = prune(method=method, sparsity=sparsity)
    assert result.verification.ok
    assert result.verification.numeric
    assert result.verification.max_error < 1e-9
    assert result.plan.settings["method"] == method
    modules = dict(result.model.named_modules())
    for name, width in result.plan.widths.items():
        assert modules[name].weight.shape[0] == modules[name].out_channels == width
    assert sum(result.plan.widths.values()) < sum(result.plan.channels.values())
    inputs, target = pairs(1)[0]
    output = result.model(inputs)
    assert output.shape == (2, CLASSES, 8, 8, 8)
    nn.functional.cross_entropy(output, target).backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in result.model.parameters())


@pytest.mark.parametrize(("method", "resource"), [("ranp-f", "flops"), ("ranp-m", "memory")])
def test_it_is_the_six_steps(method: str, resource: str) -> None:
    model, batches = unet(), pairs()
    result = prune(model=model, batches=batches, method=method, strength=7.0)
    trace = ranp.trace(model, batches[0][0])
    scores = ranp.score(model, batches, nn.functional.cross_entropy, trace=trace)
    scores = ranp.reweight(ranp.balance(scores), ranp.measure(trace, resource), 7.0)
    plan = ranp.select(scores, trace, sparsity=0.3)
    slim = ranp.slim(model, plan)
    assert plan.diff(result.plan) == ()
    assert plan.cuts == result.plan.cuts
    assert all(
        torch.equal(a, b) for a, b in zip(slim.state_dict().values(), result.model.state_dict().values(), strict=True)
    )
    assert all(torch.equal(scores[name], result.scores[name]) for name in scores)
    assert ranp.verify(model, result.plan, batches[0][0], slim=result.model).ok


def test_the_users_model_batches_and_random_state_are_left_alone() -> None:
    model, batches = unet(), pairs()
    model.encoders[0].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags = {name: module.training for name, module in model.named_modules()}
    copies = [(x.clone(), y.clone()) for x, y in batches]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    prune(model=model, batches=batches)
    assert torch.equal(torch.get_rng_state(), state)
    assert {name: module.training for name, module in model.named_modules()} == flags
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(batches, copies, strict=True))


def test_same_seed_same_network() -> None:
    first, second = prune(init="glorot", seed=5), prune(init="glorot", seed=5)
    assert first.plan == second.plan
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True)
    )
    other = prune(init="glorot", seed=6)
    assert not torch.equal(first.model.head.weight, other.model.head.weight)


def test_copy_keeps_weights_and_the_paper_draws_new_ones() -> None:
    model = unet()
    copied, drawn = prune(model=model), prune(model=model, init="glorot")
    assert copied.plan.kept == drawn.plan.kept
    layer = "encoders.0.conv2.0"
    kept = list(copied.plan.kept[layer])
    full = dict(model.named_parameters())[f"{layer}.weight"]
    inputs = list(copied.plan.kept["encoders.0.conv1.0"])
    weight = dict(copied.model.named_parameters())[f"{layer}.weight"]
    assert torch.equal(weight, full[kept][:, inputs])
    redrawn = dict(drawn.model.named_parameters())[f"{layer}.weight"]
    assert redrawn.shape == weight.shape
    assert not torch.isclose(redrawn, weight).any()
    assert copied.plan.settings["init"] == "copy"
    assert drawn.plan.settings["init"] == "glorot"


def test_the_example_may_be_larger_than_the_batches_and_hold_no_data() -> None:
    large = torch.empty(1, 1, 16, 16, 16, device="meta")
    result = prune(example=large)
    assert result.report.flops.before == ranp.profile(unet(), large).flops
    assert result.report.flops.before > prune().report.flops.before
    assert result.verification.ok


def test_batches_may_be_a_generator_and_every_batch_is_scored() -> None:
    def stream() -> Iterator[tuple[Tensor, Tensor]]:
        yield from pairs(3)

    seen: list[tuple[int, int | None]] = []
    result = prune(batches=stream(), progress=lambda done, total: seen.append((done, total)))
    assert result.plan.settings["batches"] == 3
    assert seen == [(1, None), (2, None), (3, None)]
    assert result.plan.kept == prune(batches=pairs(3)).plan.kept
    assert prune(batches=pairs(3), max_batches=2).plan.settings["batches"] == 2


def test_inputs_may_be_a_tuple_or_a_dict() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.head = nn.Conv3d(1, 6, 1), nn.Conv3d(1, 6, 1), nn.Conv3d(12, 2, 1)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.head(torch.cat([self.left(left).relu(), self.right(right).relu()], 1))

    torch.manual_seed(0)
    model, left, right = Two(), torch.randn(2, 1, 3, 3, 3), torch.randn(2, 1, 3, 3, 3)
    as_tuple = ranp.prune(model, [((left, right), None)], lambda y, _: y.square().mean(), sparsity=0.3)
    as_dict = ranp.prune(model, [({"left": left, "right": right}, None)], lambda y, _: y.square().mean(), sparsity=0.3)
    assert as_tuple.plan.kept == as_dict.plan.kept
    assert as_tuple.plan.sparsity.removed > 0


def test_options_reach_their_step() -> None:
    kept = prune(keep=["encoders.0.*"])
    assert kept.plan.widths["encoders.0.conv1.0"] == 4
    assert kept.plan.widths["encoders.0.conv2.0"] == 8
    rounded = prune(round_to=4, min_channels=4)
    assert all(width % 4 == 0 or width == rounded.plan.channels[name] for name, width in rounded.plan.widths.items())
    exact = prune(exact=True)
    assert exact.plan.sparsity.measure == "prunable"
    assert abs(exact.plan.sparsity.achieved - 0.3) <= 1 / exact.plan.sparsity.prunable
    assert prune(mode="eval").plan.settings["mode"] == "eval"
    assert prune(method="layerwise", criterion="magnitude").plan.settings["criterion"] == "magnitude"


def test_a_resource_or_a_method_of_ones_own() -> None:
    def everything_alike(trace: ranp.Trace) -> dict[str, float]:
        return {layer.name: 1.0 for layer in trace.layers}

    flat = prune(resource=everything_alike)
    assert flat.plan.settings["resource"] == "everything_alike"
    assert flat.plan.kept == prune(method="weighted").plan.kept
    assert prune(method="weighted", resource="flops").plan.kept == prune(method="ranp-f").plan.kept
    mine = ranp.Method("mine", criterion="magnitude", scope="layer")
    assert prune(method=mine).plan.kept == prune(method="layerwise", criterion="magnitude").plan.kept
    assert prune(strength=0.0).plan.kept == prune(method="weighted").plan.kept


def test_a_size_written_into_the_code_is_found_and_its_layer_kept() -> None:
    class Baked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv3d(1, 8, 1), nn.Conv3d(8, 8, 1)
            self.head = nn.Linear(8 * 8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.second(self.first(x).relu()).relu().view(x.shape[0], 8 * 8))

    torch.manual_seed(0)
    model, x = Baked(), torch.randn(2, 1, 2, 2, 2)
    result = ranp.prune(model, [(x, None)], lambda y, _: y.square().mean(), sparsity=0.3)
    assert result.plan.widths["second"] == 8
    assert result.plan.widths["first"] < 8
    assert result.model(x).shape == (2, 2)
    assert result.verification.ok


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": "flops=5%", "sparsity": 0.5}, UnsupportedError, "are both given"),
        ({"budget": "flop=5%", "sparsity": None}, UnsupportedError, "did you mean 'flops'"),
        ({"budget": [], "sparsity": None}, UnsupportedError, "is empty"),
        ({"budget": "flops=0.001%", "sparsity": None}, InfeasibleError, "The smallest possible is flops="),
        (
            {"budget": "flops=50%", "round_to": "auto", "sparsity": None},
            UnsupportedError,
            "round_to='auto' chooses by time",
        ),
        (
            {"budget": "flops=50%", "round_to": "some", "sparsity": None},
            UnsupportedError,
            "round_to='some' is not allowed",
        ),
        ({"sparsity": None}, UnsupportedError, "Pass sparsity="),
        ({"sparsity": 1.0}, InfeasibleError, "not including, 1"),
        ({"sparsity": math.nan}, InfeasibleError, "sparsity=nan is not allowed. Pass a fraction to remove"),
        ({"sparsity": 0.99}, InfeasibleError, r"largest feasible sparsity here is 0\.\d{4}"),
        ({"method": "rnp-f"}, UnsupportedError, "did you mean 'ranp-f'"),
        ({"criterion": "mpmg"}, UnsupportedError, "unknown criterion 'mpmg'"),
        ({"tie": "min"}, UnsupportedError, "Allowed: max, union"),
        ({"keep": ["nosuch.*"]}, PlanMismatchError, "nosuch"),
        ({"mode": "test"}, UnsupportedError, "unknown mode 'test'"),
        ({"init": "xavier"}, UnsupportedError, "unknown initialisation 'xavier'"),
        ({"batches": iter(())}, DataError, "empty"),
        ({"batches": [torch.zeros(1)]}, DataError, "not a pair"),
    ],
)
def test_refusals_name_the_value_and_the_way_out(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        prune(**options)


def test_the_figure_in_an_infeasible_error_is_feasible() -> None:
    with pytest.raises(InfeasibleError) as caught:
        prune(sparsity=0.99)
    best = float(str(caught.value).split("here is ")[1].split(". Lower")[0])
    assert prune(sparsity=best).verification.ok


def test_layers_that_fail_the_check_are_kept_and_said_to_be(monkeypatch, caplog) -> None:
    """Where nothing is learnt from a failure, the layers it shows in are kept whole."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv3d(1, 8, 1), nn.ReLU(), nn.Conv3d(8, 8, 1), nn.ReLU(), nn.Conv3d(8, 8, 1), nn.ReLU(), nn.Conv3d(8, 2, 1)
    )
    batches = [(torch.randn(2, 1, 4, 4, 4), None)]
    right = ranp.verification.check

    def distrustful(tracer: Tracer, plan: ranp.Plan, slim: nn.Module, **options: object) -> ranp.Verification:
        if plan.widths["2"] == 8:
            return right(tracer, plan, slim, **options)
        records = tracer.runs[False].ledger.records
        index = next(i for i, record in enumerate(records) if record.where == "4")
        failure = Failure(False, index, "strange", "strange")
        return ranp.Verification(False, 1.0, True, False, "strange numbers", failure)

    monkeypatch.setattr(ranp.verification, "check", distrustful)
    monkeypatch.setattr(Tracer, "relearned", lambda tracer, failure: tracer.assembled(tracer.settle()))
    found = ranp.prune(model, batches, lambda output, _: output.square().mean(), sparsity=0.5, method="layerwise")
    assert found.plan.widths == {"0": 4, "2": 8, "4": 4, "6": 2}
    assert "trying again with 2 kept whole: strange numbers" in caplog.text
    assert "a check failed with fewer of its channels" in str(found.report)
    assert found.verification.ok

    monkeypatch.setattr(Tracer, "keeping", lambda tracer, names, reason: tracer.assembled(tracer.settle()))
    with pytest.raises(ranp.UnsupportedError, match=r"strange numbers. Keep these layers .*\(2\) whole, with keep="):
        ranp.prune(model, batches, lambda output, _: output.square().mean(), sparsity=0.5, method="layerwise")
