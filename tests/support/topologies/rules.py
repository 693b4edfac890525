"""Topologies: operators with rules of their own, each where channels pass beside it or must stay because of it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.patterns import between, spatial
from tests.support.topologies.topology import Collection, Net, conv, image, line, tensor, volume

RULES = Collection()
SPACE = (2, 3, 4)


def gate(x: Tensor, values: Tensor) -> Tensor:
    """Scales every channel by one value of each sample."""
    return x * spatial(values).sigmoid()


# --- Fourier transforms and complex numbers -----------------------------------------------------------------------


def low_frequencies(x: Tensor, weight: Tensor) -> Tensor:
    """A Fourier neural operator's convolution: the lowest frequencies are mixed by weights of their own."""
    spectrum = torch.fft.rfftn(x, dim=SPACE)
    mixed = torch.zeros(x.shape[0], weight.shape[1], *spectrum.shape[2:], dtype=spectrum.dtype, device=x.device)
    low = (slice(None), slice(None), slice(2), slice(2), slice(2))
    mixed[low] = torch.einsum("bixyz,ioxyz->boxyz", spectrum[low], weight.to(spectrum.dtype))
    return torch.fft.irfftn(mixed, s=x.shape[2:], dim=SPACE)


@RULES.add(volume(), prunable="a stem b", kept="head", consumers={"w": 0}, cuttable=(("w", 0), ("w", 1)))
def fourier_operator_with_pairs() -> nn.Module:
    weight = nn.Parameter(tensor(8, 8, 2, 2, 2, 2) / 4)
    return between(lambda m, x: low_frequencies(x, torch.view_as_complex(m.w)), w=weight)


@RULES.add(volume(), prunable="a stem b", kept="head")
def spectrum_shifted_and_weighted() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        spectrum = torch.fft.fftshift(torch.fft.fftn(x, dim=SPACE), dim=SPACE)
        turned = torch.polar(spectrum.abs(), spectrum.angle()) + spectrum.conj()
        return torch.view_as_real(torch.fft.ifftn(torch.fft.ifftshift(turned, dim=SPACE), dim=SPACE))[..., 0]

    return between(body)


@RULES.add(volume(), prunable="a stem p b", kept="head", together=("stem p",))
def two_branches_as_one_complex_number() -> nn.Module:
    return between(lambda m, x: torch.complex(x, m.p(x)).mul(1j).imag, p=conv(8, 8))


# --- windows, columns, diagonals, strides -------------------------------------------------------------------------


@RULES.add(volume(), prunable="a stem b", kept="head")
def windows_in_three_directions() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        patches = x.unfold(2, 2, 2).unfold(3, 2, 2).unfold(4, 2, 2)
        return patches.flatten(5).amax(-1)

    return between(body)


