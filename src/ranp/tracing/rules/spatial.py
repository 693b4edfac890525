"""Pooling, interpolation, spatial padding: samples and channels pass, space is rigid."""

from __future__ import annotations

from ranp.tracing.operation import Op, labels_of
from ranp.tracing.rules.table import rule

_POOLS = [
    name.format(n)
    for n in (1, 2, 3)
    for name in (
        "avg_pool{}d max_pool{}d max_pool{}d_with_indices adaptive_avg_pool{}d _adaptive_avg_pool{}d "
        "adaptive_max_pool{}d fractional_max_pool{}d reflection_pad{}d replication_pad{}d upsample_nearest{}d "
        "_upsample_nearest_exact{}d"
    ).split()
]
_UPSAMPLES = ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"]
_UPSAMPLES += ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"]


def _rank(op: Op) -> int:
    """Dimensions of space, as the operator's name says."""
    return next(rank for rank in (1, 2, 3) if f"{rank}d" in op.name)


@rule(*_POOLS, *_UPSAMPLES, "lp_pool2d", "mkldnn_max_pool2d", "mkldnn_max_pool3d")
def spatial(op: Op) -> None:
    """Acts on the last one to three dimensions alone."""
    x = op["self"] if op["self"] is not None else op["input"]
    op.pass_beside(x, range(x.dim() - _rank(op), x.dim()), "space is resampled along channels")


@rule("max_unpool2d", "max_unpool3d")
def unpool(op: Op) -> None:
    """Puts values back where pooling found them: samples and channels line up with the positions that pooling kept."""
    x, indices = op["self"], op["indices"]
    rank = _rank(op)
    for tensor in (x, indices):
        op.pin_tensor(tensor, "space is resampled along channels", range(x.dim() - rank, x.dim()))
    op.emit(
        {
            d: op.merge([labels_of(x).get(d), labels_of(indices).get(d)], "meets positions of fixed size")
            for d in range(x.dim() - rank)
            if x.shape[d] != 1
        }
    )
