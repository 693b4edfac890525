"""I3D-ResNet after facebookresearch/SlowFast, with and without non-local blocks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.entry import Entry
from zoo.video_slowfast import Clips, ResNetBasicHead, ResStage, VideoModelStem, init_weights, listed


class I3DResNet(nn.Module):
    """A ResNet inflated in time; ``nonlocal_inds`` names the blocks that a non-local one follows, stage by stage."""

    def __init__(
        self,
        num_classes: int = 400,
        width: int = 64,
        depth: Sequence[int] = (3, 4, 6, 3),
        nonlocal_inds: Sequence[Sequence[int]] = ((), (), (), ()),
        zero_init_final_bn: bool = False,
    ) -> None:
        super().__init__()
        self.num_pathways = 1
        temporal = [[[3]], [[3, 1]], [[3, 1]], [[1, 3]]]
        self.s1 = VideoModelStem([width], [5])
        dim_in = width
        for index in range(4):
            inner, out = width * 2**index, width * 4 * 2**index
            stride = 1 if index == 0 else 2
            stage = ResStage([dim_in], [out], [inner], temporal[index], stride, depth[index], nonlocal_inds[index])
            self.add_module(f"s{index + 2}", stage)
            if index == 0:
                self.pathway0_pool = nn.MaxPool3d(kernel_size=[2, 1, 1], stride=[2, 1, 1], padding=[0, 0, 0])
            dim_in = out
        self.head = ResNetBasicHead([dim_in], num_classes)
        init_weights(self, zero_init_final_bn=zero_init_final_bn)

    def forward(self, x: Clips) -> Tensor:
        x = x[:]
        x = self.s1(x)
        x = self.s2(x)
        y = []
        for pathway in range(self.num_pathways):
            pool = getattr(self, f"pathway{pathway}_pool")
            y.append(pool(x[pathway]))
        x = self.s3(y)
        x = self.s4(x)
        x = self.s5(x)
        return self.head(x)


NONLOCAL = ((), (1, 3), (1, 3, 5), ())

NETWORKS = (
    Entry("I3D-R50", "video", lambda: I3DResNet(5, width=8), ((2, 3, 4, 48, 48),), ((1, 3, 8, 224, 224),), listed),
    Entry(
        "NL-I3D-R50",
        "video",
        lambda: I3DResNet(5, width=8, nonlocal_inds=NONLOCAL),
        ((2, 3, 4, 48, 48),),
        ((1, 3, 8, 224, 224),),
        listed,
    ),
)
