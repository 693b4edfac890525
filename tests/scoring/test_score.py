"""Scores against brute force: masks of ones on weights or channels, differentiated in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

import ranp
from ranp.errors import DataError, UnsupportedError
from ranp.scoring.criteria import CRITERIA, Criterion
from ranp.scoring.score import score, score_many
from ranp.scoring.tally import ALL_ZERO, NO_GRADIENT
from ranp.tracing.trace import Layer, Trace
from tests.support.scored import channel_masks, expected, rows, trace_of, weight_masks

WEIGHT_CRITERIA = [f"{kind}-{how}" for kind in ("mpmg", "mnmg") for how in ("sum", "mean", "max")] + ["snip"]


class Pooled(nn.Module):
    """Layers one after the other, then the mean over space, and a linear layer."""

    def __init__(self, *layers: nn.Module, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(2).mean(2))


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    return {
        "conv1d": (Pooled(nn.Conv1d(3, 5, 3), nn.Tanh(), nn.Conv1d(5, 4, 3), width=4), (2, 3, 9)),
        "conv2d": (Pooled(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, (1, 3), bias=False), width=4), (2, 3, 7, 7)),
        "conv3d": (Pooled(nn.Conv3d(2, 4, 3), nn.ReLU(), nn.Conv3d(4, 6, 2), width=6), (2, 2, 5, 5, 5)),
        "transposed": (
            Pooled(nn.ConvTranspose3d(2, 5, 2, 2), nn.ReLU(), nn.ConvTranspose3d(5, 3, 3), width=3),
            (2, 2, 3, 3, 3),
        ),
        "transposed1d": (Pooled(nn.ConvTranspose1d(2, 5, 2), nn.Tanh(), nn.Conv1d(5, 3, 2), width=3), (2, 2, 4)),
        "grouped": (
            Pooled(nn.Conv3d(4, 6, 2, groups=2), nn.ReLU(), nn.Conv3d(6, 3, 1, groups=3), width=3),
            (2, 4, 4, 4, 4),
        ),
        "depthwise": (
            Pooled(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 8, 1, groups=4), width=8),
            (2, 4, 5, 5),
        ),
        "grouped transposed": (
            Pooled(nn.ConvTranspose2d(6, 4, 3, groups=2), nn.ReLU(), nn.ConvTranspose2d(4, 8, 2, groups=4), width=8),
            (2, 6, 4, 4),
        ),
        "linear": (nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.Linear(4, 3)), (4, 6)),
        "norms": (
            Pooled(
                nn.Conv3d(2, 4, 3, bias=False), nn.BatchNorm3d(4), nn.ReLU(inplace=True),
                nn.ConvTranspose3d(4, 6, 2, stride=2), nn.GroupNorm(3, 6), nn.LeakyReLU(0.2, inplace=True),
                nn.Conv3d(6, 4, 1), nn.InstanceNorm3d(4, affine=True), width=4,
            ),
            (2, 2, 5, 5, 5),
        ),
    }  # fmt: skip


def batches_for(shape: tuple[int, ...], count: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    return [
        (
            torch.randn(shape, generator=generator, dtype=torch.float64),
            torch.randint(0, 3, shape[:1], generator=generator),
        )
        for _ in range(count)
    ]


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("criterion", WEIGHT_CRITERIA)
@pytest.mark.parametrize("name", networks())
def test_equals_masks_on_the_weights(name: str, criterion: str):
    model, shape = networks()[name]
    model.double()
    batches, trace = batches_for(shape), trace_of(model)
    scores = score(model, batches, F.cross_entropy, trace=trace, criterion=criterion)
    wanted = expected(model, trace, batches, F.cross_entropy, criterion)
    assert list(scores) == [layer.name for layer in trace.layers]
    assert (scores.stage, scores.criterion, scores.batches, scores.excluded) == ("raw", criterion, 3, {})
    for layer in trace.layers:
        assert scores[layer.name].shape == (layer.channels,)
        close(scores[layer.name], wanted[layer.name])


@pytest.mark.parametrize("name", networks())
def test_neuron_mask_equals_a_mask_on_the_channels(name: str):
    model, shape = networks()[name]
    model.double()
    norms = {"body.0": "body.1", "body.3": "body.4", "body.6": "body.7"} if name == "norms" else {}
    for module in model.modules():
        if isinstance(module, nn.BatchNorm3d | nn.GroupNorm | nn.InstanceNorm3d):
            nn.init.normal_(module.weight), nn.init.normal_(module.bias)
    batches, trace = batches_for(shape), trace_of(model, norms)
    scores = score(model, batches, F.cross_entropy, trace=trace, criterion="neuron-mask")
    for layer, wanted in channel_masks(model, trace, batches, F.cross_entropy).items():
        close(scores[layer], wanted)


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm3d(4, affine=False),
        nn.InstanceNorm3d(4),
        nn.InstanceNorm3d(4, track_running_stats=True),
        nn.GroupNorm(2, 4, affine=False),
        nn.LayerNorm([4, 3, 3, 3]),
        nn.LayerNorm([4, 3, 3, 3], elementwise_affine=False),
        nn.LayerNorm([3, 3]),
    ],
    ids=repr,
)
def test_neuron_mask_behind_any_norm(norm: nn.Module):
    """The activation works in place: what it overwrites must not be read as the norm's output."""
    torch.manual_seed(1)
    model = Pooled(nn.Conv3d(2, 4, 3), norm, nn.LeakyReLU(0.3, inplace=True), nn.Conv3d(4, 4, 1), width=4).double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    batches, trace = batches_for((2, 2, 5, 5, 5)), trace_of(model, {"body.0": "body.1"})
    scores = score(model, batches, F.cross_entropy, trace=trace, criterion="neuron-mask")
    for layer, wanted in channel_masks(model, trace, batches, F.cross_entropy).items():
        close(scores[layer], wanted)


