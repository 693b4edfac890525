"""Checkpointed steps against ordinary ones: the same numbers to the last bit, from less memory, and nothing left."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils._pytree import tree_leaves

import ranp
from benchmarks.pairs import peak_bytes
from ranp.paper import models
from ranp.running import calling, copies, dataless
from ranp.running.checkpointing import blocks, checkpointed


def unit(inputs: int, outputs: int, *, inplace: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=inplace)
    )


def chain(*, depth: int = 6, width: int = 4) -> nn.Sequential:
    return nn.Sequential(unit(3, width), *(unit(width, width) for _ in range(depth - 1)), nn.Conv2d(width, 2, 1))


class Shared(nn.Module):
    """One block called three times, once inside of another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(unit(3, 4), *(unit(4, 4) for _ in range(5)))
        self.shared = nn.Sequential(unit(4, 4), unit(4, 4), unit(4, 4))
        self.around = nn.Sequential(unit(4, 4), self.shared, unit(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.shared(self.first(x))
        return self.around(self.shared(y)) + y


class Remembers(nn.Module):
    """A buffer of two dimensions that the output depends on, and that only train mode writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = unit(4, 4)
        self.register_buffer("memory", torch.ones(1, 4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.memory.mul_(0.5).add_(x.detach().mean((0, 2, 3), keepdim=True))
        return (self.inner(x) * self.memory).sin().tanh()


def remembering() -> nn.Module:
    return nn.Sequential(unit(3, 4), *(Remembers() for _ in range(8)))


class Structured(nn.Module):
    """A block that takes lists and keywords, and returns a dict of a tuple and a list."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = unit(4, 4), unit(4, 4)

        def forward(self, pair: list[Tensor], *, scale: Tensor, add: float, nothing: None = None) -> dict[str, Any]:
            left, right = self.a(pair[0] * scale), self.b(pair[1]) + add
            return {"both": (left, right), "list": [left * right, None], "same": pair[0]}

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 4)
        self.block = self.Block()

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        found = self.block([y, y.sin()], scale=y.mean(), add=0.5)
        return found["both"][0] + found["both"][1] * found["list"][0] + found["same"]


def several(count: int = 3) -> list[nn.Module]:
    return [unit(4, 4) for _ in range(count)]


class WritesIntoInput(nn.Module):
    """Blocks that begin with an activation in place, one that must not be applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 4)
        self.fit = nn.ModuleList(nn.Sequential(*several(4)) for _ in range(2))
        self.unfit = nn.ModuleList(nn.Sequential(nn.LeakyReLU(0.5, inplace=True), *several()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for fit, unfit in zip(self.fit, self.unfit, strict=True):
            x = unfit(fit(x) - 0.5)
        return x


class InputWrittenLater(nn.Module):
    """Blocks whose input somebody else writes to, after they have run."""

    class Sine(nn.Module):
        """Keeps nothing of its input itself, so that autograd lets the input be overwritten."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleList(several(4))

        def forward(self, x: Tensor) -> Tensor:
            x = (x + 1).sin()
            for inner in self.inner:
                x = inner(x)
            return x

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.fit = nn.ModuleList(nn.Sequential(*several(4)) for _ in range(2))
        self.unfit = nn.ModuleList(self.Sine() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for fit, unfit in zip(self.fit, self.unfit, strict=True):
            y = fit(x) - 0.5
            x = unfit(y)
            y.mul_(3.0)
            x = x + y
        return x


class DropsAtRandom(nn.Module):
    """Dropout of torch, and depth drawn from Python's own generator."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.drop = unit(4, 4), unit(4, 4), nn.Dropout(0.4)

        def forward(self, x: Tensor) -> Tensor:
            return self.drop(self.a(x)) if random.random() < 0.5 else self.b(self.drop(x))

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 4)
        self.blocks = nn.ModuleList(self.Block() for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x


class DecidesByData(nn.Module):
    """Cannot run without data."""

    def __init__(self) -> None:
        super().__init__()
        self.body = chain()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x if x.mean().item() < 100 else -x)


class Shrinking(nn.Conv2d):
    """Writes to its weight, which must not happen again."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.mul_(0.9)
        return super().forward(x)


def shrinking() -> nn.Module:
    parts = [nn.Sequential(*several(2), Shrinking(4, 4, 1), *several(2)) for _ in range(2)]
    return nn.Sequential(unit(3, 4), nn.Sequential(*several(4)), *parts)


def spectral() -> nn.Module:
    """A buffer that the output depends on, and that every training forward pass changes."""
    return nn.Sequential(
        unit(3, 4), nn.Sequential(spectral_norm(nn.Conv2d(4, 4, 3)), nn.ReLU(), spectral_norm(nn.Conv2d(4, 4, 3)))
    )


def norms(momentum: float | None) -> nn.Module:
    net = chain()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = momentum
    instance = nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True), nn.ReLU())
    return nn.Sequential(net, instance, nn.Conv2d(4, 3, 1))


