"""Topologies: every kind of layer and norm, one after another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.topology import Collection, Net, conv, image, line, several, tensor, up, volume

LAYERS = Collection()


def chain(*stages: nn.Module) -> Net:
    """Stages called ``a``, ``b``, ... with a ReLU after each but the last."""

    def body(m: Net, x: Tensor) -> Tensor:
        *inner, last = m.children()
        for stage in inner:
            x = F.relu(stage(x))
        return last(x)

    return Net(body, **dict(zip("abcdefgh", stages, strict=False)))


@LAYERS.add(line(), prunable="a b c", kept="d")
def conv1d_chain() -> nn.Module:
    return chain(conv(2, 6, dims=1), conv(6, 6, dims=1), conv(6, 9, dims=1), conv(9, 2, dims=1))


@LAYERS.add(image(), prunable="a b c", kept="d")
def conv2d_chain() -> nn.Module:
    return chain(conv(2, 6, dims=2), conv(6, 6, dims=2), conv(6, 9, dims=2), conv(9, 6, dims=2))


@LAYERS.add(volume(), prunable="a b c", kept="d")
def conv3d_chain() -> nn.Module:
    return chain(conv(2, 4), conv(4, 4, bias=False), conv(4, 7), conv(7, 4))


@LAYERS.add(volume(2, 6, batch=1), prunable="a b c", kept="d")
def conv3d_odd_kernels_batch_of_one() -> nn.Module:
    return chain(
        nn.Conv3d(2, 6, (1, 3, 3), stride=(1, 2, 2)),
        nn.Conv3d(6, 6, (3, 1, 1), padding="same", dilation=(2, 1, 1)),
        nn.Conv3d(6, 5, 2, stride=2),
        nn.Conv3d(5, 2, 1),
    )


@LAYERS.add(line(), prunable="a b c", kept="d")
def transposed1d() -> nn.Module:
    return chain(conv(2, 6, dims=1), up(6, 6, dims=1), up(6, 4, dims=1, bias=False), conv(4, 2, dims=1))


@LAYERS.add(image(), prunable="a b c", kept="d")
def transposed2d() -> nn.Module:
    return chain(conv(2, 4, dims=2), up(4, 6, dims=2), up(6, 6, dims=2), conv(6, 2, dims=2))


@LAYERS.add(volume(), prunable="a b", kept="c")
def transposed3d_makes_output() -> nn.Module:
    return chain(conv(2, 6), nn.ConvTranspose3d(6, 6, 3, stride=2, padding=1, output_padding=1), up(6, 6))


@LAYERS.add(volume(), prunable="a b c", kept="d")
def grouped() -> nn.Module:
    return chain(conv(2, 8), conv(8, 8, groups=2), conv(8, 12, groups=4), conv(12, 2))


@LAYERS.add(image(), prunable="a b", kept="c")
def grouped_between_plain() -> nn.Module:
    return chain(conv(2, 12, dims=2), conv(12, 9, dims=2, groups=3), conv(9, 9, dims=2))


@LAYERS.add(volume(), prunable="a b", kept="c")
def grouped_transposed() -> nn.Module:
    return chain(conv(2, 8), up(8, 12, groups=2), conv(12, 3))


@LAYERS.add(image(4), kept="b", prunable="a")
def grouped_output() -> nn.Module:
    return chain(conv(4, 8, dims=2, groups=2), conv(8, 6, dims=2, groups=2))


@LAYERS.add(volume(), prunable="a b c", kept="d", together=("a b",))
def depthwise() -> nn.Module:
    return chain(conv(2, 6), conv(6, 6, groups=6), conv(6, 6, 1), conv(6, 3))


@LAYERS.add(volume(), prunable="a b", kept="c")
def depthwise_multiplier() -> nn.Module:
    return chain(conv(2, 5), conv(5, 10, groups=5), conv(10, 5))


@LAYERS.add(volume(), prunable="a b c d", kept="e", together=("a c",))
def one_output_for_each_group() -> nn.Module:
    """3D UX-Net: every channel by itself becomes four, and these become one again."""
    return chain(conv(2, 5), conv(5, 20, 1, groups=5), conv(20, 5, 1, groups=5), conv(5, 6), conv(6, 3))


@LAYERS.add(volume(), prunable="a b", kept="c")
def groups_that_read_plain_channels() -> nn.Module:
    return chain(conv(2, 12), conv(12, 4, groups=4), conv(4, 3))


@LAYERS.add(volume(), prunable="a b", kept="c", together=("a b",))
def depthwise_transposed() -> nn.Module:
    return chain(conv(2, 6), up(6, 6, groups=6), conv(6, 6))


@LAYERS.add(volume(3), prunable="b", kept="a c")
def depthwise_of_input_channels() -> nn.Module:
    return chain(conv(3, 3, groups=3), conv(3, 7, 1), conv(7, 3))


@LAYERS.add(lambda: tensor(3, 5), prunable="a b c", kept="d")
def linear_mlp() -> nn.Module:
    return chain(nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 6, bias=False), nn.Linear(6, 5))


@LAYERS.add(lambda: tensor(2, 7, 4), prunable="a b", kept="c")
def linear_on_tokens() -> nn.Module:
    return chain(nn.Linear(4, 7), nn.Linear(7, 7), nn.Linear(7, 4))


@LAYERS.add(volume(), prunable="a c", kept="b d")
def one_channel_waist() -> nn.Module:
    return chain(conv(2, 6), conv(6, 1), conv(1, 6), conv(6, 2))


class Standing(nn.Conv3d):
    """A subclass of a convolution that calls its parent."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (1,) * 6))