def test_neuron_mask_behind_a_norm_of_linear_features():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 4), nn.LayerNorm(4, elementwise_affine=False)
    )
    model.double()
    nn.init.normal_(model[1].weight), nn.init.normal_(model[1].bias)
    batches, trace = batches_for((3, 6)), trace_of(model, {"0": "1", "3": "4"})
    scores = score(model, batches, F.cross_entropy, trace=trace, criterion="neuron-mask")
    for layer, wanted in channel_masks(model, trace, batches, F.cross_entropy).items():
        close(scores[layer], wanted)


def test_proposition_1_for_a_conv_without_bias_before_relu():
    """The gradient of a mask on the activation is the sum of those of the masks on the weights."""
    torch.manual_seed(2)
    model = Pooled(nn.Conv3d(2, 6, 3, bias=False), nn.ReLU(), width=6).double()
    batches, trace = batches_for((2, 2, 5, 5, 5)), trace_of(model)
    after_relu = trace_of(model, {"body.0": "body.1"})  # the brute force then masks the output of the ReLU
    wanted = channel_masks(model, after_relu, batches, F.cross_entropy)["body.0"]
    close(score(model, batches, F.cross_entropy, trace=trace, criterion="mnmg-sum")["body.0"], wanted)
    close(score(model, batches, F.cross_entropy, trace=trace, criterion="neuron-mask")["body.0"], wanted)


def test_batch_norm_in_train_mode_breaks_proposition_1():
    """A conv before it is scale-invariant: MNMG collapses, MPMG and the mask behind the norm do not."""
    torch.manual_seed(3)
    model = Pooled(nn.Conv3d(2, 6, 3, bias=False), nn.BatchNorm3d(6, eps=1e-18), nn.ReLU(), width=6).double()
    batches = batches_for((2, 2, 5, 5, 5))
    trace = trace_of(model, {"body.0": "body.1"})
    by = {
        criterion: score(model, batches, F.cross_entropy, trace=trace, criterion=criterion)["body.0"]
        for criterion in ("mpmg-sum", "mnmg-sum", "neuron-mask")
    }
    assert (by["mnmg-sum"] < 1e-10 * by["mpmg-sum"]).all()
    assert (by["neuron-mask"] > 1e-4 * by["mpmg-sum"]).all()
    in_eval = score(model, batches, F.cross_entropy, trace=trace, criterion="mnmg-sum", mode="eval")["body.0"]
    assert (in_eval > 1e-6 * by["mpmg-sum"]).all()


