"""Recorders against hand-written calls, against torch's own FLOP counter, and against a real backward graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.flop_counter import FlopCounterMode

from ranp.running.flops import OpRecorder, true_flops
from ranp.running.recording import LeafCall, LeafRecorder, ModuleStack, SavedRecorder, kind_of, leaf_modules


def calls_of(model: nn.Module, *inputs: object, **keywords: object) -> list[LeafCall]:
    with torch.no_grad(), LeafRecorder(model.eval()) as recorder:
        model(*inputs, **keywords)
    return recorder.calls


class Standardised(nn.Conv3d):
    """A specialised convolution."""


class Gate(nn.Module):
    """A leaf of the user's own."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.sigmoid()


def test_a_subclass_counts_as_its_nearest_torch_class() -> None:
    assert kind_of(Standardised(1, 1, 1)) == "Conv3d"
    assert kind_of(nn.MultiheadAttention(4, 2).out_proj) == "Linear"  # torch's own, unlisted subclass
    assert kind_of(Gate()) == "Gate"
    assert kind_of(parametrizations.weight_norm(nn.Conv2d(2, 2, 1))) == "Conv2d"


def test_calls_are_recorded_in_order_with_shapes_from_tensors() -> None:
    net = nn.Sequential(nn.Conv3d(4, 6, 3, padding=1, groups=2), nn.BatchNorm3d(6), nn.MaxPool3d((1, 2, 2)), Gate())
    first, norm, pool, gate = calls_of(net, torch.zeros(2, 4, 4, 4, 4))
    shape = (2, 6, 4, 4, 4)
    assert first == LeafCall("0", "Conv3d", (6, 2, 3, 3, 3), True, (), (2, 4, 4, 4, 4), shape, groups=2)
    assert norm == LeafCall("1", "BatchNorm3d", (6,), True, (), shape, shape)
    assert pool == LeafCall("2", "MaxPool3d", (), False, (1, 2, 2), shape, (2, 6, 4, 2, 2))
    assert gate == LeafCall("3", "Gate", (), False, (), (2, 6, 4, 2, 2), (2, 6, 4, 2, 2))


def test_lying_attributes_do_not_matter() -> None:
    conv = nn.Conv3d(4, 6, 3, bias=False)
    conv.in_channels = conv.out_channels = 999
    (call,) = calls_of(conv, torch.zeros(1, 4, 3, 3, 3))
    assert (call.module, call.weight, call.groups, call.bias) == ("", (6, 4, 3, 3, 3), 1, False)


@pytest.mark.parametrize("batch", [(2,), ()], ids=["batched", "unbatched"])
@pytest.mark.parametrize(
    ("conv", "groups"),
    [
        (nn.Conv1d(8, 4, 1, groups=4), 4),
        (nn.Conv2d(8, 8, 1, groups=8), 8),
        (nn.ConvTranspose3d(8, 4, 2, groups=2), 2),
        (nn.ConvTranspose2d(6, 12, 3, groups=3), 3),
        (nn.ConvTranspose1d(6, 3, 3), 1),
    ],
    ids=repr,
)
def test_groups_come_from_the_tensors(conv: nn.Module, groups: int, batch: tuple[int, ...]) -> None:
    dims = conv.weight.dim() - 2
    (call,) = calls_of(conv, torch.zeros(*batch, conv.in_channels, *[4] * dims))
    assert call.groups == groups


@pytest.mark.parametrize(
    ("pool", "window"),
    [
        (nn.AvgPool3d((2, 4, 4), stride=1), (2, 4, 4)),
        (nn.AvgPool3d(2), (2, 2, 2)),
        (nn.AdaptiveAvgPool3d(1), (4, 8, 8)),
        (nn.AdaptiveAvgPool3d((4, 3, None)), (1, 3, 1)),
    ],
    ids=repr,
)
def test_pooling_windows(pool: nn.Module, window: tuple[int, ...]) -> None:
    (call,) = calls_of(pool, torch.zeros(1, 2, 4, 8, 8))
    assert call.window == window


