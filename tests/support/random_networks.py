"""Random networks, valid by construction: a program of small steps, drawn by hypothesis, run by one module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.support.topologies.topology import BATCH_NORMS, CONVS, TRANSPOSED, conv, tensor

INSTANCE_NORMS = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
LINEAR_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}
SIZES = {1: 6, 2: 5, 3: 4}
WIDEST = 24


@dataclass(frozen=True)
class Node:
    """One step: what it does, to the results of which steps (0 is the input), and how many channels it gives."""

    op: str
    sources: tuple[int, ...]
    channels: int
    options: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Program:
    """A whole network: its steps in order, then which of them the output layers read."""

    dims: int
    in_channels: int
    nodes: tuple[Node, ...]
    heads: tuple[tuple[int, ...], ...]
    pooled: bool

    def build(self) -> RandomNetwork:
        """The network, with weights from the global generator."""
        return RandomNetwork(self)

    def inputs(self) -> Tensor:
        """A batch of two."""
        return tensor(2, self.in_channels, *[SIZES[self.dims]] * self.dims)


class Norm(nn.Module):
    """A norm behind one name, so that all kinds look alike from outside."""

    def __init__(self, kind: str, channels: int, dims: int, groups: int) -> None:
        super().__init__()
        makers: dict[str, Callable[[], nn.Module]] = {
            "batch": lambda: BATCH_NORMS[dims](channels),
            "instance": lambda: INSTANCE_NORMS[dims](channels, affine=True),
            "group": lambda: nn.GroupNorm(groups, channels),
            "layer": lambda: nn.LayerNorm(channels),
            "none": nn.Identity,
        }
        self.kind, self.norm = kind, makers[kind]()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.movedim(1, -1)).movedim(-1, 1) if self.kind == "layer" else self.norm(x)


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        self.dims = dims
        self.squeeze = conv(channels, max(2, channels // 2), 1, dims=dims)
        self.excite = conv(max(2, channels // 2), channels, 1, dims=dims)

    def forward(self, x: Tensor) -> Tensor:
        pooled = x.mean(tuple(range(2, 2 + self.dims)), keepdim=True)
        return x * torch.sigmoid(self.excite(F.relu(self.squeeze(pooled))))


class HandWrittenNorm(nn.Module):
    """A norm with statistics of its own, under names that nobody knows."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(channels))
        self.register_buffer("var", torch.rand(channels) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.dim() - 2))
        return (x - self.mean.view(shape)) / torch.sqrt(self.var.view(shape) + 1e-5)