def test_snip_keeps_single_weights():
    model, shape = networks()["grouped transposed"]
    model.double()
    batches, trace = batches_for(shape), trace_of(model)
    scores = score(model, batches, F.cross_entropy, trace=trace, criterion="snip")
    found = weight_masks(model, trace, batches, F.cross_entropy)
    for index, layer in enumerate(trace.layers):
        close(scores.weights[layer.name], torch.stack([masks[index] for masks in found]).mean(0).abs())
        close(scores[layer.name], rows(scores.weights[layer.name], model.get_submodule(layer.name)).sum(1))
    assert not score(model, batches, F.cross_entropy, trace=trace).weights


def test_magnitude_and_random_need_no_batches():
    model, _ = networks()["grouped transposed"]
    trace = trace_of(model)
    scores = score(model, [], F.cross_entropy, trace=trace, criterion="magnitude")
    for layer in trace.layers:
        module = model.get_submodule(layer.name)
        close(scores[layer.name], rows(module.weight.detach().abs(), module).sum(1).double())
    first, again, other = (
        score(model, [], F.cross_entropy, trace=trace, criterion="random", seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    flat = torch.cat(list(first.values()))
    assert len(flat.unique()) == len(flat) == trace.channels
    assert (flat.min() >= 0).item()
    assert (flat.max() < 1).item()
    assert first.batches == scores.batches == 0


def test_a_callable_is_a_criterion():
    model, shape = networks()["grouped transposed"]
    model.double()
    batches, trace = batches_for(shape), trace_of(model)

    def taylor(weight: Tensor, gradient: Tensor) -> Tensor:
        return (weight * gradient) ** 2

    scores = score(model, batches, F.cross_entropy, trace=trace, criterion=taylor)
    assert scores.criterion == "taylor"
    found = weight_masks(model, trace, batches, F.cross_entropy)
    for index, layer in enumerate(trace.layers):
        mean = torch.stack([masks[index] ** 2 for masks in found]).mean(0)
        close(scores[layer.name], rows(mean, model.get_submodule(layer.name)).sum(1))

    largest = score(model, batches, F.cross_entropy, trace=trace, criterion=Criterion("largest", taylor, "max"))
    for index, layer in enumerate(trace.layers):
        mean = torch.stack([masks[index] ** 2 for masks in found]).mean(0)
        close(largest[layer.name], rows(mean, model.get_submodule(layer.name)).amax(1))

    plain, shape = networks()["conv3d"]
    plain.double()
    per_channel = score(
        plain,
        batches_for(shape),
        F.cross_entropy,
        trace=trace_of(plain),
        criterion=lambda w, g: (w * g).flatten(1).norm(dim=1),
    )
    found = weight_masks(plain, trace_of(plain), batches_for(shape), F.cross_entropy)
    close(per_channel["body.0"], torch.stack([masks[0].flatten(1).norm(dim=1) for masks in found]).mean(0))


def test_a_callable_that_returns_the_weight_itself_harms_nothing():
    model, shape = networks()["conv3d"]
    before = model.body[0].weight.detach().clone()
    keeps = Criterion("keeps", lambda weight, gradient: weight, "max")
    score(
        model, [(x.float(), y) for x, y in batches_for(shape)], F.cross_entropy, trace=trace_of(model), criterion=keeps
    )
    assert torch.equal(model.body[0].weight, before)


class Shared(nn.Module):
    """One module called twice, one weight in two layers, one weight used by function call."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Conv2d(3, 3, 3, padding=1)
        self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.right.weight = self.left.weight
        self.matrix = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.twice(x).relu()).relu()
        return (self.left(x) * self.right(x)).mean((2, 3)) @ self.matrix


def test_shared_modules_shared_weights_and_weights_used_by_function():
    torch.manual_seed(4)
    model = Shared().double()
    layers = [layer for layer in trace_of(model).layers if layer.name != "right"]
    by_hand = Layer("matrix", "parameter", "matrix", 1, 0, 1, 3, layers[0].classes)
    trace = Trace((*layers, trace_of(model).layer("right"), by_hand), {})
    batches = batches_for((2, 3, 5, 5))
    scores = score(model, batches, F.cross_entropy, trace=trace)
    found = weight_masks(model, Trace((*layers, by_hand), {}), batches, F.cross_entropy)
    mean = [torch.stack([masks[i].abs() for masks in found]).mean(0) for i in range(3)]
    close(scores["twice"], mean[0].sum((1, 2, 3)))
    close(scores["matrix"], mean[2].sum(0))
    # The mask of the brute force reaches both layers: functional_call replaces tied weights together.
    close(scores["left"], mean[1].sum((1, 2, 3)))
    assert torch.equal(scores["left"], scores["right"])


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("how", ["weight_norm", "spectral_norm", "old weight_norm", "old spectral_norm", "prune"])
def test_the_effective_weight_is_scored(how: str):
    torch.manual_seed(5)
    model = Pooled(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3), width=4).double()
    model.eval()
    names = {
        "weight_norm": "body.0.parametrizations.weight.original1",
        "spectral_norm": "body.0.parametrizations.weight.original",
        "old weight_norm": "body.0.weight_v",
        "old spectral_norm": "body.0.weight_orig",
        "prune": "body.0.weight_orig",
    }
    {
        "weight_norm": parametrizations.weight_norm,
        "spectral_norm": parametrizations.spectral_norm,
        "old weight_norm": nn.utils.weight_norm,
        "old spectral_norm": nn.utils.spectral_norm,
        "prune": lambda module: prune.random_unstructured(module, "weight", 0.3),
    }[how](model.body[0])
    batches = batches_for((2, 3, 7, 7))
    model(batches[0][0])  # the old hooks then hold a computed, non-leaf tensor, which deepcopy alone refuses
    plain = Pooled(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3), width=4).double()
    with torch.no_grad():
        for ours, theirs in ((plain.body[0], model.body[0]), (plain.body[2], model.body[2]), (plain.head, model.head)):
            ours.weight.copy_(theirs.weight), ours.bias.copy_(theirs.bias)
    trace = trace_of(plain)
    first = trace.layers[0]
    renamed = Layer(first.name, "conv", names[how], 0, 1, 1, first.channels, first.classes)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    scores = score(model, batches, F.cross_entropy, trace=Trace((renamed, *trace.layers[1:]), {}), mode="eval")
    wanted = expected(plain, trace, batches, F.cross_entropy, "mpmg-sum")
    for layer in trace.layers:
        close(scores[layer.name], wanted[layer.name])
    assert names[how] in model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_layers_without_gradient_and_with_zeros_are_excluded_with_a_reason():
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.alive, self.zero, self.unused = (nn.Linear(3, 3) for _ in range(4))
            self.register_buffer("fixed", torch.eye(3))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.cut(x)
            return (self.alive(x) + self.zero(torch.zeros_like(x))) @ self.fixed

    torch.manual_seed(0)
    model = Partly()
    fixed = Layer("fixed", "parameter", "fixed", 1, 0, 1, 3, trace_of(model).layers[0].classes)
    trace = Trace((*trace_of(model).layers, fixed), {})
    for criterion in ("mpmg-sum", "mnmg-max", "snip"):
        scores = score(
            model, [(torch.randn(4, 3), None)], lambda y, _: y.pow(2).sum(), trace=trace, criterion=criterion
        )
        assert scores.excluded == {
            "cut": NO_GRADIENT,
            "unused": NO_GRADIENT,
            "zero": ALL_ZERO,
            "fixed": "its weight 'fixed' is a buffer, not a parameter",
        }
        assert scores.included == ("alive",)
        assert not scores["cut"].any()
        assert len(scores) == 5


def test_makes_its_own_trace_from_the_first_batch():
    torch.manual_seed(0)
    model = Pooled(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4), nn.ReLU(), width=4)
    batches = [(x.float(), y) for x, y in batches_for((2, 2, 5, 5, 5))]
    own = score(model, iter(batches), F.cross_entropy)
    assert own == score(model, batches, F.cross_entropy, trace=trace_of(model))
    assert own.batches == 3


class Residual(nn.Module):
    """Two layers that meet in an addition, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.head = (
            nn.Conv3d(2, 4, 1),
            nn.Conv3d(4, 4, 3, padding=1, bias=False),
            nn.Conv3d(4, 3, 1),
        )
        self.first, self.second = nn.BatchNorm3d(4), nn.GroupNorm(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.stem(x)).relu()
        return self.head(x + self.second(self.body(x)).relu()).mean((2, 3, 4))


def test_groups_add_up_everything_that_goes_with_a_channel():
    torch.manual_seed(0)
    model = Residual().double()
    batches, total = batches_for((2, 2, 4, 4, 4)), torch.zeros(4, dtype=torch.float64)
    own = torch.zeros(3, dtype=torch.float64)
    for inputs, target in batches:
        model.zero_grad()
        F.cross_entropy(model(inputs), target).backward()
        here = {name: (value * value.grad).abs().detach() for name, value in model.named_parameters()}
        for name in ("stem.weight", "body.weight"):
            total += here[name].flatten(1).sum(1)
        for name in ("body.weight", "head.weight"):
            total += here[name].transpose(0, 1).flatten(1).sum(1)
        for name in ("stem.bias", "first.weight", "first.bias", "second.weight", "second.bias"):
            total += here[name]
        own += here["head.weight"].flatten(1).sum(1)
    model.zero_grad()
    scores = score(model, batches, F.cross_entropy, criterion="mpmg-group")
    for layer in ("stem", "body"):
        close(scores[layer], total / len(batches))
    close(scores["head"], own / len(batches))  # its channels stay: nothing goes with them


class Twice(Residual):
    """Runs its body twice, so that its gradient comes in two parts where each is checkpointed by itself."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.stem(x)).relu()
        for _ in range(2):
            x = x + (self.body(x) if self.reentrant is None else self._checkpointed(x))
        return self.head(self.second(x).relu()).mean((2, 3, 4))

    def _checkpointed(self, x: torch.Tensor) -> torch.Tensor:
        CHECKPOINTED.append(self.reentrant)
        return checkpoint(self.body, x, use_reentrant=self.reentrant)


CHECKPOINTED: list[bool | None] = []


@pytest.mark.parametrize("reentrant", [True, False])
def test_groups_beside_other_criteria_and_checkpointed_twice(reentrant: bool):
    torch.manual_seed(0)
    model, other = Twice().double(), Twice(reentrant).double()
    other.load_state_dict(model.state_dict())
    batches = batches_for((2, 2, 4, 4, 4))
    trace = ranp.trace(model, batches[0][0])
    alone = score(model, batches, F.cross_entropy, trace=trace, criterion="mpmg-group")
    CHECKPOINTED.clear()
    many = score_many(other, batches, F.cross_entropy, ["mpmg-sum", "mpmg-group", "snip"], trace=trace)
    assert CHECKPOINTED
    assert set(CHECKPOINTED) == {reentrant}
    for layer in ("stem", "body", "head"):
        close(many["mpmg-group"][layer], alone[layer])


def test_a_criterion_on_groups_is_a_sum_over_elements():
    with pytest.raises(UnsupportedError, match="can only be added up"):
        Criterion("largest", lambda weight, gradient: gradient, "max", on="groups")
    rule = Criterion("rows", lambda weight, gradient: gradient.flatten(1).sum(1), on="groups")
    with pytest.raises(DataError, match="one value for each of its elements"):
        score(Residual().double(), batches_for((2, 2, 4, 4, 4)), F.cross_entropy, criterion=rule)


def test_registry_holds_the_contract():
    assert set(CRITERIA.names()) == {*WEIGHT_CRITERIA, "neuron-mask", "mpmg-group", "magnitude", "random"}