@RULES.add(image(), prunable="a stem b", kept="head")
def columns_as_channels() -> nn.Module:
    """Space to depth: every channel becomes four in a row."""

    def body(_: Net, x: Tensor) -> Tensor:
        return F.unfold(x, 2, stride=2).view(x.shape[0], -1, x.shape[2] // 2, x.shape[3] // 2)

    return between(body, out=32, dims=2)


@RULES.add(image(), prunable="a stem b", kept="head")
def channels_as_columns() -> nn.Module:
    """Depth to space: four channels in a row become one, so they stand or fall together."""

    def body(_: Net, x: Tensor) -> Tensor:
        return F.fold(x.flatten(2), (2 * x.shape[2], 2 * x.shape[3]), 2, stride=2)

    return between(body, 32, 8, dims=2)


@RULES.add(volume(), prunable="a stem b", kept="head")
def energy_of_each_channel_on_a_diagonal() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        table = x.flatten(2) @ x.flatten(2).transpose(1, 2)
        return gate(x, table.diagonal(dim1=1, dim2=2) / 64)

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head")
def neighbours_on_a_diagonal() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        table = x.flatten(2) @ x.flatten(2).transpose(1, 2)
        return spatial(table.diagonal(1, 1, 2)).expand(-1, -1, 4, 4, 4)

    return between(body, out=7)


@RULES.add(volume(), prunable="a stem b", kept="head", cuttable=(("scale", 0),), masked=False)
def scaled_by_a_diagonal_matrix() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return torch.diag_embed(m.scale).expand(x.shape[0], -1, -1).bmm(x.flatten(2)).view_as(x)

    return between(body, scale=nn.Parameter(tensor(8)))


@RULES.add(volume(), prunable="a stem b", kept="head")
def memory_read_as_it_lies() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        x = x.contiguous()
        shape, stride = x.shape, x.stride()
        last = x.as_strided((shape[0], *shape[2:], shape[1]), (stride[0], *stride[2:], stride[1]))
        return x.as_strided(shape, stride) + last.movedim(-1, 1)

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head")
def memory_read_in_overlapping_strides() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        b, c, *space = x.shape
        stride = x.contiguous().stride()
        pairs = x.contiguous().as_strided((b, c - 1, 2, *space), (stride[0], stride[1], stride[1], *stride[2:]))
        return pairs.sum(2)

    return between(body, out=7)


@RULES.add(volume(), prunable="a stem judge b", kept="head", together=("stem judge",))
def global_pool_of_channels_last() -> nn.Module:
    """The pool of such a tensor restrides its result in place."""

    def body(m: Net, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool3d(x.contiguous(memory_format=torch.channels_last_3d), 1)
        return x * m.judge(pooled).sigmoid()

    return between(body, judge=conv(8, 8, 1))


# --- tables, places told by data ----------------------------------------------------------------------------------


@RULES.add(volume(), prunable="a stem b", kept="head", cuttable=(("table.weight", 1), ("bag.weight", 1)))
def features_from_tables() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        place = m.table(torch.arange(x.shape[2], device=x.device)).t()[None, :, :, None, None]
        words = torch.tensor([[0, 2]], device=x.device).expand(x.shape[0], -1)
        return x + place + spatial(m.bag(words))

    return between(body, table=nn.Embedding(4, 8), bag=nn.EmbeddingBag(3, 8, mode="mean"))


@RULES.add(volume(), prunable="a b", kept="stem head")
def table_renormalised_as_it_is_read() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return x + spatial(m.table(torch.zeros(x.shape[0], dtype=torch.long, device=x.device)))

    return between(body, table=nn.Embedding(3, 8, max_norm=1.0))


@RULES.add(volume(), prunable="a stem b", kept="head", cuttable=(("codes.weight", 1),), masked=False)
def vector_quantiser() -> nn.Module:
    """Every place takes the nearest code; how far it was weighs on the result."""

    def body(m: Net, x: Tensor) -> Tensor:
        tokens = x.movedim(1, -1).flatten(0, -2)
        codes = m.codes.weight
        nearest = (codes.square().sum(1) - 2 * tokens @ codes.t() + tokens.square().sum(1, True)).argmin(1)
        found = m.codes(nearest).view(x.shape[0], *x.shape[2:], -1).movedim(-1, 1)
        return found * (1 + F.mse_loss(found, x))

    return between(body, codes=nn.Embedding(5, 8))


@RULES.add(volume(), prunable="a stem b", kept="head")
def places_overwritten_by_index() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        some = torch.tensor([0, 2], device=x.device)
        y = x.clone()
        y[:, :, some] = 0.0
        y[..., some] = x[..., some.flip(0)] * 2
        y[:, :, some, :, some] = y[:, :, some, :, some].flip(0) + 1
        inside = torch.ones(x.shape[3:], dtype=torch.bool, device=x.device).tril()
        y[..., inside] = -1.0
        y[y > 0.5] = 0.25
        return torch.index_put(y, (y < -0.9,), torch.tensor(0.3, dtype=y.dtype, device=y.device), accumulate=True)

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head")
def channels_overwritten_by_a_mask() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, torch.arange(x.shape[1], device=x.device) < 3] = 0.0
        return x

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head")
def channels_overwritten_by_their_numbers() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, torch.tensor([1, 2], device=x.device)] = 0.0
        return x

    return between(body)


