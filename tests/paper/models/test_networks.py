"""Small versions of the networks: they run, learn, and compute what their descriptions say."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp.errors import DataError, UnsupportedError
from ranp.paper import models
from ranp.paper.models.i3d import SameMaxPool3d, Unit
from ranp.paper.models.psmnet import cost_volume

SMALL = {
    "unet3d-shapenet": ({"widths": (4, 8), "classes": 3}, ((2, 1, 6, 8, 9),)),
    "unet3d-shapenet-23": ({"widths": (2, 4, 4, 8, 8, 8), "classes": 3}, ((2, 1, 64, 32, 32),)),
    "unet3d-brats": ({"widths": (4, 6, 8)}, ((2, 4, 8, 8, 8),)),
    "unet3d-brats-23": ({"widths": (4, 6, 8)}, ((2, 4, 8, 8, 8),)),
    "mobilenetv2-ucf101": ({"width": 0.1, "classes": 4}, ((2, 3, 8, 32, 32),)),
    "i3d-ucf101": ({"width": 0.05, "classes": 4, "window": (1, 2, 2)}, ((2, 3, 8, 64, 64),)),
    "psm-sceneflow": (
        {"width": 0.125, "disparities": 16, "blocks": (1, 2, 1, 1), "windows": (8, 4)},
        ((2, 3, 32, 48), (2, 3, 32, 48)),
    ),
}


def small(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    options, shapes = SMALL[name]
    generator = torch.Generator().manual_seed(0)
    return models.build(name, **options), tuple(torch.randn(shape, generator=generator) for shape in shapes)


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    model, inputs = small(name)
    output = model.train()(*inputs)
    outputs = output if isinstance(output, tuple) else (output,)
    sum(out.square().mean() for out in outputs).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
    assert all(parameter.grad.any() for n, parameter in model.named_parameters() if n.endswith("0.weight"))


@pytest.mark.parametrize("name", SMALL)
def test_input_is_left_alone_and_eval_repeats_itself(name: str) -> None:
    model, inputs = small(name)
    before = [given.clone() for given in inputs]
    with torch.no_grad():
        first, second = model.eval()(*inputs), model(*inputs)
    assert torch.equal(first, second)
    assert all(torch.equal(given, old) for given, old in zip(inputs, before, strict=True))


def test_psm_returns_three_maps_in_training_and_the_last_in_eval() -> None:
    model, inputs = small("psm-sceneflow")
    norms = [m for m in model.modules() if isinstance(m, (nn.BatchNorm2d, nn.BatchNorm3d))]
    with torch.no_grad():
        for norm in norms:
            norm.eval()  # so that training mode differs from eval mode by the outputs alone
        model.training = True
        maps = model(*inputs)
        last = model.eval()(*inputs)
    assert [tuple(m.shape) for m in maps] == [(2, 32, 48)] * 3
    assert torch.equal(maps[2], last)
    assert not torch.equal(maps[0], maps[1])
    assert all(((m >= 0) & (m <= 15)).all() for m in maps)


def test_psm_refuses_sizes_it_cannot_halve() -> None:
    with pytest.raises(UnsupportedError, match="disparities=100"):
        models.PSMNet(disparities=100)
    model, _ = small("psm-sceneflow")
    with pytest.raises(DataError, match="40 x 48"):
        model(torch.zeros(1, 3, 40, 48), torch.zeros(1, 3, 40, 48))


@pytest.mark.parametrize("disparities", [1, 3, 7])
def test_cost_volume_against_a_loop_over_every_element(disparities: int) -> None:
    left, right = torch.randn(2, 3, 2, 5), torch.randn(2, 3, 2, 5)
    volume = cost_volume(left, right, disparities)
    assert volume.shape == (2, 6, disparities, 2, 5)
    for d in range(disparities):
        for x in range(5):
            inside = x >= d
            want_left = left[..., x] if inside else torch.zeros(2, 3, 2)
            want_right = right[..., x - d] if inside else torch.zeros(2, 3, 2)
            assert torch.equal(volume[:, :3, d, :, x], want_left)
            assert torch.equal(volume[:, 3:, d, :, x], want_right)


def test_unet_gives_probabilities_only_in_eval_and_only_if_asked() -> None:
    asked = models.build("unet3d-shapenet", widths=(4, 8), classes=3)
    plain = models.build("unet3d-shapenet", widths=(4, 8), classes=3, softmax_in_eval=False)
    volume = torch.randn(1, 1, 8, 8, 8)
    with torch.no_grad():
        assert torch.equal(asked.train()(volume), plain.train()(volume))
        assert torch.equal(asked.eval()(volume), plain.eval()(volume).softmax(dim=1))


def test_unet_puts_the_skip_before_the_upsampled_features() -> None:
    model = models.build("unet3d-shapenet", widths=(4, 8), classes=3).eval()
    seen: list[Tensor] = []
    model.decoders[0].conv1.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    volume = torch.randn(1, 1, 8, 8, 8)
    with torch.no_grad():
        model(volume)
        skip = model.encoders[0](volume)
        below = model.encoders[1](skip)
    assert torch.equal(seen[0][:, :4], skip)
    assert torch.equal(seen[0][:, 4:], below.repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4))


@pytest.mark.parametrize("size", [5, 6, 7, 8, 16])
@pytest.mark.parametrize(("kernel", "stride"), [(7, 2), (3, 2), (2, 2), (3, 1), (1, 1)])
def test_i3d_pads_like_tensorflows_same(size: int, kernel: int, stride: int) -> None:
    out = -(-size // stride)
    total = max((out - 1) * stride + kernel - size, 0)
    front = total // 2
    volume = torch.rand(1, 2, size, size, size)
    padded = torch.zeros(1, 2, *(size + total,) * 3)
    padded[:, :, front : front + size, front : front + size, front : front + size] = volume
    pooled = SameMaxPool3d((kernel,) * 3, stride=(stride,) * 3)(volume)
    assert torch.equal(pooled, F.max_pool3d(padded, kernel, stride))
    unit = Unit(2, 3, kernel=kernel, stride=stride).eval()
    with torch.no_grad():
        want = F.relu(unit.norm(F.conv3d(padded, unit.conv.weight, stride=stride)))
        assert torch.allclose(unit(volume), want, atol=1e-6)
        assert unit(volume).shape[2:] == (out,) * 3


def test_mobilenet_adds_the_input_exactly_where_stride_and_width_allow() -> None:
    with torch.device("meta"):
        model = models.build("mobilenetv2-ucf101")
    assert [i for i, block in enumerate(model.blocks) if block.residual] == [2, 4, 5, 7, 8, 9, 11, 12, 14, 15]
    depthwise = [block.depthwise[0] for block in model.blocks]
    assert all(conv.groups == conv.in_channels == conv.out_channels for conv in depthwise)


def test_build_neither_uses_nor_moves_the_global_generator() -> None:
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = models.build("unet3d-brats", widths=(4, 8))
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    second = models.build("unet3d-brats", widths=(4, 8))
    other = models.build("unet3d-brats", widths=(4, 8), seed=1)
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(first.head.weight, other.head.weight)


def test_build_leaves_no_tensor_undefined() -> None:
    built = models.build("psm-sceneflow", **SMALL["psm-sceneflow"][0])
    made = models.PSMNet(**SMALL["psm-sceneflow"][0])
    for (name, ours), (_, plain) in zip(built.named_buffers(), made.named_buffers(), strict=True):
        assert torch.equal(ours, plain), name
    assert built.state_dict().keys() == made.state_dict().keys()
    assert all(torch.isfinite(p).all() and p.abs().max() < 10 for p in built.parameters())


def test_build_takes_a_function_and_fills_what_it_leaves_out() -> None:
    def halves(module: nn.Module) -> None:
        if isinstance(module, nn.Conv3d):
            nn.init.constant_(module.weight, 0.5)

    model = models.build("unet3d-brats", widths=(4, 8), init=halves)
    assert (model.head.weight == 0.5).all()
    assert not model.head.bias.any()


def test_example_is_the_same_every_time_and_on_the_device_asked_for() -> None:
    first, second = models.example("mobilenetv2-ucf101"), models.example("mobilenetv2-ucf101")
    assert isinstance(first, Tensor)
    assert torch.equal(first, second)
    left, right = models.example("psm-sceneflow", device="meta")
    assert left.is_meta
    assert left.shape == right.shape == (3, 3, 256, 512)