def monai(name: str, **options: Any) -> nn.Module:
    from monai.networks import nets

    found: nn.Module = getattr(nets, name)(**options)
    return found


IMAGE = (2, 3, 8, 8)
CUBE = (1, 1, 16, 16, 16)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "chain": (chain, IMAGE),
    "shared": (Shared, IMAGE),
    "structured": (Structured, IMAGE),
    "writes into its input": (WritesIntoInput, IMAGE),
    "input written later": (InputWrittenLater, IMAGE),
    "drops at random": (DropsAtRandom, IMAGE),
    "decides by data": (DecidesByData, IMAGE),
    "writes to a weight": (shrinking, IMAGE),
    "spectral norm": (spectral, IMAGE),
    "remembers": (remembering, IMAGE),
    "cumulative statistics": (lambda: norms(None), IMAGE),
    "momentum": (lambda: norms(0.3), IMAGE),
    "3D-UNet": (lambda: models.build("unet3d-shapenet", widths=(4, 8, 8), classes=3), CUBE),
    "MobileNetV2": (lambda: models.build("mobilenetv2-ucf101"), (2, 3, 4, 32, 32)),
    "UNet of MONAI": (
        lambda: monai(
            "UNet", spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 8), strides=(2, 2), num_res_units=2
        ),
        CUBE,
    ),
    "DynUNet": (
        lambda: monai(
            "DynUNet", spatial_dims=3, in_channels=1, out_channels=2, kernel_size=[3] * 4, strides=[1, 2, 2, 2],
            upsample_kernel_size=[2] * 3, filters=(4, 4, 8, 8), deep_supervision=True, deep_supr_num=2,
        ),
        CUBE,
    ),
    "SegResNet": (
        lambda: monai("SegResNet", spatial_dims=3, init_filters=8, in_channels=1, out_channels=2, dropout_prob=0.2),
        CUBE,
    ),
}  # fmt: skip


def steps(model: nn.Module, inputs: Any, count: int = 2) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and gradients of some steps, each with its own random numbers."""
    outputs: list[Tensor] = []
    gradients: list[Tensor] = []
    for number in range(count):
        torch.manual_seed(number)
        random.seed(number)
        model.zero_grad()
        found = [leaf for leaf in tree_leaves(calling.call(model, inputs)) if isinstance(leaf, Tensor)]
        torch.stack([(leaf.sin() * leaf).mean() for leaf in found]).sum().backward()
        outputs += [leaf.detach().clone() for leaf in found]
        gradients += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        outputs += [torch.rand(1, dtype=torch.float64), torch.tensor(random.random(), dtype=torch.float64)]
    return outputs, gradients


def doubled(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().double().train()


@pytest.mark.parametrize("lazily", [True, False], ids=["first pass", "example"])
@pytest.mark.parametrize("name", CASES)
def test_a_checkpointed_step_is_an_ordinary_step(name: str, lazily: bool) -> None:
    build, shape = CASES[name]
    plain, other = doubled(build), doubled(build)
    inputs = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    outputs, gradients = steps(plain, inputs)
    with checkpointed(other, None if lazily else inputs):
        found, found_gradients = steps(other, inputs)
    torch.testing.assert_close(found, outputs, rtol=0, atol=0)
    torch.testing.assert_close(found_gradients, gradients, rtol=1e-12, atol=1e-15)
    assert blocks(other, inputs), "nothing was checkpointed"
    for (key, buffer), wanted in zip(other.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(buffer, wanted, rtol=0, atol=0, msg=lambda text, key=key: f"{key}: {text}")


def most_held(model: nn.Module, inputs: Tensor) -> int:
    """Bytes of torch's allocator at the worst moment of a step, the gradients of parameters among them."""

    def step() -> None:
        model(inputs).square().mean().backward()
        model.zero_grad()

    return peak_bytes(step)


