"""Small traces made by hand: the topologies that selection must understand, without any tracer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ranp.scoring.scores import Scores
from ranp.tracing.trace import Layer, Trace


class Wiring:
    """Builds a trace layer by layer. A tensor is the vector of its channel classes."""

    def __init__(self) -> None:
        self.fresh = 1
        self.layers: list[Layer] = []
        self.dims: dict[tuple[str, int], np.ndarray] = {}
        self.pieces: list[tuple[np.ndarray, ...]] = []

    def new(self, count: int) -> np.ndarray:
        self.fresh += count
        return np.arange(self.fresh - count, self.fresh)

    def conv(
        self, name: str, reads: np.ndarray | None, out: int | np.ndarray, *, votes: bool = True, reason: str = ""
    ) -> np.ndarray:
        """A layer that reads a tensor and writes new classes, or the given ones (a residual add)."""
        classes = self.new(out) if isinstance(out, int) else np.asarray(out)
        self.layers.append(
            Layer(name, "conv", f"{name}.weight", 0, 1, 1, len(classes), classes, votes=votes, reason=reason)
        )
        self.dims[f"{name}.weight", 0] = classes
        if reads is not None:
            self.dims[f"{name}.weight", 1] = reads
        return classes

    def depthwise(self, name: str, reads: np.ndarray) -> np.ndarray:
        return self.conv(name, None, reads, votes=False)

    def output(self, name: str, reads: np.ndarray, out: int) -> None:
        self.conv(name, reads, np.zeros(out, dtype=np.int64), reason="makes the model's output")

    def norm(self, name: str, reads: np.ndarray) -> None:
        for tensor in ("weight", "bias", "running_mean", "running_var"):
            self.dims[f"{name}.{tensor}", 0] = reads

    def equal_pieces(self, reads: np.ndarray, count: int) -> None:
        self.pieces.append(tuple(np.split(reads, count)))

    def trace(self) -> Trace:
        return Trace(tuple(self.layers), self.dims, tuple(self.pieces))


def chain(widths: Sequence[int] = (4, 6, 5), out: int = 2) -> Trace:
    """conv -> norm -> conv -> norm -> ... -> output."""
    wiring, x = Wiring(), None
    for index, width in enumerate(widths):
        x = wiring.conv(f"conv{index}", x, width)
        wiring.norm(f"norm{index}", x)
    wiring.output("final", x, out)
    return wiring.trace()


def residual(width: int = 6, inner: int = 4, blocks: int = 3) -> Trace:
    """A stem and blocks of (inner conv, outer conv) added to it: stem and outer convs share their classes."""
    wiring = Wiring()
    x = wiring.conv("stem", None, width)
    for index in range(blocks):
        hidden = wiring.conv(f"inner{index}", x, inner)
        wiring.conv(f"outer{index}", hidden, x)
    wiring.output("final", x, 2)
    return wiring.trace()


def inverted(width: int = 8, narrow: int = 3) -> Trace:
    """expand -> depthwise -> project, twice, the projections added (MobileNetV2)."""
    wiring = Wiring()
    x = wiring.conv("stem", None, narrow)
    for index in range(2):
        wide = wiring.conv(f"expand{index}", x, width)
        wiring.depthwise(f"depthwise{index}", wide)
        wiring.conv(f"project{index}", wide, x)
    wiring.output("final", x, 2)
    return wiring.trace()


def split(width: int = 8) -> Trace:
    """One layer whose first half is added to another layer and whose second half is read alone."""
    wiring = Wiring()
    x = wiring.conv("both", None, width)
    wiring.conv("partner", None, x[: width // 2])
    y = wiring.conv("first", x[: width // 2], 3)
    z = wiring.conv("second", x[width // 2 :], 3)
    wiring.output("final", np.concatenate([y, z]), 2)
    return wiring.trace()


def grouped(width: int = 12, pieces: int = 3, *, also: int = 0) -> Trace:
    """A layer behind a group norm, after a concatenation with another layer of ``also`` channels if there are any."""
    wiring = Wiring()
    x = wiring.conv("conv", None, width)
    if also:
        x = np.concatenate([x, wiring.conv("other", None, also)])
    wiring.norm("norm", x)
    wiring.equal_pieces(x, pieces)
    wiring.output("final", x, 2)
    return wiring.trace()


def repeated(width: int = 5) -> Trace:
    """A layer that holds each class twice beside one that holds it once (channels repeated, then added)."""
    wiring = Wiring()
    x = wiring.conv("once", None, width)
    twice = wiring.conv("twice", None, np.repeat(x, 2))
    wiring.output("final", twice, 2)
    return wiring.trace()


def scores_of(trace: Trace, values: Mapping[str, Sequence[float]], **changes: object) -> Scores:
    """Scores by hand; layers that are not named get ones."""
    channels = {
        layer.name: torch.tensor(values.get(layer.name, [1.0] * layer.channels), dtype=torch.float64)
        for layer in trace.layers
    }
    return Scores(channels, **{"criterion": "by-hand", "batches": 1, **changes})  # type: ignore[arg-type]


def random_scores(trace: Trace, seed: int, *, levels: int = 0, spread: float = 2.0, **changes: object) -> Scores:
    """Seeded scores, layers differing by up to ``spread`` powers of ten either way.

    With ``levels``, only that many different values, so that many are equal.
    """
    generator = np.random.default_rng(seed)
    values = {}
    for layer in trace.layers:
        scale = 10.0 ** generator.uniform(-spread, spread)
        drawn = generator.random(layer.channels)
        values[layer.name] = (generator.integers(levels, size=layer.channels) if levels else drawn * scale).tolist()
    return scores_of(trace, values, **changes)


def random_trace(seed: int) -> Trace:
    """A random network: chains, adds, concatenations, slices, depthwise and repeated channels, equal pieces."""
    generator = np.random.default_rng(seed)
    wiring = Wiring()
    tensors = [wiring.conv("stem", None, int(generator.integers(1, 8)))]
    for index in range(int(generator.integers(1, 8))):
        name = f"node{index}"
        reads = tensors[int(generator.integers(len(tensors)))]
        match int(generator.integers(6)):
            case 0:
                tensors.append(wiring.conv(name, reads, reads))
            case 1:
                wiring.depthwise(name, reads)
            case 2:
                other = tensors[int(generator.integers(len(tensors)))]
                tensors.append(np.concatenate([reads, other]))
                tensors.append(wiring.conv(name, tensors[-1], int(generator.integers(1, 8))))
            case 3:
                half = reads[: 1 + len(reads) // 2]
                tensors.append(wiring.conv(name, half, half if generator.random() < 0.5 else 4))
            case 4:
                tensors.append(wiring.conv(name, reads, np.repeat(reads, 2)))
            case 5:
                tensors.append(wiring.conv(name, reads, int(generator.integers(1, 8))))
        wiring.norm(f"norm{index}", tensors[-1])
    used: set[int] = set()
    for tensor in tensors:
        unique = np.unique(tensor)
        if len(unique) % 2 == 0 and not used & set(unique.tolist()) and generator.random() < 0.4:
            wiring.equal_pieces(unique, 2)
            used |= set(unique.tolist())
    wiring.output("final", tensors[-1], int(generator.integers(1, 4)))
    return wiring.trace()