@RULES.add(volume(), prunable="a stem b", kept="head")
def places_collected_by_number() -> nn.Module:
    """A volume of zeros is filled by scattering and by slices, in place and out of place."""

    def body(_: Net, x: Tensor) -> Tensor:
        order = torch.tensor([3, 1, 0, 2], device=x.device)
        index = order.view(1, 1, 4, 1, 1).expand(x.shape)
        full = torch.zeros(x.shape, dtype=x.dtype, device=x.device).scatter_(2, index, x)
        full = full + torch.zeros_like(x).scatter_reduce(3, index.transpose(2, 3), x, "amax")
        full.index_add_(4, order, x).index_copy_(2, order[:2], x[:, :, :2])
        return full.index_fill(3, order[:1], 0.5).scatter(4, index.transpose(2, 4)[..., :1], 0.1)

    return between(body)


@RULES.add(volume(), prunable="a stem b", kept="head")
def brightest_place_of_each_channel() -> nn.Module:
    """Numbers of places, one for each channel, address space by channel."""

    def body(_: Net, x: Tensor) -> Tensor:
        flat = x.flatten(2)
        at = flat.argmax(2, keepdim=True)
        lit = torch.zeros_like(flat).scatter_(2, at, 1.0)
        return x + lit.view_as(x) + flat.flip(2).gather(2, at)[..., None, None]

    return between(body)


@RULES.add(volume(), prunable="a stem b", kept="head", masked=False)
def places_chosen_by_their_values() -> nn.Module:
    """How many there are depends on the data, how wide they are does not."""

    def body(_: Net, x: Tensor) -> Tensor:
        tokens = x.movedim(1, -1)
        chosen = tokens[tokens.mean(-1) >= tokens.mean()]
        return x + chosen.mean(0)[:, None, None, None]

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head")
def values_chosen_by_a_mask() -> nn.Module:
    return between(lambda _, x: x * x.masked_select(x > 0).mean())


@RULES.add(volume(), prunable="a stem b", kept="head")
def values_in_steps() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        return x * torch.bucketize(x, torch.tensor([0.0, 0.1, 0.4], dtype=x.dtype, device=x.device)) + x

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head")
def values_looked_up_among_channels() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        tokens = x.movedim(1, -1).contiguous()
        return (tokens + torch.searchsorted(tokens.sort(-1).values, tokens)).movedim(-1, 1)

    return between(body)


# --- losses and distances inside --------------------------------------------------------------------------------


@RULES.add(volume(), prunable="a stem p b", kept="head", together=("stem p",))
def losses_of_each_element() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        y = m.p(x)
        total = F.mse_loss(x, y, reduction="none") + F.smooth_l1_loss(x, y, reduction="none")
        total = total + F.huber_loss(x, y, reduction="none") + F.l1_loss(x, y, reduction="none")
        near = F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none")
        return total + near + F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="none")

    return between(body, p=conv(8, 8))


@RULES.add(volume(), prunable="a stem p b", kept="head", together=("stem p",), masked=False)
def losses_of_all_elements() -> nn.Module:
    """The mean is one of whatever channels there are, as any other mean."""

    def body(m: Net, x: Tensor) -> Tensor:
        y, nothing = m.p(x), torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        total = F.mse_loss(x, y) + F.smooth_l1_loss(x, nothing) + F.huber_loss(nothing, y) + F.l1_loss(x, y)
        total = total + F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), weight=y[:, :, :1].detach().abs())
        total = total + F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean")
        total = total + F.binary_cross_entropy_with_logits(x, nothing) + F.soft_margin_loss(x, nothing - 1)
        return x * total

    return between(body, p=conv(8, 8))