def test_shared_modules_are_recorded_at_each_call_under_their_first_name() -> None:
    conv = nn.Conv1d(3, 3, 1)
    net = nn.Sequential(conv, nn.ReLU(), conv)
    assert [call.module for call in calls_of(net, torch.zeros(1, 3, 5))] == ["0", "1", "0"]


def test_any_pytree_goes_in_and_out() -> None:
    class Pair(nn.Module):
        def forward(self, batch: dict[str, list[Tensor]], *, flag: bool) -> dict[str, object]:
            return {"flag": flag, "out": (batch["x"][0][:1],)}

    class Silent(nn.Module):
        def forward(self, x: Tensor) -> None:
            return None

    (call,) = calls_of(Pair(), {"x": [torch.zeros(2, 3)]}, flag=True)
    assert (call.input, call.output) == ((2, 3), (1, 3))
    (call,) = calls_of(Pair(), batch={"x": [torch.zeros(2, 3)]}, flag=True)
    assert call.input == (2, 3)
    (call,) = calls_of(Silent(), torch.zeros(2))
    assert call.output == (0,)


def test_parametrised_and_specialised_layers_are_leaves_in_one_piece() -> None:
    class Excited(nn.Conv3d):
        def __init__(self) -> None:
            super().__init__(2, 2, 1)
            self.gate = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid())

        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            return x * self.gate(x.mean((2, 3, 4)))[..., None, None, None]

    net = nn.Sequential(parametrizations.weight_norm(nn.Conv3d(2, 2, 3)), nn.ReLU(), Excited())
    assert list(leaf_modules(net)) == ["0", "1", "2", "2.gate.0", "2.gate.1"]
    assert list(leaf_modules(nn.ModuleDict({"empty": nn.ModuleList(), "one": nn.ReLU()}))) == ["one"]
    calls = calls_of(net, torch.zeros(1, 2, 3, 3, 3))
    assert [call.module for call in calls] == ["0", "1", "2.gate.0", "2.gate.1", "2"]
    assert calls[0].weight == (2, 2, 3, 3, 3)


def test_hooks_are_removed_even_after_an_error() -> None:
    net = nn.Sequential(nn.Conv1d(3, 3, 1), nn.ReLU())
    stack, leaves = ModuleStack(net), LeafRecorder(net)
    with pytest.raises(RuntimeError), stack, leaves:
        net(torch.zeros(1, 7, 5))
    net(torch.zeros(1, 3, 5))
    assert leaves.calls == []
    assert stack.current == ""
    for module in net.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._forward_hooks_always_called
        assert not module._forward_hooks_with_kwargs


