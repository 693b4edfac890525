"""Topologies: operators that number, order, address, transform or mix channels, and modules built of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.patterns import between, spatial
from tests.support.topologies.topology import Collection, Net, conv, image, tensor, volume

OPERATORS = Collection()


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def channels_scaled_by_their_number() -> nn.Module:
    """``arange`` is no constant: a channel that moves up gets another value."""
    return between(lambda _, x: x * spatial(torch.arange(x.shape[1], dtype=x.dtype, device=x.device)))


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def channels_with_sinusoidal_positions() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        phase = torch.linspace(0, 3, x.shape[1] // 2, dtype=x.dtype, device=x.device)
        return x + spatial(torch.cat([phase.sin(), phase.cos()]))

    return between(body)


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def divided_by_the_width() -> nn.Module:
    """The number depends on how many channels there are, and so would what stays."""
    return between(lambda _, x: x / x.shape[1] ** 0.5)


@OPERATORS.add(volume(2, 3), prunable="a b", kept="head", masked=False)
def attention_scaled_by_the_width() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        weights = (tokens @ tokens.transpose(1, 2) / tokens.shape[-1] ** 0.5).softmax(-1)
        return (weights @ tokens).transpose(1, 2).reshape(x.shape)

    return between(body)


@OPERATORS.add(volume(), prunable="a b", kept="head")
def maxout_of_neighbours() -> nn.Module:
    return between(lambda _, x: x.view(x.shape[0], -1, 2, *x.shape[2:]).max(2).values, out=4)


@OPERATORS.add(volume(), prunable="a b", kept="head")
def maxout_of_halves() -> nn.Module:
    return between(lambda _, x: x.view(x.shape[0], 2, -1, *x.shape[2:]).amax(1), out=4)


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def maxout_with_a_written_width() -> nn.Module:
    return between(lambda _, x: x.view(x.shape[0], 4, 2, *x.shape[2:]).amax(2), out=4)


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def pairs_in_a_written_loop() -> nn.Module:
    """Four pairs, each reversed: with one channel of each pair, the slices take two pairs at once."""
    return between(lambda _, x: torch.cat([x[:, 2 * i : 2 * i + 2].flip(1) for i in range(4)], 1))


@OPERATORS.add(volume(), prunable="a stem b", kept="head")
def shares_in_a_loop_by_width() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        n = x.shape[1] // 4
        return torch.cat([x[:, i * n : (i + 1) * n].flip(1) for i in range(4)], 1)

    return between(body, 12)


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def channels_one_by_one() -> nn.Module:
    return between(lambda _, x: torch.stack([x[:, i] * (i + 1) for i in range(x.shape[1])], 1))


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def one_hot_of_the_largest() -> nn.Module:
    return between(lambda _, x: F.one_hot(x.argmax(1), x.shape[1]).movedim(-1, 1).to(x.dtype) * x)


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def largest_three_kept() -> nn.Module:
    return between(lambda _, x: x * (x >= x.topk(3, 1).values[:, -1:]))


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def first_channels_gathered() -> nn.Module:
    """An index with fewer channels than the data silently reads the first ones."""

    def body(_: Net, x: Tensor) -> Tensor:
        index = torch.zeros(x.shape[0], 3, *x.shape[2:], dtype=torch.long, device=x.device)
        return torch.cat([x.gather(4, index), x], 1)

    return between(body, out=11)


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def channels_added_by_an_index() -> nn.Module:
    return between(lambda _, x: x.index_add(1, torch.tensor([0, 1], device=x.device), x[:, :2]))


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def channels_chosen_by_a_mask() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        low = torch.arange(x.shape[1], device=x.device) < 4
        return torch.cat([x[:, low], -x[:, ~low]], 1)

    return between(body)


@OPERATORS.add(volume(), prunable="a stem b", kept="head")
def space_by_index_and_scatter() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        x = x[..., torch.tensor([3, 2, 1, 0], device=x.device)]
        index = torch.zeros(x.shape, dtype=torch.long, device=x.device)
        return torch.zeros_like(x).scatter_add(2, index, x) + x.index_select(3, torch.tensor([0, 0, 1, 1]))

    return between(body)


@OPERATORS.add(volume(), prunable="a b", kept="head")
def first_channel_overwritten() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, 0] = 1.0
        return x

    return between(body)


@OPERATORS.add(volume(), prunable="a stem b", kept="head")
def halves_changed_in_place() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        x, half = x.clone(), x.shape[1] // 2
        x[:, :half] += x[:, half:]
        x[:, half:].mul_(2.0)
        return x

    return between(body)


@OPERATORS.add(volume(), prunable="a stem b", kept="head")
def fourier_over_space() -> nn.Module:
    def body(_: Net, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfftn(x, dim=(2, 3, 4))
        return torch.fft.irfftn(spectrum * 0.5, s=x.shape[2:], dim=(2, 3, 4))

    return between(body)


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def fourier_over_channels() -> nn.Module:
    return between(lambda _, x: torch.fft.fft(x, dim=1).real)


@OPERATORS.add(volume(), prunable="a stem b", kept="head")
def windows_over_space() -> nn.Module:
    return between(lambda _, x: x.unfold(2, 2, 2).mean(-1))


@OPERATORS.add(volume(), prunable="a b", kept="stem head")
def windows_over_channels() -> nn.Module:
    return between(lambda _, x: x.unfold(1, 2, 2).mean(-1), out=4)


@OPERATORS.add(image(), prunable="a stem b", kept="head")
def columns_and_back() -> nn.Module:
    return between(lambda _, x: F.fold(F.unfold(x, 2, stride=2), x.shape[2:], 2, stride=2), dims=2)


@OPERATORS.add(volume(), prunable="a b", kept="head", masked=False)
def gram_matrix() -> nn.Module:
    """Every channel times every other one, laid out as channels: both sides cannot shrink at once."""

    def body(_: Net, x: Tensor) -> Tensor:
        table = x.flatten(2) @ x.flatten(2).transpose(1, 2)
        return spatial(table.flatten(1)).expand(-1, -1, 4, 4, 4)

    return between(body, 4, 16)


@OPERATORS.add(volume(), prunable="a stem judge b", kept="head", masked=False, together=("stem judge",))
def covariance_gate() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        table = x.flatten(2) @ x.flatten(2).transpose(1, 2)
        return x * spatial(m.judge(table.mean(1)).sigmoid())

    return between(body, judge=nn.Linear(8, 8))


@OPERATORS.add(volume(), prunable="a stem b", kept="head", masked=False)
def bilinear_layer() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return x * spatial(m.pair(x.mean((2, 3, 4)), x.amax((2, 3, 4))))

    return between(body, 6, pair=nn.Bilinear(6, 6, 6))


@OPERATORS.add(volume(), prunable="a stem b", kept="head", consumers={"w": 1}, cuttable=(("w", 0), ("w", 1)))
def batched_product_with_addend() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        flat = x.flatten(2)
        return torch.baddbmm(flat, m.w.expand(x.shape[0], -1, -1), flat).view_as(x)

    return between(body, w=nn.Parameter(tensor(8, 8) / 4))


@OPERATORS.add(volume(), prunable="a stem b", kept="head")
def both_signs() -> nn.Module:
    return between(lambda _, x: F.relu(torch.cat([x, -x], 1)), out=16)


@OPERATORS.add(volume(), prunable="a stem p b", kept="head", together=("stem p",))
def blends_of_branches() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        y = m.p(x)
        blend = torch.lerp(x, torch.addcmul(x, x, y), y.sigmoid())
        return torch.stack([blend, y, blend.flip(2)]).max(0).values

    return between(body, p=conv(8, 8))


@OPERATORS.add(volume(), prunable="a stem gates b", kept="head")
def convolutional_lstm_step() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        take, forget, give, new = m.gates(torch.cat([x, torch.zeros_like(x)], 1)).chunk(4, 1)
        return give.sigmoid() * torch.tanh(take.sigmoid() * new.tanh() + forget.sigmoid() * x)

    return between(body, 4, gates=conv(8, 16))


@OPERATORS.add(volume(2, 2), prunable="a layer.linear1", kept="head", masked=False)
def transformer_encoder_layer() -> nn.Module:
    """In eval mode torch would take one fused operator; the width of the hidden layer is free all the same."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.layer(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(x.shape)

    return between(body, layer=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True))


