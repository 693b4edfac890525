"""One call of every module of ``torch.nn`` and of the functions beside them: what operators a network can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from tests.support.topologies.topology import tensor as T


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes:
        name: Of the module, or of the function.
        call: A module or a function.
        inputs: Positional arguments.
        keywords: Others.
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)


SPACE = {1: (6,), 2: (6, 6), 3: (4, 4, 4)}
MODES = {1: ("nearest", "linear"), 2: ("nearest", "bilinear", "bicubic"), 3: ("nearest", "trilinear")}
POINTWISE = (
    "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU ReLU6 RReLU SELU "
    "SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Identity Dropout AlphaDropout FeatureAlphaDropout"
).split()
OVER_CHANNELS = "Softmin Softmax LogSoftmax Softmax2d GLU".split()
LOSSES = "L1Loss MSELoss SmoothL1Loss HuberLoss KLDivLoss PoissonNLLLoss SoftMarginLoss BCEWithLogitsLoss".split()

WITHOUT_A_CALL = frozenset(
    "Module Container Sequential ModuleList ModuleDict ParameterList ParameterDict RNNBase RNNCellBase DataParallel "
    "NLLLoss2d".split()
)
"""Classes that hold others, are abstract, or go by another name."""


def _of_each_rank() -> Iterator[Case]:
    for rank, space in SPACE.items():
        x = T(2, 4, *space)

        def case(kind: str, *arguments: Any, x: Tensor = x, rank: int = rank, **options: Any) -> Case:
            name = kind.format(rank)
            return Case(name, getattr(nn, name)(*arguments, **options), (x,))

        yield case("Conv{}d", 4, 6, 3)
        yield case("Conv{}d", 4, 6, 3, padding=1, padding_mode="circular", groups=2)
        yield case("Conv{}d", 4, 4, 3, padding=1, padding_mode="reflect", groups=4)
        yield case("Conv{}d", 4, 6, 3, padding="same", padding_mode="replicate")
        yield case("ConvTranspose{}d", 4, 6, 3)
        for kind in ("AvgPool{}d", "MaxPool{}d", "AdaptiveAvgPool{}d", "AdaptiveMaxPool{}d"):
            yield case(kind, 2)
        yield case("MaxPool{}d", 2, return_indices=True)
        yield case("AdaptiveAvgPool{}d", 1)
        yield case("LPPool{}d", 2, 2)
        if rank > 1:
            yield case("FractionalMaxPool{}d", 2, output_ratio=0.5)
        yield case("ConstantPad{}d", 1, 0.5)
        for kind in ("ReflectionPad{}d", "ReplicationPad{}d", "ZeroPad{}d", "CircularPad{}d"):
            yield case(kind, 1)
        yield case("BatchNorm{}d", 4)
        bare = getattr(nn, f"BatchNorm{rank}d")(4, affine=False, track_running_stats=False)
        yield Case("statistics of the batch", bare, (x,))
        yield case("InstanceNorm{}d", 4)
        yield case("InstanceNorm{}d", 4, affine=True, track_running_stats=True)
        yield case("Dropout{}d")
        yield from (case("Upsample", scale_factor=2, mode=mode) for mode in (*MODES[rank], "nearest-exact", "area"))
        values, places = getattr(F, f"max_pool{rank}d")(x, 2, return_indices=True)
        yield Case(f"MaxUnpool{rank}d", getattr(nn, f"MaxUnpool{rank}d")(2), (values, places))


def _shapes() -> Iterator[Case]:
    image, volume, table = T(2, 4, 6, 6), T(2, 4, 4, 4, 4), T(2, 4)
    last, last3 = torch.channels_last, torch.channels_last_3d
    yield Case("AdaptiveAvgPool3d", nn.AdaptiveAvgPool3d(1), (volume.contiguous(memory_format=last3),))
    yield Case("AdaptiveAvgPool2d", nn.AdaptiveAvgPool2d(1), (image.contiguous(memory_format=last),))
    yield from (Case(name, getattr(nn, name)(), (image,)) for name in (*POINTWISE, *OVER_CHANNELS))
    yield Case("PReLU", nn.PReLU(4), (volume,))
    yield Case("Threshold", nn.Threshold(0.1, 0.0), (image,))
    yield Case("Flatten", nn.Flatten(), (image,))
    yield Case("Unflatten", nn.Unflatten(1, (2, 2)), (image,))
    yield Case("PixelShuffle", nn.PixelShuffle(2), (T(2, 8, 3, 3),))
    yield Case("PixelUnshuffle", nn.PixelUnshuffle(2), (image,))
    yield Case("ChannelShuffle", nn.ChannelShuffle(2), (image,))
    yield Case("UpsamplingBilinear2d", nn.UpsamplingBilinear2d(scale_factor=2), (image,))
    yield Case("UpsamplingNearest2d", nn.UpsamplingNearest2d(scale_factor=2), (image,))
    yield Case("Unfold", nn.Unfold(2), (image,))
    yield Case("Fold", nn.Fold((3, 3), 2), (T(2, 12, 4),))
    yield Case("SyncBatchNorm", nn.SyncBatchNorm(4), (volume,))
    yield Case("GroupNorm", nn.GroupNorm(2, 4), (volume,))
    yield Case("LayerNorm", nn.LayerNorm(4), (T(2, 5, 4),))
    yield Case("RMSNorm", nn.RMSNorm(4), (T(2, 5, 4),))
    yield Case("LocalResponseNorm", nn.LocalResponseNorm(2), (volume,))
    yield Case("CrossMapLRN2d", nn.CrossMapLRN2d(2), (image,))
    yield Case("Linear", nn.Linear(4, 3), (T(2, 5, 4),))
    yield Case("Bilinear", nn.Bilinear(4, 5, 3), (T(2, 4), T(2, 5)))
    yield Case("CosineSimilarity", nn.CosineSimilarity(), (image, T(2, 4, 6, 6, seed=1)))
    yield Case("PairwiseDistance", nn.PairwiseDistance(), (table, T(2, 4, seed=1)))
    for antialiased in ("bilinear", "bicubic"):
        yield Case(
            "interpolate", F.interpolate, (image,), {"scale_factor": 0.5, "mode": antialiased, "antialias": True}
        )


def _tables_and_sequences() -> Iterator[Case]:
    words, tokens = torch.tensor([[0, 1], [2, 1]]), T(2, 5, 4)
    yield Case("Embedding", nn.Embedding(4, 3), (words,))
    yield Case("Embedding", nn.Embedding(4, 3, max_norm=1.0), (words,))
    yield from (Case("EmbeddingBag", nn.EmbeddingBag(4, 3, mode=mode), (words,)) for mode in ("sum", "mean", "max"))
    for name in ("RNN", "GRU", "LSTM"):
        yield Case(name, getattr(nn, name)(4, 3, batch_first=True), (tokens,))
        yield Case(name, getattr(nn, name)(4, 3, num_layers=2, bidirectional=True, dropout=0.5), (tokens,))
        yield Case(f"{name}Cell", getattr(nn, f"{name}Cell")(4, 3), (T(2, 4),))
    yield Case("LSTM", nn.LSTM(4, 6, proj_size=3), (tokens,))
    yield Case("MultiheadAttention", nn.MultiheadAttention(4, 2, batch_first=True), (tokens, tokens, tokens))
    across = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True, kdim=3, vdim=6)
    yield Case("MultiheadAttention", across, (tokens, T(2, 5, 3), T(2, 5, 6)))
    padding = {"src_key_padding_mask": torch.tensor([[False] * 4 + [True]] * 2)}
    block = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    yield Case("TransformerEncoderLayer", block, (tokens,))
    yield Case("TransformerEncoderLayer", nn.TransformerEncoderLayer(4, 2, 8, norm_first=True), (tokens,))
    yield Case("TransformerEncoder", nn.TransformerEncoder(block, 2), (tokens,), padding)
    decoder = nn.TransformerDecoderLayer(4, 2, 8)
    yield Case("TransformerDecoderLayer", decoder, (tokens, tokens))
    yield Case("TransformerDecoder", nn.TransformerDecoder(decoder, 1), (tokens, tokens))
    yield Case("Transformer", nn.Transformer(4, 2, 1, 1, 8, batch_first=True), (tokens, tokens))
    heads = T(2, 2, 5, 4)
    for options in ({}, {"is_causal": True}, {"attn_mask": T(5, 5)}, {"attn_mask": T(2, 5, 5) > 0}, {"dropout_p": 0.5}):
        yield Case("attention", F.scaled_dot_product_attention, (heads, heads, heads), options)
    grouped = {"enable_gqa": True}
    yield Case("attention", F.scaled_dot_product_attention, (T(2, 4, 5, 4), heads, heads), grouped)


def _losses() -> Iterator[Case]:
    x, y, wide = T(3, 4), T(3, 4, seed=1), T(2, 4, 4, 4, 4)
    share, numbers = y.sigmoid(), torch.tensor([0, 2, 1])
    for reduction in ("mean", "sum", "none"):

        def case(kind: str, *inputs: Any, reduction: str = reduction, **options: Any) -> Case:
            return Case(kind, getattr(nn, kind)(reduction=reduction, **options), inputs)

        yield from (case(kind, x, share) for kind in LOSSES)
        yield case("BCELoss", x.sigmoid(), share)
        yield case("GaussianNLLLoss", x, y, share)
        yield case("HingeEmbeddingLoss", x, y.sign())
        yield case("MultiLabelSoftMarginLoss", x, share)
        yield case("MarginRankingLoss", T(3), T(3, seed=1), y[:, 0].sign())
        yield case("CosineEmbeddingLoss", x, y, y[:, 0].sign())
        yield case("TripletMarginLoss", x, y, share)
        yield case("TripletMarginWithDistanceLoss", x, y, share)
        for kind in ("NLLLoss", "CrossEntropyLoss"):
            yield case(kind, x, numbers)
            yield case(kind, wide, torch.zeros(2, 4, 4, 4, dtype=torch.long), weight=torch.ones(4))
        yield case("CrossEntropyLoss", wide, wide.softmax(1))
        yield case("MultiMarginLoss", x, numbers)
        yield case("MultiLabelMarginLoss", x, torch.zeros(3, 4, dtype=torch.long))
    lengths = (torch.ones(3, 2, dtype=torch.long), torch.tensor([5] * 3), torch.tensor([2] * 3))
    yield Case("CTCLoss", nn.CTCLoss(), (T(5, 3, 4).log_softmax(-1), *lengths))
    yield Case("AdaptiveLogSoftmaxWithLoss", nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4], 2.0), (x, numbers))
    if hasattr(nn, "LinearCrossEntropyLoss"):
        yield Case("LinearCrossEntropyLoss", nn.LinearCrossEntropyLoss(4, 5), (x, numbers))


def _functions() -> Iterator[Case]:
    image, volume = T(2, 4, 6, 6), T(2, 4, 4, 4, 4)
    yield Case("gumbel_softmax", F.gumbel_softmax, (image,), {"hard": True, "dim": 1})
    yield Case("normalize", F.normalize, (image,))
    yield Case("pdist", F.pdist, (T(3, 4),))
    yield Case("cdist", torch.cdist, (T(2, 3, 4), T(2, 5, 4, seed=1)))
    yield Case("cdist", torch.cdist, (T(2, 30, 4), T(2, 30, 4, seed=1)))
    yield Case("cdist", torch.cdist, (T(2, 3, 4), T(2, 5, 4, seed=1)), {"p": 1.0})
    for theta, x in ((T(2, 2, 3), image), (T(2, 3, 4), volume)):
        options: dict[str, Any] = {"align_corners": False}
        yield Case("affine_grid", F.affine_grid, (theta, list(x.shape)), options)
        yield Case("grid_sample", F.grid_sample, (x, F.affine_grid(theta, list(x.shape), **options)), options)
    for wrap in (weight_norm, spectral_norm, parametrizations.weight_norm, parametrizations.spectral_norm):
        yield Case(wrap.__name__, wrap(nn.Conv3d(4, 6, 3)), (volume,))
    for kind in ("matrix_exp", "cayley", "householder"):
        yield Case("orthogonal", parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map=kind), (T(2, 4),))
    for name in "fft ifft rfft irfft hfft ihfft fft2 rfft2 irfft2 fftn rfftn irfftn fftshift ifftshift".split():
        yield Case(name, getattr(torch.fft, name), (image,), {} if name[-1] in "2n" or "shift" in name else {"dim": 2})
    yield Case("rfftn", torch.fft.rfftn, (volume,), {"dim": (2, 3, 4)})


def _movements() -> Iterator[Case]:
    """Data that is moved, taken and written; all dimensions have labels, also those of samples and space."""
    x, y, flat = T(3, 4, 5, 6), T(3, 4, 5, 6, seed=1), T(3, 5)
    order, twice, places = torch.tensor([2, 0, 1]), torch.tensor([[0, 2], [1, 1]]), torch.tensor([0, 2])
    index = torch.randint(0, 4, (3, 4, 5, 6), generator=torch.Generator().manual_seed(0))
    mask = y[0, :, :, 0] > 0
    square = T(3, 4, 4)

    def put(x: Tensor, *at: Any, values: Any) -> Tensor:
        x = x.clone()
        x[at] = values
        return x

    def along(x: Tensor) -> Tensor:
        return torch.tensor([3, 2, 0, 1]).view(1, 4, 1, 1).expand(x.shape[0], 4, *x.shape[2:])

    every = slice(None)
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "one index": (lambda x: x[:, :, order], (x,)),
        "index of two dimensions": (lambda x: x[:, twice], (x,)),
        "indices side by side": (lambda x: x[:, places, places], (x,)),
        "indices apart": (lambda x: x[:, places, :, places], (x,)),
        "indices that broadcast": (lambda x: x[order[:, None], places[None]], (x,)),
        "indices in front": (lambda x: x[twice], (x,)),
        "a mask": (lambda x: x[:, mask], (x,)),
        "a mask of everything": (lambda x: x[x > 0], (x,)),
        "numbers of its own": (lambda x: x[x.argmax(0)], (flat,)),
        "put a number": (lambda x: put(x, every, every, order, values=0.5), (x,)),
        "put what lines up": (lambda x, y: put(x, every, every, order, values=y[:, :, :3]), (x, y)),
        "put a row": (lambda x, y: put(x, every, places, values=y), (x, T(6))),
        "put apart": (lambda x, y: put(x, every, places, every, places, values=y), (x, T(2, 3, 5))),
        "put apart and broadcast": (lambda x, y: put(x, every, places, every, places, values=y), (x, T(5))),
        "put side by side": (lambda x, y: put(x, every, places, places, values=y), (x, T(3, 2, 6))),
        "put under a mask": (lambda x: put(x, every, mask, values=0.5), (x,)),
        "put under its own mask": (lambda x: put(x, x > 0, values=0.5), (x,)),
        "put a row under a mask": (lambda x, y: put(x, every, mask, values=y), (x, T(6))),
        "put out of place": (lambda x, y: x.index_put((order,), y, accumulate=True), (x, y)),
        "put into zeros": (
            lambda y: put(y.new_zeros(*y.shape[:2], 5, y.shape[3]), every, every, places, values=y),
            (y[:, :, :2],),
        ),
        "gather": (lambda x: x.gather(1, index), (x,)),
        "gather in one order": (lambda x: x.gather(1, along(x)), (x,)),
        "gather less": (lambda x: x.gather(1, index[:2, :, :3]), (x,)),
        "gather by its own numbers": (lambda x: x.gather(2, x.argmax(2, keepdim=True)), (x,)),
        "take along": (lambda x: torch.take_along_dim(x, index, 1), (x,)),
        "take": (lambda x: x.take(order), (x,)),
        "scatter": (lambda x, y: x.scatter(1, index, y), (x, y)),
        "scatter in one order": (lambda x, y: x.scatter(1, along(x), y), (x, y)),
        "scatter in one order in place": (lambda x: torch.zeros_like(x).scatter_add_(1, along(x), x), (x,)),
        "scatter less": (lambda x, y: x.scatter(1, index[:2, :, :3], y), (x, y)),
        "scatter a number": (lambda x: x.scatter(1, index[:, :1], 0.5), (x,)),
        "scatter by its own numbers": (lambda x: torch.zeros_like(x).scatter_(2, x.argmax(2, keepdim=True), 1.0), (x,)),
        "scatter in place": (lambda x, y: x.clone().scatter_add_(1, index, y), (x, y)),
        "scatter reduce": (lambda x, y: x.scatter_reduce(1, index, y, "amax"), (x, y)),
        "index add": (lambda x, y: x.index_add(1, order, y[:, :3]), (x, y)),
        "index copy": (lambda x, y: x.clone().index_copy_(2, order, y[:, :, :3]), (x, y)),
        "index fill": (lambda x: x.index_fill(2, order, 0.5), (x,)),
        "index reduce": (lambda x, y: x.index_reduce(1, order, y[:, :3], "amax"), (x, y)),
        "index select": (lambda x: x.index_select(2, order), (x,)),
        "masked fill": (lambda x: x.masked_fill(x > 0, 0.5), (x,)),
        "masked scatter": (lambda x, y: x.masked_scatter(x > 0, y), (x, y)),
        "masked select": (lambda x: x.masked_select(x > 0), (x,)),
        "slice scatter": (lambda x, y: x.slice_scatter(y, 2, 1, 3), (x, y[:, :, :2])),
        "select scatter": (lambda x, y: x.select_scatter(y, 2, 1), (x, y[:, :, 0])),
        "diagonal scatter": (lambda x, y: x.diagonal_scatter(y, 0, 1, 2), (square, flat[:, :4])),
        "windows": (lambda x: x.unfold(2, 2, 2), (x,)),
        "diagonal": (lambda x: x.diagonal(0, 1, 2), (square,)),
        "diagonal beside": (lambda x: x.diagonal(1, -1, 0), (x,)),
        "diagonal matrix": (torch.diag_embed, (flat,)),
        "diagonal matrix in front": (lambda x: torch.diag_embed(x, 0, 0, -1), (flat,)),
        "diagonal matrix beside": (lambda x: torch.diag_embed(x, 1), (flat,)),
        "strides": (lambda x: x.as_strided(x.shape, x.stride()), (x,)),
        "strides turned": (lambda x: x.as_strided(x.shape[::-1], x.stride()[::-1]), (x,)),
        "quarter turn": (lambda x: x.rot90(1, (1, 3)), (x,)),
        "roll": (lambda x: x.roll(1, 2), (x,)),
        "flip": (lambda x: x.flip(1, 2), (x,)),
        "pairs": (torch.view_as_complex, (T(3, 4, 2),)),
        "real of complex": (lambda x, y: torch.view_as_real(torch.complex(x, y)), (x, y)),
        "conjugate": (lambda x, y: (torch.complex(x, y).conj() * torch.complex(y, x)).imag, (x, y)),
        "buckets": (lambda x, y: torch.bucketize(x, y), (x, torch.tensor([0.0, 1.0, 2.0]))),
        "sorted table": (lambda x, y: torch.searchsorted(x.sort(-1).values, y), (x, y)),
        "outer": (lambda x, y, z: torch.addr(x, y, z), (T(4, 5), T(4), T(5))),
        "outer in place": (lambda x, y, z: x.clone().addr_(y, z), (T(4, 5), T(4), T(5))),
        "norm of rows": (lambda x: x.renorm(2, 0, 1.0), (x,)),
        "in place": (lambda x, y: x.clone().abs_().copysign_(y).mul_(y), (x, y)),
        "rounded": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7), (x,)),
        "products": (lambda x, y: x @ y.transpose(2, 3), (x, y)),
        "einsum": (lambda x, y: torch.einsum("bcij,bdij->bcd", x, y), (x, y)),
        "fold": (lambda x: torch.nn.functional.fold(x, (2, 2), 2), (T(3, 12, 1),)),
        "fold into one": (lambda x: torch.nn.functional.fold(x, (2, 2), 2), (T(3, 4, 1),)),
    }
    for name, (function, inputs) in functions.items():
        yield Case(name, function, inputs)


def all_cases() -> list[Case]:
    """Every call, made anew."""
    torch.manual_seed(0)
    return [
        *_of_each_rank(),
        *_shapes(),
        *_tables_and_sequences(),
        *_losses(),
        *_functions(),
        *_movements(),
    ]
