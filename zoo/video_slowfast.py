"""Video networks after facebookresearch/SlowFast: SlowFast, whose pathways travel in lists."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.entry import Entry

Clips = list[Tensor]


def init_weights(model: nn.Module, fc_init_std: float = 0.01, zero_init_final_bn: bool = False) -> None:
    """The weights of PySlowFast; ``zero_init_final_bn`` starts every residual branch at zero."""
    for m in model.modules():
        if isinstance(m, nn.Conv3d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            if m.bias is not None:
                nn.init.constant_(m.bias, 0)
        elif isinstance(m, nn.BatchNorm3d):
            zero = getattr(m, "transform_final_bn", False) and zero_init_final_bn
            m.weight.data.fill_(0.0 if zero else 1.0)
            m.bias.data.zero_()
        if isinstance(m, nn.Linear):
            m.weight.data.normal_(mean=0.0, std=fc_init_std)
            m.bias.data.zero_()


class ResNetBasicStem(nn.Module):
    """Convolution, norm, ReLU, pooling of one pathway."""

    def __init__(self, dim_in: int, dim_out: int, kernel: Sequence[int]) -> None:
        super().__init__()
        padding = [kernel[0] // 2, 3, 3]
        self.conv = nn.Conv3d(dim_in, dim_out, tuple(kernel), stride=(1, 2, 2), padding=tuple(padding), bias=False)
        self.bn = nn.BatchNorm3d(num_features=dim_out, eps=1e-5, momentum=0.1)
        self.relu = nn.ReLU(True)
        self.pool_layer = nn.MaxPool3d(kernel_size=[1, 3, 3], stride=[1, 2, 2], padding=[0, 1, 1])

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = self.bn(x)
        x = self.relu(x)
        return self.pool_layer(x)


class VideoModelStem(nn.Module):
    """One stem per pathway."""

    def __init__(self, dim_out: Sequence[int], temporal: Sequence[int]) -> None:
        super().__init__()
        self.num_pathways = len(dim_out)
        for pathway in range(self.num_pathways):
            stem = ResNetBasicStem(3, dim_out[pathway], [temporal[pathway], 7, 7])
            self.add_module(f"pathway{pathway}_stem", stem)

    def forward(self, x: Clips) -> Clips:
        assert len(x) == self.num_pathways, f"Input tensor does not contain {self.num_pathways} pathway"
        y = []
        for pathway in range(len(x)):
            m = getattr(self, f"pathway{pathway}_stem")
            y.append(m(x[pathway]))
        return y


class FuseFastToSlow(nn.Module):
    """A convolution strided in time brings the fast pathway behind the slow one's channels."""

    def __init__(self, dim_in: int, fusion_conv_channel_ratio: int, fusion_kernel: int, alpha: int) -> None:
        super().__init__()
        self.conv_f2s = nn.Conv3d(
            dim_in,
            dim_in * fusion_conv_channel_ratio,
            kernel_size=[fusion_kernel, 1, 1],
            stride=[alpha, 1, 1],
            padding=[fusion_kernel // 2, 0, 0],
            bias=False,
        )
        self.bn = nn.BatchNorm3d(num_features=dim_in * fusion_conv_channel_ratio, eps=1e-5, momentum=0.1)
        self.relu = nn.ReLU(True)

    def forward(self, x: Clips) -> Clips:
        x_s = x[0]
        x_f = x[1]
        fuse = self.conv_f2s(x_f)
        fuse = self.bn(fuse)
        fuse = self.relu(fuse)
        x_s_fuse = torch.cat([x_s, fuse], 1)
        return [x_s_fuse, x_f]


class BottleneckTransform(nn.Module):
    """Tx1x1, 1x3x3 and 1x1x1 convolutions."""

    def __init__(self, dim_in: int, dim_out: int, temp_kernel_size: int, stride: int, dim_inner: int) -> None:
        super().__init__()
        t = temp_kernel_size
        self.a = nn.Conv3d(dim_in, dim_inner, kernel_size=[t, 1, 1], padding=[t // 2, 0, 0], bias=False)
        self.a_bn = nn.BatchNorm3d(num_features=dim_inner)
        self.a_relu = nn.ReLU(inplace=True)
        self.b = nn.Conv3d(dim_inner, dim_inner, [1, 3, 3], stride=[1, stride, stride], padding=[0, 1, 1], bias=False)
        self.b_bn = nn.BatchNorm3d(num_features=dim_inner)
        self.b_relu = nn.ReLU(inplace=True)
        self.c = nn.Conv3d(dim_inner, dim_out, kernel_size=[1, 1, 1], bias=False)
        self.c_bn = nn.BatchNorm3d(num_features=dim_out)
        self.c_bn.transform_final_bn = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = self.a_bn(x)
        x = self.a_relu(x)

        x = self.b(x)
        x = self.b_bn(x)
        x = self.b_relu(x)

        x = self.c(x)
        return self.c_bn(x)


class ResBlock(nn.Module):
    """A bottleneck beside a shortcut."""

    def __init__(self, dim_in: int, dim_out: int, temp_kernel_size: int, stride: int, dim_inner: int) -> None:
        super().__init__()
        if (dim_in != dim_out) or (stride != 1):
            self.branch1 = nn.Conv3d(dim_in, dim_out, kernel_size=1, stride=[1, stride, stride], bias=False)
            self.branch1_bn = nn.BatchNorm3d(num_features=dim_out)
        self.branch2 = BottleneckTransform(dim_in, dim_out, temp_kernel_size, stride, dim_inner)
        self.relu = nn.ReLU(True)

    def forward(self, x: Tensor) -> Tensor:
        f_x = self.branch2(x)
        x = self.branch1_bn(self.branch1(x)) + f_x if hasattr(self, "branch1") else x + f_x
        return self.relu(x)


class Nonlocal(nn.Module):
    """Embedded Gaussian attention over all positions of a clip, beside a shortcut."""

    def __init__(self, dim: int, dim_inner: int, pool_size: Sequence[int] | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.dim_inner = dim_inner
        self.use_pool = pool_size is not None and any(size > 1 for size in pool_size)
        self.conv_theta = nn.Conv3d(dim, dim_inner, kernel_size=1, stride=1, padding=0)
        self.conv_phi = nn.Conv3d(dim, dim_inner, kernel_size=1, stride=1, padding=0)
        self.conv_g = nn.Conv3d(dim, dim_inner, kernel_size=1, stride=1, padding=0)
        self.conv_out = nn.Conv3d(dim_inner, dim, kernel_size=1, stride=1, padding=0)
        self.bn = nn.BatchNorm3d(num_features=dim, eps=1e-5, momentum=0.1)
        self.bn.transform_final_bn = True
        if self.use_pool:
            self.pool = nn.MaxPool3d(kernel_size=pool_size, stride=pool_size, padding=[0, 0, 0])

    def forward(self, x: Tensor) -> Tensor:
        x_identity = x
        n, _, t, h, w = x.size()

        theta = self.conv_theta(x)
        if self.use_pool:
            x = self.pool(x)
        phi = self.conv_phi(x)
        g = self.conv_g(x)

        theta = theta.view(n, self.dim_inner, -1)
        phi = phi.view(n, self.dim_inner, -1)
        g = g.view(n, self.dim_inner, -1)

        theta_phi = torch.einsum("nct,ncp->ntp", (theta, phi))
        theta_phi = theta_phi * (self.dim_inner**-0.5)
        theta_phi = nn.functional.softmax(theta_phi, dim=2)

        theta_phi_g = torch.einsum("ntg,ncg->nct", (theta_phi, g))
        theta_phi_g = theta_phi_g.view(n, self.dim_inner, t, h, w)

        p = self.conv_out(theta_phi_g)
        p = self.bn(p)
        return x_identity + p


class ResStage(nn.Module):
    """The blocks of one stage, one row per pathway, with non-local blocks behind some of them."""

    def __init__(
        self,
        dim_in: Sequence[int],
        dim_out: Sequence[int],
        dim_inner: Sequence[int],
        temp_kernel_sizes: Sequence[Sequence[int]],
        stride: int,
        num_blocks: int,
        nonlocal_inds: Sequence[int] = (),
        nonlocal_pool: Sequence[int] = (1, 2, 2),
    ) -> None:
        super().__init__()
        self.num_blocks = num_blocks
        self.num_pathways = len(dim_in)
        for pathway in range(self.num_pathways):
            kernels = (list(temp_kernel_sizes[pathway]) * num_blocks)[:num_blocks]
            for i in range(num_blocks):
                block = ResBlock(
                    dim_in[pathway] if i == 0 else dim_out[pathway],
                    dim_out[pathway],
                    kernels[i],
                    stride if i == 0 else 1,
                    dim_inner[pathway],
                )
                self.add_module(f"pathway{pathway}_res{i}", block)
                if i in nonlocal_inds:
                    nln = Nonlocal(dim_out[pathway], dim_out[pathway] // 2, nonlocal_pool)
                    self.add_module(f"pathway{pathway}_nonlocal{i}", nln)

    def forward(self, inputs: Clips) -> Clips:
        output = []
        for pathway in range(self.num_pathways):
            x = inputs[pathway]
            for i in range(self.num_blocks):
                m = getattr(self, f"pathway{pathway}_res{i}")
                x = m(x)
                if hasattr(self, f"pathway{pathway}_nonlocal{i}"):
                    nln = getattr(self, f"pathway{pathway}_nonlocal{i}")
                    x = nln(x)
            output.append(x)
        return output


class ResNetBasicHead(nn.Module):
    """Pools each pathway, concatenates them and classifies; in eval mode probabilities, averaged over positions."""

    def __init__(self, dim_in: Sequence[int], num_classes: int, dropout_rate: float = 0.5) -> None:
        super().__init__()
        self.num_pathways = len(dim_in)
        for pathway in range(self.num_pathways):
            self.add_module(f"pathway{pathway}_avgpool", nn.AdaptiveAvgPool3d((1, 1, 1)))
        self.dropout = nn.Dropout(dropout_rate)
        self.projection = nn.Linear(sum(dim_in), num_classes, bias=True)
        self.act = nn.Softmax(dim=4)

    def forward(self, inputs: Clips) -> Tensor:
        assert len(inputs) == self.num_pathways, f"Input tensor does not contain {self.num_pathways} pathway"
        pool_out = []
        for pathway in range(self.num_pathways):
            m = getattr(self, f"pathway{pathway}_avgpool")
            pool_out.append(m(inputs[pathway]))
        x = torch.cat(pool_out, 1)
        x = x.permute((0, 2, 3, 4, 1))
        x = self.dropout(x)
        x = self.projection(x)
        if not self.training:
            x = self.act(x)
            x = x.mean([1, 2, 3])
        return x.view(x.shape[0], -1)


class SlowFast(nn.Module):
    """A slow and a fast pathway; the input is a list of two clips."""

    def __init__(
        self,
        num_classes: int = 400,
        width: int = 64,
        depth: Sequence[int] = (3, 4, 6, 3),
        alpha: int = 4,
        beta_inv: int = 8,
        fusion_ratio: int = 2,
        fusion_kernel: int = 7,
        zero_init_final_bn: bool = False,
    ) -> None:
        super().__init__()
        self.num_pathways = 2
        out_dim_ratio = beta_inv // fusion_ratio
        temporal = [[[1], [3]], [[1], [3]], [[3], [3]], [[3], [3]]]
        self.s1 = VideoModelStem([width, width // beta_inv], [1, 5])
        self.s1_fuse = FuseFastToSlow(width // beta_inv, fusion_ratio, fusion_kernel, alpha)
        dim_in = width
        for index in range(4):
            inner, out = width * 2**index, width * 4 * 2**index
            stage = ResStage(
                [dim_in + dim_in // out_dim_ratio, dim_in // beta_inv],
                [out, out // beta_inv],
                [inner, inner // beta_inv],
                temporal[index],
                1 if index == 0 else 2,
                depth[index],
            )
            self.add_module(f"s{index + 2}", stage)
            if index < 3:
                fuse = FuseFastToSlow(out // beta_inv, fusion_ratio, fusion_kernel, alpha)
                self.add_module(f"s{index + 2}_fuse", fuse)
            if index == 0:
                for pathway in range(self.num_pathways):
                    pool = nn.MaxPool3d(kernel_size=[1, 1, 1], stride=[1, 1, 1], padding=[0, 0, 0])
                    self.add_module(f"pathway{pathway}_pool", pool)
            dim_in = out
        self.head = ResNetBasicHead([dim_in, dim_in // beta_inv], num_classes)
        init_weights(self, zero_init_final_bn=zero_init_final_bn)

    def forward(self, x: Clips) -> Tensor:
        x = self.s1(x)
        x = self.s1_fuse(x)
        x = self.s2(x)
        x = self.s2_fuse(x)
        for pathway in range(self.num_pathways):
            pool = getattr(self, f"pathway{pathway}_pool")
            x[pathway] = pool(x[pathway])
        x = self.s3(x)
        x = self.s3_fuse(x)
        x = self.s4(x)
        x = self.s4_fuse(x)
        x = self.s5(x)
        return self.head(x)


def listed(clips: Clips) -> tuple[Clips]:
    """The inputs of one call: a list of clips, one per pathway."""
    return (list(clips),)


PAIR = ((2, 3, 2, 48, 48), (2, 3, 8, 48, 48))
CLIPS = ((1, 3, 8, 224, 224), (1, 3, 32, 224, 224))

NETWORKS = (
    Entry("SlowFast-R50", "video", lambda: SlowFast(5, width=16), PAIR, CLIPS, listed),
    Entry(
        "SlowFast-R50, zero-initialised norms",
        "video",
        lambda: SlowFast(5, width=16, zero_init_final_bn=True),
        PAIR,
        CLIPS,
        listed,
    ),
)
