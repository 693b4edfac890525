"""Topologies: kinds of value that networks return and that no pytree library need know."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.topology import Collection, Net, conv, image

OUTPUTS = Collection()


def two_heads(result: Callable[[Tensor, Tensor], Any]) -> Net:
    """Two heads, and a function that packs what they give."""

    def body(m: Net, x: Tensor) -> Any:
        a = F.relu(m.a(x))
        return result(m.coarse(a), m.fine(F.relu(m.b(a))))

    return Net(body, a=conv(2, 6, dims=2), b=conv(6, 6, dims=2), coarse=conv(6, 4, dims=2), fine=conv(6, 3, dims=2))


class Pair(NamedTuple):
    """An output with names."""

    coarse: Tensor
    fine: Tensor | None


class ModelOutput(OrderedDict[str, Any]):
    """An output whose entries are attributes too, as transformers return it."""

    def __init__(self, **entries: Any) -> None:
        super().__init__(entries)
        self.__dict__.update(entries)


@dataclass(frozen=True, slots=True)
class Nested:
    """A dataclass without ``__dict__`` that holds another output."""

    maps: list[Tensor | None]
    more: tuple[Tensor, ...]


@OUTPUTS.add(image(), prunable="a b", kept="coarse fine")
def output_named_tuple() -> nn.Module:
    return two_heads(lambda coarse, fine: Pair(coarse.sigmoid(), fine))


@OUTPUTS.add(image(), prunable="a b", kept="coarse fine")
def output_ordered_dict_with_attributes() -> nn.Module:
    return two_heads(lambda coarse, fine: ModelOutput(logits=fine, hidden=(coarse,), loss=None))


@OUTPUTS.add(image(), prunable="a b", kept="coarse fine")
def output_slotted_dataclass() -> nn.Module:
    return two_heads(lambda coarse, fine: Nested([None, coarse], (fine,)))