@RULES.add(volume(), prunable="a b", kept="stem head")
def classes_judged_inside() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        target = torch.zeros(x.shape[0], *x.shape[2:], dtype=torch.long, device=x.device)
        return x * F.cross_entropy(x, target)

    return between(body)


@RULES.add(volume(), prunable="a stem b", kept="head", masked=False)
def distances_between_places() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        near = (-torch.cdist(tokens, tokens.flip(1))).softmax(-1)
        alike = F.cosine_similarity(tokens, tokens.flip(1), dim=-1)
        return ((near @ tokens) * alike[..., None]).transpose(1, 2).reshape(x.shape) * F.pdist(tokens[0]).mean()

    return between(body)


# --- rounding, in-place forms, matrices -------------------------------------------------------------------------


@RULES.add(volume(), prunable="a stem b", kept="head")
def rounded_as_if_quantised() -> nn.Module:
    return between(lambda _, x: torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127))


@RULES.add(volume(), prunable="a stem b", kept="head")
def forms_that_write_in_place() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        y = F.threshold_((x - 0.1).abs_(), 0.05, 0.2)
        above = x.clone().gt_(0.1)
        return F.mish(y, inplace=True).copysign_(x - 0.3) * above.add_(1)

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head", masked=False)
def matrix_exponential_of_channels() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        table = x.flatten(2) @ x.flatten(2).transpose(1, 2) / 512
        return (torch.linalg.matrix_exp(table) @ x.flatten(2)).view_as(x)

    return between(body)


@RULES.add(volume(), prunable="a b", kept="stem head", masked=False)
def channels_scaled_to_a_norm() -> nn.Module:
    return between(lambda _, x: x.renorm(2, 0, 3.0))


# --- pooling, resampling, shuffles in all dimensions ------------------------------------------------------------


@RULES.add(line(), prunable="a stem b", kept="head")
def one_dimension_pooled_and_padded() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        y, at = F.max_pool1d(F.pad(x, (1, 1), "reflect"), 2, return_indices=True)
        y = F.max_unpool1d(y, at, 2) + F.pad(x, (1, 1), "replicate")
        y = F.lp_pool1d(F.pad(y, (1, 1), "circular"), 2, 2) + F.adaptive_max_pool1d(y, 6)
        y = F.interpolate(y, size=8, mode="linear") + F.interpolate(F.avg_pool1d(y, 2), size=8, mode="nearest-exact")
        return y + F.adaptive_avg_pool1d(y, 1)

    return between(body, dims=1)


@RULES.add(image(), prunable="a stem b", kept="head")
def two_dimensions_pooled_and_padded() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        y, at = F.max_pool2d(F.pad(x, (1, 1, 1, 1), "reflect"), 2, return_indices=True)
        y = F.max_unpool2d(y, at, 2) + F.pad(x, (1, 1, 1, 1), "replicate")
        y = F.lp_pool2d(y, 2, 2) + F.adaptive_max_pool2d(y, 4) + F.adaptive_avg_pool2d(y, 4)
        small = F.interpolate(y, scale_factor=0.5, mode="bicubic", antialias=True)
        return F.interpolate(small, size=6, mode="bilinear", antialias=True) + F.interpolate(y, size=6, mode="area")

    return between(body, dims=2)


@RULES.add(volume(), prunable="a stem b", kept="head", stochastic=True)
def three_dimensions_pooled_and_padded() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        y, at = F.max_pool3d(F.pad(x, (1,) * 6, "reflect"), 2, return_indices=True)
        y = F.max_unpool3d(y, at, 2) + F.pad(x, (1,) * 6, "replicate")
        y = F.lp_pool3d(y, 2, 2) + F.adaptive_max_pool3d(y, 3) + F.adaptive_avg_pool3d(y, 3)
        y = F.interpolate(y, size=4, mode="trilinear") + F.interpolate(y, size=4, mode="nearest-exact")
        return y.rot90(1, (2, 3)) + F.rrelu(y, training=False)

    return between(body)