def test_a_chain_is_held_by_the_square_root_of_its_depth() -> None:
    """Depth 16 keeps 2 tensors per unit and a few more; blocks of 4 keep 4 inputs and compute 8 again."""
    body = nn.Sequential(*(nn.Sequential(*(unit(8, 8) for _ in range(4))) for _ in range(4)))
    x = torch.randn(2, 8, 16, 16)
    size = x.numel() * x.element_size()
    assert blocks(body, x) == ("0", "1", "2", "3")
    plain = most_held(body, x)
    with checkpointed(body, x):
        less = most_held(body, x)
    assert plain > 32 * size
    assert less < 17 * size


@pytest.mark.parametrize(("name", "most"), [("unet3d-shapenet", 0.85), ("mobilenetv2-ucf101", 0.7)])
def test_networks_hold_less(name: str, most: float) -> None:
    model = models.build(name, **({"widths": (8, 16, 32)} if name.startswith("unet") else {})).train()
    x = torch.randn((1, 1, 32, 32, 32) if name.startswith("unet") else (2, 3, 8, 64, 64))
    plain = most_held(model, x)
    with checkpointed(model, x):
        assert most_held(model, x) < most * plain


def test_nothing_is_left_behind() -> None:
    model = chain()
    model[0].forward = model[0].forward  # an attribute of the user's own
    own, x = vars(model[0])["forward"], torch.randn(IMAGE)

    def held() -> dict[str, list[tuple[str, int]]]:
        return {name: sorted((key, id(value)) for key, value in vars(m).items()) for name, m in model.named_modules()}

    def fail() -> None:
        with checkpointed(model):
            model(x).sum().backward()
            assert sum(bool(module._forward_pre_hooks) for module in model.modules()) > 3
            assert [module for module in model.modules() if "forward" in vars(module)] == [model[0]]
            raise KeyError("user")

    before = held()
    with pytest.raises(KeyError, match="user"):
        fail()
    assert held() == before
    assert vars(model[0])["forward"] is own
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_model_is_not_held() -> None:
    model, x = chain(), torch.randn(IMAGE)
    with checkpointed(model):
        model(x).sum().backward()
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_the_graph_is_freed_with_its_output() -> None:
    model, x = chain(), torch.randn(IMAGE)
    with checkpointed(model):
        output = model(x)
        reference = weakref.ref(output)
        output.sum().backward()
        del output
    assert reference() is None


def test_nothing_changes_where_no_gradient_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = chain().eval(), torch.randn(IMAGE)
    with torch.no_grad():
        wanted = model(x)
        name = "ranp.running.checkpointing.running._checkpoint_without_reentrant_generator"
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("checkpointed"))
        with checkpointed(model, x):
            assert torch.equal(model(x), wanted)
    assert not wanted.requires_grad


def test_eval_mode_has_the_same_gradients_and_leaves_statistics_alone() -> None:
    plain, other = doubled(chain).eval(), doubled(chain).eval()
    x = torch.randn(IMAGE, dtype=torch.float64)
    before = {name: buffer.clone() for name, buffer in other.named_buffers()}
    _, gradients = steps(plain, x)
    with checkpointed(other, x):
        _, found = steps(other, x)
    torch.testing.assert_close(found, gradients, rtol=1e-12, atol=1e-15)
    assert all(torch.equal(buffer, before[name]) for name, buffer in other.named_buffers())


def test_modes_may_change_inside() -> None:
    """Blocks chosen in eval mode would not know of the buffer that train mode writes to."""
    plain, other = doubled(remembering).eval(), doubled(remembering).eval()
    x = torch.randn(IMAGE, dtype=torch.float64)
    assert {"1", "2", "3"} <= set(blocks(plain, x))
    wanted = [steps(plain.train(mode), x)[1] for mode in (False, True, False)]
    with checkpointed(other, x):
        found = [steps(other.train(mode), x)[1] for mode in (False, True, False)]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-15)
    assert torch.equal(other[1].memory, plain[1].memory)


