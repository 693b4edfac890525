"""Topologies: widths that code writes, compares and takes from each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.topologies.patterns import between
from tests.support.topologies.topology import Collection, Net, conv, tensor, volume

WIDTHS = Collection()


class Cell(nn.Module):
    """A convolution makes all gates of a recurrent cell from what comes in and what it remembers."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.hidden = width
        self.gates = conv(inputs + width, 4 * width, dims=2)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """One step."""
        hidden, memory = state
        i, f, o, g = torch.split(self.gates(torch.cat([x, hidden], 1)), self.hidden, dim=1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * memory.tanh(), memory


class Recurrent(nn.Module):
    """Cells whose first states are zeros of widths in a list."""

    def __init__(self, widths: tuple[int, ...] = (8, 12)) -> None:
        super().__init__()
        self.num_hidden = list(widths)
        self.cells = nn.ModuleList(Cell(i, w) for i, w in zip((2, *widths), widths, strict=False))
        self.head = conv(widths[-1], 3, 1, dims=2)

    def forward(self, x: Tensor) -> Tensor:
        """All steps, and what the last cell says in the end."""
        states = [(x.new_zeros(x.shape[0], w, *x.shape[3:]),) * 2 for w in self.num_hidden]
        for y in x.unbind(1):
            for number, cell in enumerate(self.cells):
                states[number] = cell(y, states[number])
                y = states[number][0]
        return self.head(y)


@WIDTHS.add(lambda: tensor(2, 3, 2, 4, 4), prunable="cells.0.gates cells.1.gates", kept="head", masked=False)
def first_states_of_written_widths() -> nn.Module:
    return Recurrent()


def remembering(kind: type[nn.RNNBase], **options: Any) -> Net:
    """Layers with states, of which only the outputs are read."""

    def body(m: Net, x: Tensor) -> Tensor:
        return m.head(m.memory(F.relu(m.embed(x)))[0])

    outputs = 16 if options.get("bidirectional") else 8
    memory = kind(6, 8, batch_first=True, **options)
    return Net(body, embed=nn.Linear(4, 6), memory=memory, head=nn.Linear(outputs, 4))


def readers(*layers: str) -> dict[str, int]:
    """Weights that read inputs and states."""
    return {f"memory.weight_{kind}_{layer}": 1 for layer in layers for kind in ("ih", "hh")}


SEQUENCE = partial(tensor, 2, 5, 4)


@WIDTHS.add(SEQUENCE, prunable="embed memory.weight_ih_l0", kept="head", consumers=readers("l0"))
def long_short_term_memory_of_one_layer() -> nn.Module:
    return remembering(nn.LSTM)


@WIDTHS.add(
    SEQUENCE,
    prunable="embed memory.weight_ih_l0 memory.weight_ih_l1_reverse",
    kept="head",
    consumers=readers("l0", "l0_reverse", "l1", "l1_reverse"),
)
def gated_recurrent_layers_of_both_directions() -> nn.Module:
    return remembering(nn.GRU, num_layers=2, bidirectional=True)


@WIDTHS.add(volume(), prunable="a stem b", kept="head")
def kept_for_another_call() -> nn.Module:
    """A streaming network keeps the last of its activations; nothing reads them in this call."""

    def body(m: Net, x: Tensor) -> Tensor:
        m.kept = x[:, :, -1:].clone()
        return x

    return between(body)


@WIDTHS.add(volume(), prunable="a stem b", kept="head")
def made_for_nothing() -> nn.Module:
    def body(m: Net, x: Tensor) -> Tensor:
        torch.relu(x) * 2
        return x

    return between(body)


def compared(body: Callable[[Tensor, Tensor], Tensor]) -> Net:
    """Two branches that code compares before it joins them."""

    def join(m: Net, x: Tensor) -> Tensor:
        return body(F.relu(m.one(x)), F.relu(m.two(x)))

    return between(join, 8, 16, one=conv(8, 8), two=conv(8, 8))


@WIDTHS.add(volume(), prunable="a stem one two b", kept="head")
def shapes_asserted_to_agree() -> nn.Module:
    def body(one: Tensor, two: Tensor) -> Tensor:
        assert one.size() == two.size()
        return torch.cat([one, two], 1)

    return compared(body)


@WIDTHS.add(volume(), prunable="a stem one two b", kept="head")
def resized_where_shapes_differ() -> nn.Module:
    def body(one: Tensor, two: Tensor) -> Tensor:
        if one.shape != two.shape:
            one = F.interpolate(one, size=two.shape[2:])
        return torch.cat([one, two], 1)

    return compared(body)


class Padded(nn.Module):
    """A shortcut that is padded with zeros to a width in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.planes = 12
        self.one, self.two = conv(8, 12), conv(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        """Two layers beside the shortcut."""
        pad = x.new_zeros(x.shape[0], self.planes - x.shape[1], *x.shape[2:])
        mixed: Tensor = self.two(F.relu(self.one(x))) + torch.cat([x, pad], 1)
        return mixed


@WIDTHS.add(volume(), prunable="a stem inner.one inner.two b", kept="head", masked=False)
def shortcut_padded_to_a_width_in_an_attribute() -> nn.Module:
    return between(lambda m, x: m.inner(x), 8, 12, inner=Padded())