@LAYERS.add(volume(), prunable="a b", kept="c")
def subclassed_layers() -> nn.Module:
    return chain(Standing(2, 6, 3), Standing(6, 6, 3), conv(6, 2))


def normed(norm_a: nn.Module, norm_b: nn.Module, width_a: int = 6, width_b: int = 6, dims: int = 3) -> Net:
    """Two convolutions, each with a norm, and the output layer."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.norm_b(m.b(F.relu(m.norm_a(m.a(x)))))))

    return Net(
        body,
        a=conv(2, width_a, dims=dims),
        norm_a=norm_a,
        b=conv(width_a, width_b, dims=dims, bias=False),
        norm_b=norm_b,
        head=conv(width_b, 2, dims=dims),
    )


@LAYERS.add(volume(), prunable="a b", kept="head")
def batch_norm() -> nn.Module:
    return normed(nn.BatchNorm3d(6), nn.BatchNorm3d(6))


@LAYERS.add(image(), prunable="a b", kept="head")
def batch_norm_without_affine_or_statistics() -> nn.Module:
    return normed(nn.BatchNorm2d(6, affine=False), nn.BatchNorm2d(8, track_running_stats=False), 6, 8, dims=2)


@LAYERS.add(line(), prunable="a b", kept="head")
def batch_norm_cumulative() -> nn.Module:
    return normed(nn.BatchNorm1d(6, momentum=None), nn.BatchNorm1d(6), dims=1)


@LAYERS.add(volume(), prunable="a b", kept="head")
def instance_norm() -> nn.Module:
    return normed(nn.InstanceNorm3d(6, affine=True), nn.InstanceNorm3d(6))


@LAYERS.add(image(), prunable="a b", kept="head")
def instance_norm_with_statistics() -> nn.Module:
    return normed(
        nn.InstanceNorm2d(6, affine=True, track_running_stats=True),
        nn.InstanceNorm2d(6, track_running_stats=True),
        dims=2,
    )


@LAYERS.add(volume(), prunable="a b", kept="head")
def group_norm_fewer_groups() -> nn.Module:
    return normed(nn.GroupNorm(3, 12), nn.GroupNorm(2, 6), 12, 6)


@LAYERS.add(volume(), prunable="a b", kept="head")
def group_norm_one_group_or_all() -> nn.Module:
    return normed(nn.GroupNorm(1, 6), nn.GroupNorm(6, 6))


@LAYERS.add(image(), prunable="a b", kept="head", statistics={"norm_a": "a", "norm_b": "b"})
def group_norm_without_affine() -> nn.Module:
    return normed(nn.GroupNorm(2, 8, affine=False), nn.GroupNorm(1, 5, affine=False), 8, 5, dims=2)


@LAYERS.add(volume(), prunable="a b", kept="head")
def group_norm_before_grouped_conv() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.relu(m.b(F.relu(m.norm(m.a(x))))))

    return Net(body, a=conv(2, 12), norm=nn.GroupNorm(2, 12), b=conv(12, 8, groups=4), head=conv(8, 2))


@LAYERS.add(lambda: tensor(2, 6, 4), prunable="a b", kept="head")
def layer_norm_on_tokens() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(F.gelu(m.norm_b(m.b(F.gelu(m.norm_a(m.a(x)))))))

    return Net(
        body,
        a=nn.Linear(4, 6),
        norm_a=nn.LayerNorm(6),
        b=nn.Linear(6, 6),
        norm_b=nn.LayerNorm(6, bias=False),
        head=nn.Linear(6, 4),
    )


@LAYERS.add(volume(), prunable="a b", kept="head", statistics={"norm_b": "b"})
def layer_norm_channels_first() -> nn.Module:
    def normalised(norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x.permute(0, 2, 3, 4, 1)).permute(0, 4, 1, 2, 3)

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(normalised(m.norm_b, F.relu(m.b(normalised(m.norm_a, m.a(x))))))

    return Net(
        body,
        a=conv(2, 6),
        norm_a=nn.LayerNorm(6),
        b=conv(6, 4),
        norm_b=nn.LayerNorm(4, elementwise_affine=False),
        head=conv(4, 2),
    )


@LAYERS.add(lambda: tensor(2, 3, 4), prunable="a", kept="head", masked=False)
def rms_norm() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(m.norm(m.a(x)))

    return Net(body, a=nn.Linear(4, 6), norm=nn.RMSNorm(6), head=nn.Linear(6, 4))


@LAYERS.add(image(), prunable="b", kept="a head")
def local_response_norm() -> nn.Module:
    """Each channel is divided by its neighbours: the neighbourhood is lost with a channel."""
    return normed(nn.LocalResponseNorm(3), nn.BatchNorm2d(6), dims=2)


@LAYERS.add(volume(), prunable="a b", kept="head")
def prelu_one_and_per_channel() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(m.act_b(m.b(m.act_a(m.a(x)))))

    return Net(body, a=conv(2, 6), act_a=nn.PReLU(), b=conv(6, 6), act_b=nn.PReLU(6), head=conv(6, 2))


@LAYERS.add(image(), prunable="a b", kept="head")
def activations() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(m.late(m.b(m.early(m.a(x)))))

    early = [nn.GELU(), nn.SiLU(), nn.Mish(), nn.ELU(), nn.SELU(), nn.CELU(), nn.Softplus(), nn.LeakyReLU(0.2)]
    late = [nn.Hardswish(), nn.Hardsigmoid(), nn.ReLU6(), nn.Tanh(), nn.LogSigmoid(), nn.Softshrink(0.1)]
    return Net(
        body,
        a=conv(2, 6, dims=2),
        early=nn.Sequential(*early),
        b=conv(6, 6, dims=2),
        late=nn.Sequential(*late, nn.Tanhshrink(), nn.Hardtanh(), nn.Softsign(), nn.Threshold(0.0, 0.5)),
        head=conv(6, 2, dims=2),
    )


@LAYERS.add(image(), prunable="a b c", kept="head")
def dropouts() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = m.point(F.relu(m.a(x)))
        x = m.channel(F.relu(m.b(x)))
        return m.head(m.alpha(F.selu(m.c(x))))

    return Net(
        body,
        a=conv(2, 6, dims=2),
        point=nn.Dropout(0.3),
        b=conv(6, 6, dims=2),
        channel=nn.Dropout2d(0.3),
        c=conv(6, 5, dims=2),
        alpha=nn.Sequential(nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)),
        head=conv(5, 2, dims=2),
    )


@LAYERS.add(volume(), prunable="a b", kept="head", stochastic=True)
def functional_dropout() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        x = F.dropout(F.relu(m.a(x)), 0.3, training=m.training)
        return m.head(F.dropout3d(F.relu(m.b(x)), 0.3, training=m.training))

    return Net(body, a=conv(2, 6), b=conv(6, 6), head=conv(6, 2))


@LAYERS.add(volume(), prunable="a b", kept="head", cuttable=(("w", 0), ("w", 1), ("v", 0)), consumers={"w": 1, "v": 1})
def functional_weights() -> nn.Module:
    """``w`` and ``v`` belong to no layer module."""

    def body(m: Net, x: Tensor) -> Tensor:
        x = F.relu(F.conv3d(F.relu(m.a(x)), m.w, m.w_bias, padding=1))
        x = F.relu(m.b(x)).mean((2, 3, 4))
        return m.head(F.linear(x, m.v, m.v_bias))

    return Net(
        body,
        a=conv(2, 6),
        w=nn.Parameter(tensor(6, 6, 3, 3, 3) / 9),
        w_bias=nn.Parameter(tensor(6, seed=1)),
        b=conv(6, 5),
        v=nn.Parameter(tensor(7, 5)),
        v_bias=nn.Parameter(tensor(7, seed=1)),
        head=nn.Linear(7, 3),
    )


@LAYERS.add(several(image(2), image(3)), prunable="a b joint", kept="head")
def two_inputs() -> nn.Module:
    def body(m: Net, x: Tensor, y: Tensor) -> Tensor:
        return m.head(F.relu(m.joint(torch.cat([F.relu(m.a(x)), F.relu(m.b(y))], 1))))

    return Net(body, a=conv(2, 6, dims=2), b=conv(3, 6, dims=2), joint=conv(12, 6, dims=2), head=conv(6, 2, dims=2))
