"""Topologies: attention as people write it, with heads and head sizes from attributes, shapes and the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.topology import Collection, line, tensor

ATTENTION = Collection()
HEADS = 3
HEAD_SIZE = 4
WIDTH = HEADS * HEAD_SIZE
TOKENS = line(7, 5)
"""A batch of seven tokens of five features each."""


class Apart(nn.Module):
    """Queries, keys and values from layers of their own, cut into heads and joined again by two functions."""

    def __init__(self, split: Callable[..., Tensor], join: Callable[..., Tensor], *, fused: bool = False) -> None:
        super().__init__()
        self.split, self.join, self.fused = split, join, fused
        self.num_heads, self.head_dim, self.all_head_size = HEADS, HEAD_SIZE, WIDTH
        self.scale = HEAD_SIZE**-0.5
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        q, k, v = (self.split(self, layer(x)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = (q @ k.transpose(-1, -2) * self.scale).softmax(-1) @ v
        return self.o(self.join(self, mixed.transpose(1, 2)))


class Together(nn.Module):
    """Queries, keys and values from one layer, cut by the width of the stream."""

    def __init__(self, scale: float | None = HEAD_SIZE**-0.5) -> None:
        super().__init__()
        self.num_heads, self.scale = HEADS, scale
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        scale = (c // self.num_heads) ** -0.5 if self.scale is None else self.scale
        mixed = (q @ k.transpose(-1, -2) * scale).softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).reshape(b, n, c))


class Reduced(nn.Module):
    """Keys and values of fewer tokens, which a convolution makes of those of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.scale = HEADS, HEAD_SIZE**-0.5
        self.q, self.kv, self.proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fewer, self.norm = nn.Conv1d(WIDTH, WIDTH, 2, stride=2), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        b, n, c = x.shape
        q = self.q(x).reshape(b, n, self.num_heads, c // self.num_heads).permute(0, 2, 1, 3)
        fewer = self.norm(self.fewer(x.permute(0, 2, 1)).reshape(b, c, -1).permute(0, 2, 1))
        k, v = self.kv(fewer).reshape(b, -1, 2, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2) * self.scale).softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).reshape(b, n, c))


class OfTorch(nn.Module):
    """torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        mixed: Tensor = self.own(x, x, x, need_weights=False)[0]
        return mixed


class Block(nn.Module):
    """Attention and two layers, each behind a norm and beside a shortcut."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.before, self.att, self.between = nn.LayerNorm(WIDTH), attention, nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens, then channels."""
        x = x + self.att(self.before(x))
        mixed: Tensor = x + self.down(F.gelu(self.up(self.between(x))))
        return mixed


def stacked(make: Callable[[], nn.Module]) -> nn.Module:
    """Two blocks between a first layer and a last one."""
    layers = {"stem": nn.Linear(5, WIDTH), "one": Block(make()), "two": Block(make()), "head": nn.Linear(WIDTH, 2)}
    net = nn.Sequential()
    for name, layer in layers.items():
        net.add_module(name, layer)
    return net


def given(layers: str, *, silenced: str = "") -> dict[str, Any]:
    """What is to be found: everything but the head can go. Removed queries are zeros, so that they meet no keys."""
    names = ["up", "down", *(f"att.{name}" for name in layers.split())]
    prunable = [f"{block}.{name}" for block in ("one", "two") for name in names]
    meeting = tuple(f"{block}.att.{silenced}" for block in ("one", "two") if silenced)
    return {"prunable": f"stem {' '.join(prunable)}", "kept": "head", "silenced": meeting, "masked": bool(silenced)}


def split_by_size(m: Any, x: Tensor) -> Tensor:
    """However many heads there are."""
    return x.view(*x.shape[:2], -1, m.head_dim)


def split_by_both(m: Any, x: Tensor) -> Tensor:
    """Both numbers from attributes."""
    return x.view(*x.shape[:2], m.num_heads, m.head_dim)


def flat(_: Any, x: Tensor) -> Tensor:
    """All heads side by side."""
    return x.flatten(2)


def as_wide_as_all(m: Any, x: Tensor) -> Tensor:
    """The same, into a width from an attribute."""
    return x.reshape(*x.shape[:2], m.all_head_size)


@ATTENTION.add(TOKENS, **given("q k v o", silenced="q"))
def heads_by_their_size() -> nn.Module:
    return stacked(lambda: Apart(split_by_size, flat))


@ATTENTION.add(TOKENS, **given("q k v o", silenced="q"))
def heads_by_their_size_fused() -> nn.Module:
    """The scale is that of the features there are, in every network."""
    return stacked(lambda: Apart(split_by_size, flat, fused=True))


@ATTENTION.add(TOKENS, **given("q k v o", silenced="q"))
def heads_by_number_and_size() -> nn.Module:
    return stacked(lambda: Apart(split_by_both, as_wide_as_all))


@ATTENTION.add(TOKENS, **given("q k v o", silenced="q"))
def heads_by_number_and_size_fused() -> nn.Module:
    return stacked(lambda: Apart(split_by_both, as_wide_as_all, fused=True))


class Single(nn.Module):
    """A single head, fused, on channels that come first; in training weights of tokens are dropped."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm, self.qkv, self.proj = nn.GroupNorm(1, WIDTH), nn.Conv1d(WIDTH, 3 * WIDTH, 1), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        q, k, v = self.qkv(self.norm(x.transpose(1, 2))).transpose(1, 2).chunk(3, dim=-1)
        dropout = self.dropout if self.training else 0.0
        return self.proj(F.scaled_dot_product_attention(q, k, v, dropout_p=dropout))


@ATTENTION.add(TOKENS, **given("qkv proj", silenced="qkv"))
def a_single_head_fused() -> nn.Module:
    return stacked(Single)


@ATTENTION.add(TOKENS, **given("qkv proj", silenced="qkv"), stochastic=True)
def a_single_head_fused_with_dropout() -> nn.Module:
    """In training, torch takes it apart into products and a scale."""
    return stacked(lambda: Single(0.25))


@ATTENTION.add(TOKENS, **given("qkv proj", silenced="qkv"))
def heads_by_the_width_of_the_stream() -> nn.Module:
    return stacked(Together)


@ATTENTION.add(TOKENS, **given("qkv proj", silenced="qkv"))
def heads_and_scale_by_the_width_of_the_stream() -> nn.Module:
    """Only whole heads can go, and with them their share of the stream."""
    return stacked(lambda: Together(None))


@ATTENTION.add(lambda: tensor(2, 6, 5), **given("q kv proj fewer", silenced="q"))
def heads_of_fewer_tokens() -> nn.Module:
    return stacked(Reduced)


@ATTENTION.add(TOKENS, **given("own.out_proj"))
def heads_of_torch() -> nn.Module:
    return stacked(OfTorch)