class ShuffleByAttributes(nn.Module):
    """A channel shuffle that knows its sizes from attributes."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups, self.channels = groups, channels

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.groups, self.channels // self.groups)).transpose(1, 2).flatten(1, 2)


def _per_channel(x: Tensor, numbers: Tensor) -> Tensor:
    return x * numbers.to(x).view(1, -1, *[1] * (x.dim() - 2))


COUNTED: dict[str, Callable[[Tensor], Tensor]] = {
    "tensor": lambda x: x / torch.tensor(float(x.shape[1])).sqrt(),
    "new tensor": lambda x: x / x.new_tensor(x.shape[1]),
    "ones": lambda x: x / torch.ones(x.shape[1]).sum(),
    "ones like": lambda x: x / torch.ones_like(x).sum(1, keepdim=True),
    "seeded": lambda x: _per_channel(x, torch.rand(x.shape[1], generator=torch.Generator().manual_seed(3)) + 0.1),
    "spaced": lambda x: _per_channel(x, torch.linspace(0.5, 1.5, x.shape[1])),
    "written": lambda x: x + torch.zeros(x.shape[0], 1, *x.shape[2:]).expand_as(x),
}
"""Code that makes numbers from how many channels there are, or one for each of them."""


def made(node: Node, fan_in: int, dims: int) -> nn.Module:
    """The module of one step; an identity where the step is a function."""
    if node.op == "conv":
        kernel, bias, groups, norm, norm_groups, activation = node.options
        layers = [conv(fan_in, node.channels, kernel, dims=dims, bias=bias, groups=groups)]
        layers.append(Norm(norm, node.channels, dims, norm_groups))
        activations = {
            "none": nn.Identity,
            "relu": nn.ReLU,
            "in place": lambda: nn.ReLU(inplace=True),
            "gelu": nn.GELU,
            "prelu": nn.PReLU,
            "prelu each": lambda: nn.PReLU(node.channels),
        }
        return nn.Sequential(*layers, activations[activation]())
    if node.op == "transposed":
        groups, grow = node.options
        if grow:
            return nn.Sequential(TRANSPOSED[dims](fan_in, node.channels, 2, stride=2, groups=groups), nn.Softplus())
        return TRANSPOSED[dims](fan_in, node.channels, 3, padding=1, groups=groups)
    if node.op == "hand-written norm":
        return HandWrittenNorm(fan_in)
    if node.op == "shuffle by attributes":
        return ShuffleByAttributes(node.options[0], fan_in)
    return Gate(fan_in, dims) if node.op == "gate" else nn.Identity()


class RandomNetwork(nn.Module):
    """Runs a program."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        widths = [program.in_channels, *(node.channels for node in program.nodes)]
        self.steps = nn.ModuleList()
        for node in program.nodes:
            self.steps.append(made(node, widths[node.sources[0]], program.dims))
        fans = [sum(widths[source] for source in sources) for sources in program.heads]
        makers = nn.Linear if program.pooled else CONVS[program.dims]
        self.heads = nn.ModuleList(makers(fan, 3, *([] if program.pooled else [1])) for fan in fans)

    def forward(self, x: Tensor) -> Any:
        values = [x]
        for step, node in zip(self.steps, self.program.nodes, strict=True):
            values.append(self.run(step, node, [values[source] for source in node.sources]))
        outputs = []
        for head, sources in zip(self.heads, self.program.heads, strict=True):
            value = torch.cat([values[source] for source in sources], 1) if len(sources) > 1 else values[sources[0]]
            outputs.append(head(value.flatten(2).mean(2) if self.program.pooled else value))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, step: nn.Module, node: Node, sources: list[Tensor]) -> Tensor:
        """One step."""
        x, size = sources[0], sources[0].shape[2:]
        if node.op == "again":
            return self.steps[node.options[0]](x)
        if node.op == "add":
            return x + sources[1]
        if node.op == "product":
            return x * sources[1].sigmoid()
        if node.op == "counted":
            return COUNTED[node.options[0]](x)
        if node.op == "cat":
            return torch.cat(sources, 1)
        if node.op == "part":
            pieces, index = node.options
            return x.chunk(pieces, 1)[index]
        if node.op == "half":
            return torch.split(x, x.shape[1] // 2, dim=1)[node.options[0]]
        if node.op == "swap":
            return torch.cat(x.chunk(node.options[0], 1)[::-1], 1)
        if node.op == "shuffle":
            groups = node.options[0]
            return x.reshape(x.shape[0], groups, x.shape[1] // groups, *size).transpose(1, 2).flatten(1, 2)
        if node.op == "resize":
            pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[len(size)]
            mode = LINEAR_MODES[len(size)] if node.options[0] == "linear" else "nearest"
            return F.interpolate(pool(x, 2), size=size, mode=mode)
        out = step(x)
        return F.interpolate(out, size=size) if out.shape[2:] != size else out


def divisors(number: int, least: int = 2) -> list[int]:
    """What divides a number of channels, itself included."""
    return [d for d in range(least, number + 1) if number % d == 0]


CHOICES = (
    ["conv"] * 4 + ["add"] * 3 + ["cat"] * 2 + ["part", "half", "swap", "shuffle"] + ["depthwise", "grouped"] * 2
    + ["transposed", "again", "again", "product", "resize", "gate", "counted", "hand-written norm"]
    + ["shuffle by attributes"]
)  # fmt: skip
NORMS = ["none", "none", "batch", "batch", "instance", "group", "layer"]
ACTIVATIONS = ["none", "relu", "relu", "in place", "gelu", "prelu", "prelu each"]


class Drawing:
    """A program while it is being drawn."""

    def __init__(self, draw: Callable[[Any], Any], dims: int, in_channels: int) -> None:
        self.draw, self.dims = draw, dims
        self.widths = [in_channels]
        self.nodes: list[Node] = []

    def pick(self, options: list[Any]) -> Any:
        """One of several."""
        return self.draw(st.sampled_from(options))

    def add(self, op: str, sources: tuple[int, ...], channels: int, *options: Any) -> None:
        """One more step."""
        self.nodes.append(Node(op, sources, channels, options))
        self.widths.append(channels)

    def convolution(self, source: int, channels: int, groups: int = 1) -> None:
        """A convolution with whatever may follow it."""
        norm = self.pick(NORMS)
        norm_groups = self.pick([1, *divisors(channels)]) if norm == "group" else 1
        self.add(
            "conv",
            (source,),
            channels,
            self.pick([1, 3]),
            self.draw(st.booleans()),
            groups,
            norm,
            norm_groups,
            self.pick(ACTIVATIONS),
        )

    def step(self) -> None:
        """Whatever fits; a convolution where nothing else does."""
        op = self.pick(CHOICES)
        source = self.draw(st.integers(0 if len(self.nodes) < 2 else 1, len(self.nodes)))
        width = self.widths[source]
        alike = [other for other in range(1, len(self.widths)) if self.widths[other] == width]
        if op in ("add", "product") and source > 0:
            self.add(op, (source, self.pick(alike)), width)
        elif op == "cat" and len(self.nodes) > 1:
            others = self.draw(st.lists(st.integers(0, len(self.nodes)), min_size=1, max_size=2))
            total = width + sum(self.widths[other] for other in others)
            if total <= WIDEST:
                self.add("cat", (source, *others), total)
        elif op in ("part", "swap", "shuffle", "shuffle by attributes") and source > 0 and len(divisors(width)) > 1:
            pieces = self.pick(divisors(width)[:-1])
            if op == "part":
                for index in self.draw(st.lists(st.integers(0, pieces - 1), min_size=1, max_size=2, unique=True)):
                    self.add("part", (source,), width // pieces, pieces, index)
            else:
                self.add(op, (source,), width, pieces)
        elif op == "half" and source > 0 and width % 2 == 0 and width > 2:
            for index in self.pick([[0], [1], [0, 1]]):
                self.add("half", (source,), width // 2, index)
        elif op == "depthwise":
            self.convolution(source, width * self.pick([1, 1, 2]) if width <= WIDEST // 2 else width, width)
        elif op == "grouped" and len(divisors(width)) > 1:
            groups = self.pick(divisors(width)[:-1])
            self.convolution(source, groups * self.draw(st.integers(1, max(1, 12 // groups))), groups)
        elif op == "transposed":
            groups = self.pick([1, 1, *divisors(width)])
            channels = groups * self.draw(st.integers(1, max(1, 12 // groups)))
            self.add("transposed", (source,), max(channels, 2), groups if channels > 1 else 1, self.draw(st.booleans()))
        elif op == "again":
            self.again()
        elif op == "resize":
            self.add("resize", (source,), width, self.pick(["linear", "nearest"]))
        elif op in ("gate", "hand-written norm") and source > 0:
            self.add(op, (source,), width)
        elif op == "counted" and source > 0:
            self.add(op, (source,), width, self.pick(list(COUNTED)))
        else:
            self.convolution(source, self.draw(st.integers(2, 12)))

    def again(self) -> None:
        """An earlier module once more, on any result that fits it."""
        fits = [
            (index, source)
            for index, node in enumerate(self.nodes)
            if node.op in ("conv", "transposed", "gate")
            for source in range(1, len(self.widths))
            if self.widths[source] == self.widths[node.sources[0]]
        ]
        if fits:
            index, source = self.pick(fits)
            grown = self.nodes[index].op == "transposed" and self.nodes[index].options[1]
            if not grown:
                self.add("again", (source,), self.nodes[index].channels, index)


@st.composite
def programs(draw: Callable[[Any], Any]) -> Program:
    """Networks of 3 to 12 steps in one, two or three dimensions with one or two outputs."""
    drawing = Drawing(draw, draw(st.sampled_from([3, 3, 3, 2, 1])), draw(st.integers(1, 3)))
    drawing.convolution(0, draw(st.integers(2, 12)))
    for _ in range(draw(st.integers(2, 11))):
        drawing.step()
    used = {source for node in drawing.nodes for source in node.sources}
    loose = [index for index in range(1, len(drawing.widths)) if index not in used]
    first = tuple(loose) if draw(st.booleans()) else (len(drawing.nodes),)
    heads = [first]
    if draw(st.booleans()):
        heads.append((draw(st.integers(1, len(drawing.nodes))),))
    return Program(drawing.dims, drawing.widths[0], tuple(drawing.nodes), tuple(heads), draw(st.booleans()))