class Attention(nn.Module):
    """Matmul, bmm, einsum and a functional weight: what a dispatch mode must see below the module level."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.mix = nn.Parameter(torch.ones(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        x = torch.softmax(q @ k.transpose(1, 2), -1) @ v
        return torch.einsum("btc,co->bto", x, self.mix) + F.linear(x, self.mix.t())


NETWORKS = {
    "conv1d": (nn.Conv1d(4, 6, 3, bias=False), (2, 4, 9)),
    "conv2d strided dilated": (nn.Conv2d(4, 6, 3, stride=2, dilation=2), (2, 4, 9, 9)),
    "conv3d padded": (nn.Conv3d(4, 6, (1, 3, 5), padding="same"), (1, 4, 5, 6, 7)),
    "grouped": (nn.Conv3d(4, 8, 3, groups=2), (2, 4, 5, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 5, 5)),
    "transposed": (nn.ConvTranspose3d(4, 2, 3, stride=2, output_padding=1), (2, 4, 3, 3, 3)),
    "transposed grouped": (nn.ConvTranspose2d(4, 6, 2, groups=2), (1, 4, 3, 3)),
    "unbatched": (nn.Conv3d(4, 6, 3), (4, 5, 5, 5)),
    "linear": (nn.Linear(7, 5), (2, 3, 7)),
    "attention": (Attention(), (2, 6, 8)),
    "norms and activations": (nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4), nn.GELU()), (2, 4, 6)),
}


@pytest.mark.parametrize("inference", [False, True], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("name", NETWORKS)
def test_true_flops_equal_torch_on_real_tensors(name: str, inference: bool) -> None:
    model, shape = NETWORKS[name]
    context = torch.inference_mode if inference else torch.no_grad
    with context():
        x = torch.zeros(shape)
        with FlopCounterMode(display=False) as expected:
            model(x)
        with OpRecorder() as found:
            model(x)
    assert expected.get_total_flops() > 0
    assert sum(op.flops for op in found.ops) == expected.get_total_flops()


def test_true_flops_of_attention_equal_torch_on_the_same_tensors() -> None:
    # On a CPU torch's counter has no formula for the fused kernel and says 0; on meta tensors it sees the products.
    q = torch.empty(2, 4, 16, 8, device="meta")
    with FlopCounterMode(display=False) as expected:
        F.scaled_dot_product_attention(q, q, q)
    with OpRecorder() as found:
        F.scaled_dot_product_attention(q, q, q)
    assert sum(op.flops for op in found.ops) == expected.get_total_flops() == 2 * (2 * 2 * 4 * 16 * 16 * 8)


def test_operators_without_a_formula_count_nothing() -> None:
    x = torch.zeros(3)
    assert true_flops(torch.ops.aten.relu.default, (x,), {}, x) == 0


def test_ops_know_their_innermost_module() -> None:
    net = nn.Sequential(nn.Linear(8, 8), Attention())
    with ModuleStack(net) as stack, OpRecorder(stack) as found:
        net(torch.zeros(2, 6, 8))
    modules = [op.module for op in found.ops]
    assert modules[:2] == ["0", "1.qkv"]
    assert set(modules[2:]) == {"1"}


def kept_by(model: nn.Module, *inputs: Tensor) -> dict[str, tuple[int, int]]:
    known = [*model.parameters(), *model.buffers(), *inputs]
    with ModuleStack(model) as stack, SavedRecorder(stack, known) as recorder:
        output = model(*inputs)
    kept = recorder.kept()
    del output
    assert recorder.kept() == {}  # It went with the graph.
    return {name: (item.elements, item.bytes) for name, item in kept.items()}


def test_saved_storages_count_once_at_their_whole_size() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2  # Saves nothing: the factor is a number.
            left, right = y.chunk(2, 1)
            return left.sin() + right.sin() + left.cos()  # Three views of one storage.

    x = torch.zeros(1, 4, 5, requires_grad=True)
    assert kept_by(Halves(), x) == {"": (20, 80)}


def test_saved_excludes_parameters_buffers_and_inputs() -> None:
    assert kept_by(nn.Conv1d(2, 3, 1), torch.zeros(1, 2, 5)) == {}
    norm = nn.BatchNorm1d(3).train()
    assert kept_by(norm, torch.zeros(2, 3, 5)) == {"": (6, 24)}  # Mean and inverse deviation of the batch.


def test_saved_belongs_to_the_module_that_keeps_it_first() -> None:
    net = nn.Sequential(nn.Conv1d(2, 3, 1), nn.ReLU(inplace=True), nn.Conv1d(3, 1, 1), nn.MaxPool1d(5))
    # The ReLU keeps its result, which the second conv keeps too; pooling keeps its input and 8-byte positions.
    assert kept_by(net, torch.zeros(1, 2, 5)) == {"1": (15, 60), "3": (5 + 1, 5 * 4 + 8)}


def test_what_no_output_needs_is_not_kept() -> None:
    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.unused(x).sin().exp()
            return self.used(x).sin()

    assert kept_by(Wasteful(), torch.zeros(2, 3)) == {"": (6, 24)}


def test_a_gradient_inside_the_forward_pass_works() -> None:
    class Penalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x.requires_grad_()).tanh()
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            return y + slope

    assert kept_by(Penalised(), torch.zeros(2, 3))