@RULES.add(image(), prunable="a stem b", kept="head", masked=False)
def pixels_shuffled_and_back() -> nn.Module:
    """Fused, as a mode of inference or a backend may run them: down four to one, up one to four, across groups."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.across(m.up(x)) + m.down(m.up(x)).mean(1, keepdim=True).repeat_interleave(2, 2).repeat_interleave(2, 3)

    return between(body, 32, 8, dims=2, up=nn.PixelShuffle(2), down=nn.PixelUnshuffle(2), across=nn.ChannelShuffle(2))


@RULES.add(volume(), prunable="a stem place b", kept="move head")
def spatial_transformer() -> nn.Module:
    """One branch makes the matrices by which the features are moved."""

    def body(m: Net, x: Tensor) -> Tensor:
        theta = m.move(F.relu(m.place(x)).mean(SPACE)).view(-1, 3, 4)
        same = torch.eye(3, 4, dtype=x.dtype, device=x.device)
        return F.grid_sample(x, F.affine_grid(0.1 * theta + same, list(x.shape), False), align_corners=False)

    return between(body, place=conv(8, 6), move=nn.Linear(6, 12))


# --- attention and recurrent layers -----------------------------------------------------------------------------


@RULES.add(volume(2, 2), prunable="a stem q k v b", kept="head", together=("q k",), masked=False)
def attention_with_a_learned_bias() -> nn.Module:
    """A bias for each head and pair of places."""

    def body(m: Net, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = (layer(tokens).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (m.q, m.k, m.v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=m.bias, scale=0.5)
        return m.join(out.transpose(1, 2).flatten(2)).transpose(1, 2).unflatten(2, x.shape[2:])

    layers = {"q": nn.Linear(8, 8), "k": nn.Linear(8, 8), "v": nn.Linear(8, 12), "join": nn.Linear(12, 8)}
    return between(body, **layers, bias=nn.Parameter(tensor(2, 8, 8)))


@RULES.add(volume(2, 2), prunable="a b", kept="head", masked=False)
def attention_with_shared_keys() -> nn.Module:
    """Four heads of queries share two of keys."""

    def body(m: Net, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        q = m.q(tokens).unflatten(-1, (4, -1)).transpose(1, 2)
        k, v = (layer(tokens).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (m.k, m.v))
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=0.5)
        return m.join(out.transpose(1, 2).flatten(2)).transpose(1, 2).unflatten(2, x.shape[2:])

    layers = {"q": nn.Linear(8, 16), "k": nn.Linear(8, 8), "v": nn.Linear(8, 8), "join": nn.Linear(16, 8)}
    return between(body, **layers)


@RULES.add(volume(2, 2), prunable="a b", kept="head", masked=False)
def gated_recurrent_layer() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.gru(x.flatten(2).transpose(1, 2))[0].transpose(1, 2).reshape(x.shape)

    return between(body, gru=nn.GRU(8, 4, batch_first=True, bidirectional=True))


@RULES.add(volume(2, 2), prunable="a b", kept="head", masked=False)
def recurrent_cell_by_hand() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], 8, dtype=x.dtype, device=x.device)
        for token in x.flatten(2).unbind(2):
            state = m.cell(token, state)
        return x * spatial(state)

    return between(body, cell=nn.GRUCell(8, 8))


@RULES.add(volume(), prunable="a stem b", kept="head", cuttable=(("w", 0), ("w", 1)), consumers={"w": 1})
def weight_times_three_dimensions() -> nn.Module:
    """Torch makes a view of the activations here that it never reads."""
    return between(
        lambda m, x: (m.w @ x.flatten(2)).unflatten(2, x.shape[2:]), w=nn.Parameter(tensor(8, 8, seed=3) / 3)
    )