def test_a_block_inside_a_block_is_not_computed_a_third_time() -> None:
    model, x = Shared(), torch.randn(IMAGE)
    assert {"shared", "around"} <= set(blocks(model, x))
    runs = []
    model.shared[0].register_forward_pre_hook(lambda *_: runs.append(1))
    with checkpointed(model, x):
        runs.clear()
        model(x).mean().backward()
    assert len(runs) == 3 + 3


def test_backward_may_come_after_the_end_and_twice() -> None:
    plain, other = doubled(chain), doubled(chain)
    x = torch.randn(IMAGE, dtype=torch.float64)
    with checkpointed(other):
        loss = other(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    wanted = plain(x).square().mean()
    wanted.backward(retain_graph=True)
    wanted.backward()
    for found, expected in zip(other.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-12, atol=1e-15)
    for buffer, expected_buffer in zip(other.buffers(), plain.buffers(), strict=True):
        assert torch.equal(buffer, expected_buffer)


@pytest.mark.parametrize("build", [WritesIntoInput, InputWrittenLater])
def test_what_writes_into_inputs_is_no_block(build: type[nn.Module]) -> None:
    found = set(blocks(build(), torch.randn(IMAGE)))
    assert {"fit.0", "fit.1"} <= found
    assert not {"unfit.0", "unfit.1"} & found


def test_a_slim_network_has_the_same_blocks() -> None:
    model = models.build("unet3d-shapenet", widths=(8, 16, 32), classes=3)
    x, y = torch.randn(CUBE), torch.randint(3, (1, 16, 16, 16))
    pruned = ranp.prune(model, [(x, y)], F.cross_entropy, sparsity=0.6, exact=True)
    assert sum(pruned.plan.widths.values()) < 0.5 * sum(layer.channels for layer in pruned.trace.layers)
    assert blocks(pruned.model, x) == blocks(model, x) != ()


def test_widths_do_not_matter() -> None:
    """In bytes, the wide end of either network would be cut finely and its narrow end not at all."""

    def build(*widths: int) -> nn.Module:
        ends = zip((3, *widths), widths, strict=False)
        return nn.Sequential(*(nn.Sequential(unit(i, o), unit(o, o), unit(o, o), unit(o, o)) for i, o in ends))

    x = torch.randn(IMAGE)
    assert blocks(build(64, 4, 4, 4), x) == blocks(build(4, 4, 4, 64), x) != ()


@pytest.mark.parametrize("name", ["chain", "3D-UNet", "DynUNet"])
def test_it_works_without_data(name: str) -> None:
    build, shape = CASES[name]
    real = build().train()
    wanted = blocks(real, torch.randn(shape))
    meta = copies.copy_model(real, meta=True).train()
    assert blocks(meta, torch.empty(shape, device="meta")) == wanted
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    twins = {id(tensor): mode.from_tensor(tensor) for _, tensor in calling.named_tensors(real)}
    fake = copies.copy_model(real, meta=False, twins=twins)
    with mode:
        x = torch.randn(shape)
        assert all(isinstance(p, FakeTensor) for p in fake.parameters())
        assert blocks(fake, x) == wanted
        with checkpointed(fake):
            found = [leaf for leaf in tree_leaves(fake(x)) if isinstance(leaf, Tensor)]
            torch.stack([leaf.mean() for leaf in found]).sum().backward()
        assert {p.grad.shape for p in fake.parameters() if p.grad is not None}
    with dataless.MetaMode(), checkpointed(meta, torch.empty(shape, device="meta")):
        calling.call(meta, torch.empty(shape, device="meta"))


def test_wrapped_networks_are_unwrapped() -> None:
    plain, other = doubled(chain), doubled(chain)
    x = torch.randn(IMAGE, dtype=torch.float64)
    _, gradients = steps(plain, x)
    with checkpointed(nn.DataParallel(other)):
        assert other._forward_pre_hooks
        _, found = steps(other, x)
    torch.testing.assert_close(found, gradients, rtol=1e-12, atol=1e-15)