@OPERATORS.add(volume(), prunable="a b", kept="head", masked=False)
def long_short_term_memory() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        return m.lstm(x.flatten(2).transpose(1, 2))[0].transpose(1, 2).reshape(x.shape)

    return between(body, lstm=nn.LSTM(8, 8, batch_first=True))


@OPERATORS.add(volume(), prunable="a stem b", kept="head", masked=False, cuttable=(("norm.weight", 0),))
def layer_norm_over_channels_and_space() -> nn.Module:
    return between(lambda m, x: m.norm(x), norm=nn.LayerNorm((8, 4, 4, 4)))


@OPERATORS.add(volume(), prunable="a stem b", kept="head", cuttable=(("place", 1),))
def learned_positions() -> nn.Module:
    return between(lambda m, x: x + m.place, place=nn.Parameter(tensor(1, 8, 4, 4, 4)))


@OPERATORS.add(volume(), prunable="a stem b", kept="where head")
def sampled_where_a_layer_says() -> nn.Module:
    """Deformation: one branch moves the points at which the features are read."""

    def body(m: Net, x: Tensor) -> Tensor:
        same = torch.eye(3, 4, dtype=x.dtype, device=x.device).repeat(x.shape[0], 1, 1)
        grid = F.affine_grid(same, [x.shape[0], 1, *x.shape[2:]], align_corners=False)
        return F.grid_sample(x, grid + 0.1 * m.where(x).movedim(1, -1), align_corners=False)

    return between(body, where=conv(8, 3))
