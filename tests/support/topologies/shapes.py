"""Topologies: what moves, folds, repeats, pools and resizes channels, and everything a network may return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.topology import Collection, Net, conv, image, line, several, tensor, volume

SHAPES = Collection()


@SHAPES.add(volume(2, 3), prunable="a b hidden", kept="head")
def flatten_to_linear() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.b(F.relu(m.a(x))))
        return m.head(F.relu(m.hidden(torch.flatten(x, 1))))

    return Net(body, a=conv(2, 6), b=conv(6, 4), hidden=nn.Linear(4 * 27, 6), head=nn.Linear(6, 3))


@SHAPES.add(image(2, 4), prunable="a", kept="head")
def view_to_linear() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x))
        return m.head(x.view(x.size(0), -1))

    return Net(body, a=conv(2, 6, dims=2), head=nn.Linear(96, 4))


@SHAPES.add(volume(), prunable="a b", kept="head")
def pooled_to_linear() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.b(F.relu(m.a(x))))
        return m.head(m.drop(m.pool(x).flatten(1)))

    return Net(
        body, a=conv(2, 6), b=conv(6, 8), pool=nn.AdaptiveAvgPool3d(1), drop=nn.Dropout(0.2), head=nn.Linear(8, 3)
    )


@SHAPES.add(volume(), prunable="a b", kept="head")
def spatial_sum_and_mean() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        a, b = F.relu(m.a(x)), F.relu(m.b(x))
        return m.head(torch.cat([a.sum((2, 3, 4)), b.mean(dim=[-1, -2, -3]), b.amax((2, 3, 4)), a.std((2, 3, 4))], 1))

    return Net(body, a=conv(2, 6), b=conv(2, 6), head=nn.Linear(24, 3))


@SHAPES.add(volume(2, 3), prunable="a b", kept="head")
def depth_folded_into_channels() -> nn.Module:
    """A 3D network continues in 2D: every channel becomes one channel for each slice."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x))
        b, c, d, h, w = x.shape
        return m.head(F.relu(m.b(x.reshape(b, c * d, h, w))))

    return Net(body, a=conv(2, 6), b=conv(18, 6, dims=2), head=conv(6, 2, dims=2))


@SHAPES.add(volume(2, 3), prunable="a b", kept="head")
def depth_folded_into_batch() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x))
        b, c, d, h, w = x.shape
        x = F.relu(m.b(x.transpose(1, 2).reshape(b * d, c, h, w)))
        return m.head(x.view(b, d, -1, h, w).movedim(2, 1))

    return Net(body, a=conv(2, 6), b=conv(6, 6, dims=2), head=conv(6, 2))


@SHAPES.add(volume(), prunable="a b c", kept="head")
def channels_last_linear() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x)).contiguous(memory_format=torch.channels_last_3d).movedim(1, -1)
        x = F.relu(m.c(F.relu(m.b(x))))
        return m.head(torch.movedim(x, -1, 1).contiguous())

    return Net(body, a=conv(2, 6), b=nn.Linear(6, 8), c=nn.Linear(8, 6), head=conv(6, 2))


@SHAPES.add(image(), prunable="a b", kept="head")
def channels_flipped() -> nn.Module:
    """Reversing the channels also reverses those that are kept."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(F.relu(m.a(x)).flip(1))))

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), head=conv(6, 2, dims=2))


@SHAPES.add(volume(), prunable="b", kept="head a")
def channels_rolled() -> nn.Module:
    """A cyclic shift by one of fewer channels is another shift: with legal shapes, wired wrong."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(F.relu(m.a(x)).roll(1, dims=1))))

    return Net(body, a=conv(2, 6), b=conv(6, 6), head=conv(6, 2))


@SHAPES.add(image(), prunable="a b", kept="head")
def channels_repeated() -> nn.Module:
    """Each channel twice in a row, then all of them once more."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x)).repeat_interleave(2, dim=1)
        x = F.relu(m.b(x))
        return m.head(torch.cat([x, x], 1) + x.repeat(1, 2, 1, 1))

    return Net(body, a=conv(2, 6, dims=2), b=conv(12, 6, dims=2), head=conv(12, 2, dims=2))


@SHAPES.add(volume(), prunable="a b", kept="head")
def channels_expanded() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x))
        x = x.unsqueeze(2).expand(-1, -1, 3, -1, -1, -1).reshape(x.shape[0], -1, *x.shape[2:])
        return m.head(F.relu(m.b(x)))

    return Net(body, a=conv(2, 4), b=conv(12, 6), head=conv(6, 2))


@SHAPES.add(volume(), prunable="a", kept="head", cuttable=(("w", 0), ("w", 1)), consumers={"w": 1})
def einsum_weight() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(torch.einsum("bcdhw,oc->bodhw", F.relu(m.a(x)), m.w)))

    return Net(body, a=conv(2, 6), w=nn.Parameter(tensor(6, 6)), head=conv(6, 2))


@SHAPES.add(image(), prunable="a b", kept="head", cuttable=(("w", 0), ("w", 1)), consumers={"w": 0})
def matmul_weight() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(m.a(x)).flatten(2).transpose(1, 2) @ m.w
        return m.head(F.relu(m.b(F.relu(x))))

    return Net(
        body,
        a=conv(2, 6, dims=2),
        w=nn.Parameter(tensor(6, 8) / 2),
        b=nn.Linear(8, 6),
        head=nn.Linear(6, 2),
    )


@SHAPES.add(volume(2, 8), prunable="a b c", kept="head")
def pooling_3d() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.max_pool3d(F.relu(m.a(x)), 2, stride=1, ceil_mode=True)
        x = F.avg_pool3d(F.relu(m.b(x)), 3, stride=2, padding=1, count_include_pad=False)
        x = F.adaptive_max_pool3d(F.relu(m.c(x)), (3, 2, 3)) + F.adaptive_avg_pool3d(x[:, : x.shape[1]], (3, 2, 3))
        return m.head(F.lp_pool3d(x.abs() + 0.1, 2.0, 2))

    return Net(body, a=conv(2, 6), b=conv(6, 6), c=conv(6, 6), head=conv(6, 2, 1))


@SHAPES.add(line(2, 8), prunable="a b", kept="head")
def pooling_1d() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.max_pool1d(F.relu(m.a(x)), 2) + F.avg_pool1d(F.relu(m.b(x)), 2)
        pooled = [
            F.adaptive_max_pool1d(x, 3),
            F.adaptive_avg_pool1d(x, 3),
            F.lp_pool1d(x.abs() + 0.1, 2.0, 2, stride=1),
        ]
        return m.head(torch.cat(pooled))

    return Net(body, a=conv(2, 6, dims=1), b=conv(2, 6, dims=1), head=conv(6, 2, dims=1))


@SHAPES.add(image(2, 6), prunable="a b", kept="head", together=("a b",))
def unpooling() -> nn.Module:
    """SegNet: positions of the maxima travel beside the features."""

    def body(m: Net, x: Tensor) -> Tensor:
        pooled, where = F.max_pool2d(F.relu(m.a(x)), 2, return_indices=True)
        return m.head(F.max_unpool2d(F.relu(m.b(pooled)), where, 2))

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), head=conv(6, 2, dims=2))


@SHAPES.add(volume(2, 3), prunable="a b c", kept="head")
def interpolation_3d() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.interpolate(F.relu(m.a(x)), scale_factor=2, mode="trilinear", align_corners=True)
        x = F.interpolate(F.relu(m.b(x)), size=(3, 4, 3), mode="area")
        x = F.interpolate(F.relu(m.c(x)), scale_factor=2, mode="nearest-exact")
        return m.head(m.resize(x))

    return Net(body, a=conv(2, 6), b=conv(6, 6), c=conv(6, 4), resize=nn.Upsample((3, 3, 3)), head=conv(4, 2, 1))


@SHAPES.add(image(2, 4), prunable="a b c", kept="head")
def interpolation_2d() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.interpolate(F.relu(m.a(x)), scale_factor=2, mode="bilinear", align_corners=False)
        x = F.interpolate(F.relu(m.b(x)), size=5, mode="bicubic")
        x = F.interpolate(F.relu(m.c(x)), size=(6, 6), mode="bilinear", antialias=True)
        return m.head(m.resize(x))

    return Net(
        body,
        a=conv(2, 6, dims=2),
        b=conv(6, 6, dims=2),
        c=conv(6, 4, dims=2),
        resize=nn.UpsamplingNearest2d(scale_factor=2),
        head=conv(4, 2, 1, dims=2),
    )


@SHAPES.add(line(2, 6), prunable="a b", kept="head")
def interpolation_1d() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.interpolate(F.relu(m.a(x)), scale_factor=2, mode="linear")
        return m.head(F.interpolate(F.relu(m.b(x)), size=7))

    return Net(body, a=conv(2, 6, dims=1), b=conv(6, 6, dims=1), head=conv(6, 2, dims=1))


@SHAPES.add(image(2, 4), prunable="a b", kept="locate head", unknown=None)
def grid_sampling() -> nn.Module:
    """A spatial transformer: one branch decides where the other one is read."""

    def body(m: Net, x: Tensor) -> Tensor:
        theta = m.locate(F.relu(m.a(x)).mean((2, 3))).view(-1, 2, 3)
        grid = F.affine_grid(theta, [x.shape[0], 1, 4, 4], align_corners=False)
        return m.head(F.grid_sample(F.relu(m.b(x)), grid, align_corners=False))

    return Net(body, a=conv(2, 6, dims=2), locate=nn.Linear(6, 6), b=conv(2, 6, dims=2), head=conv(6, 2, dims=2))


@SHAPES.add(image(2, 5), prunable="a b c", kept="head")
def paddings() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.a(F.pad(x, (1, 1, 1, 1), mode="reflect"))
        x = m.b(F.pad(F.relu(x), (1, 1, 1, 1), mode="replicate"))
        x = m.c(F.pad(F.relu(x), (2, 0, 0, 2), mode="circular"))
        return m.head(F.pad(F.relu(x), (0, 1, 1, 0), value=0.7))

    plain = {"kernel_size": 3, "padding": 0}
    return Net(
        body,
        a=nn.Conv2d(2, 6, **plain),
        b=nn.Conv2d(6, 6, **plain),
        c=nn.Conv2d(6, 4, **plain),
        head=conv(4, 2, dims=2),
    )


@SHAPES.add(volume(2, 4), prunable="a b c", kept="head")
def padding_modes_3d() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(m.pad(F.relu(m.c(F.relu(m.b(F.relu(m.a(x))))))))

    return Net(
        body,
        a=conv(2, 6, padding_mode="reflect"),
        b=conv(6, 6, padding_mode="replicate"),
        c=conv(6, 4, padding_mode="circular"),
        pad=nn.ConstantPad3d(1, 0.3),
        head=conv(4, 2),
    )


def two_headed(result: Any) -> Net:
    """Two layers, each with a head, and a function that packs what both heads give."""

    def body(m: Net, x: Tensor) -> Any:
        a = F.relu(m.a(x))
        b = F.relu(m.b(a))
        return result(m.head_a(a), m.head_b(b))

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), head_a=conv(6, 6, dims=2), head_b=conv(6, 3, dims=2))


@SHAPES.add(image(), prunable="a b", kept="head_a head_b")
def output_tuple() -> nn.Module:
    return two_headed(lambda a, b: (a, b))


@SHAPES.add(image(), prunable="a b", kept="head_a head_b")
def output_nested_dict() -> nn.Module:
    return two_headed(lambda a, b: {"main": b, "aux": {"first": [a.sigmoid()]}})


@SHAPES.add(image(), prunable="a b", kept="head_a head_b")
def output_list_with_none() -> nn.Module:
    return two_headed(lambda a, b: [a, None, b.softmax(1), 3])


@dataclass
class Result:
    """An output that no pytree library knows."""

    main: Tensor
    extras: dict[str, Tensor]
    name: str = "result"


@SHAPES.add(image(), prunable="a b", kept="head_a head_b")
def output_dataclass() -> nn.Module:
    return two_headed(lambda a, b: Result(b, {"aux": a}))


@SHAPES.add(image(), prunable="b", kept="a head_a head_b")
def output_of_inner_features() -> nn.Module:
    """A feature that leaves the network is an output too."""

    def body(m: Net, x: Tensor) -> Any:
        a = m.a(x)
        return {"features": a, "maps": (m.head_a(F.relu(a)), m.head_b(F.relu(m.b(F.relu(a)))))}

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), head_a=conv(6, 6, dims=2), head_b=conv(6, 3, dims=2))


@SHAPES.add(lambda: {"image": tensor(2, 2, 5, 5), "extra": [tensor(2, 3, 5, 5), None]}, prunable="a b", kept="head")
def keyword_inputs() -> nn.Module:
    def body(m: Net, *, image: Tensor, extra: list[Tensor]) -> Tensor:
        return m.head(F.relu(m.a(image)) * m.b(extra[0]))

    return Net(body, a=conv(2, 6, dims=2), b=conv(3, 6, dims=2), head=conv(6, 2, dims=2))


@SHAPES.add(several(lambda: [tensor(2, 2, 4, 4), tensor(2, 2, 4, 4, seed=1)]), prunable="a b", kept="head")
def list_input() -> nn.Module:
    def body(m: Net, pathways: list[Tensor]) -> Tensor:
        slow, fast = pathways
        return m.head(torch.cat([F.relu(m.a(slow)), F.relu(m.b(fast))], 1))

    return Net(body, a=conv(2, 6, dims=2), b=conv(2, 6, dims=2), head=conv(12, 2, dims=2))
