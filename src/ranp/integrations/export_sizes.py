"""Which sizes an exported network takes: what is asked of ``torch.export``, and what it decided.

``torch.export`` runs the forward code once on symbolic sizes. Where the code asks about a size, the answer becomes a
guard: a condition on the sizes that the program takes. A dimension whose guards leave one size only is fixed.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
from torch.utils._pytree import tree_leaves

from ranp.running.calling import map_tensors, tensors_in

Shape = tuple[int, ...]
Axis = tuple[int, int]
"""Position of a tensor among the inputs, and one of its dimensions."""
Groups = tuple[tuple[Axis, ...], ...]
"""Axes that vary together."""

_BATCH_OF_ONE = re.compile(r"L\[[^ ]*\]\.size\(\)\[0\] (!= 1|>= 2)")
_MORE_THAN_ONE = re.compile(r".* != 1|1 < .*")
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Span:
    """A dimension of an input that may vary.

    Every size from ``low`` to ``high`` in steps of ``step`` is taken, the example's among them; others may be as well.

    Attributes:
        input: Name of the input.
        dimension: Which of its dimensions; 0 is the batch.
        low: The least of these sizes.
        high: The largest; None if no limit was found.
        step: Their distance.
    """

    input: str
    dimension: int
    low: int
    high: int | None
    step: int

    def __str__(self) -> str:
        top = "up" if self.high is None else f"to {self.high}"
        return f"{self.low} {top}" + (f" in steps of {self.step}" if self.step > 1 else "")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one call, by the batch convention: a tuple is splatted, a dict passed as keywords."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @staticmethod
    def of(example: Any, network: nn.Module) -> Inputs:
        """The inputs on the CPU, keywords in the order of the forward function's arguments.

        Tensors that hold no data, or the same number everywhere, are drawn at random.
        """
        generator = torch.Generator().manual_seed(0)

        def ready(tensor: Tensor) -> Tensor:
            if tensor.is_meta:
                tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
            return _lively(tensor.detach().cpu(), generator)

        example = map_tensors(ready, example)
        if isinstance(example, tuple):
            return Inputs(example, {})
        if not isinstance(example, dict):
            return Inputs((example,), {})
        order = {name: place for place, name in enumerate(inspect.signature(network.forward).parameters)}
        names = sorted(example, key=lambda name: order.get(name, len(order)))
        return Inputs((), {name: example[name] for name in names})

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among them, in order."""
        return tensors_in((self.args, self.kwargs))

    def __str__(self) -> str:
        return ", ".join("x".join(map(str, shape)) for shape in self.shapes)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the tensors."""
        return tuple(tuple(tensor.shape) for tensor in self.tensors)

    def at(self, shapes: Sequence[Shape], *, empty: str | None = None) -> Inputs:
        """The same inputs at other sizes: repeated or cropped, and no two samples alike.

        With ``empty``, tensors on that device whose values do not matter; no memory is touched for them.
        """
        generator = torch.Generator().manual_seed(1)
        wanted = iter(shapes)

        def resized(tensor: Tensor) -> Tensor:
            shape = next(wanted)
            if empty is not None:
                return torch.empty(shape, dtype=tensor.dtype, device=empty)
            return tensor if tuple(tensor.shape) == shape else _resized(tensor, shape, generator)

        return Inputs(*map_tensors(resized, (self.args, self.kwargs)))

    def run(self, module: Any) -> Any:
        """Calls a module with them."""
        return module(*self.args, **self.kwargs)

    def batch_axes(self) -> tuple[Axis, ...]:
        """The first dimension of the first tensor, and of every other that is as long."""
        shapes = self.shapes
        if not shapes or not shapes[0]:
            return ()
        return tuple((index, 0) for index, shape in enumerate(shapes) if shape and shape[0] == shapes[0][0])

    def space_groups(self) -> Groups:
        """Spatial dimensions (after batch and channel) that move together: equally long at the same place."""
        groups: dict[tuple[int, int, int], list[Axis]] = {}
        for index, shape in enumerate(self.shapes):
            for dim in range(2, len(shape)):
                if shape[dim] > 1:
                    groups.setdefault((len(shape), dim, shape[dim]), []).append((index, dim))
        return tuple(map(tuple, groups.values()))

    def resize(self, sizes: Mapping[tuple[Axis, ...], int]) -> tuple[Shape, ...]:
        """Shapes with the given groups of axes at the given sizes."""
        shapes = [list(shape) for shape in self.shapes]
        for group, size in sizes.items():
            for index, dim in group:
                shapes[index][dim] = size
        return tuple(map(tuple, shapes))


class Guards:
    """What a program demands of the sizes of its inputs."""

    def __init__(self, program: ExportedProgram, inputs: Inputs) -> None:
        self.program, self.inputs = program, inputs
        graph, wanted = program.graph, set(program.graph_signature.user_inputs)
        places = [node for node in graph.nodes if node.op == "placeholder" and node.name in wanted]
        places = [node for node in places if isinstance(node.meta.get("val"), Tensor)]
        self.names = [node.name for node in places]
        self.shapes = [tuple(node.meta["val"].shape) for node in places]
        self._module: Any = None
        self._sizes: dict[tuple[Axis, ...], list[int]] = {}

    def is_free(self, axis: Axis) -> bool:
        """True if the program has a symbol there and not a number."""
        return not isinstance(self.shapes[axis[0]][axis[1]], int)

    def symbols(self) -> dict[str, Axis]:
        """The first place of every symbol."""
        found: dict[str, Axis] = {}
        for index, shape in enumerate(self.shapes):
            for dim, size in enumerate(shape):
                if not isinstance(size, int):
                    found.setdefault(str(size), (index, dim))
        return found

    def accept(self, shapes: Sequence[Shape]) -> bool:
        """True if the program takes inputs of these shapes; nothing is computed."""
        if self._module is None:
            self._module = self.program.module()
        check = getattr(self._module, "_guards_fn", None)
        if check is None:
            return True
        try:
            empty = self.inputs.at(shapes, empty="meta")
            check(*tree_leaves((empty.args, empty.kwargs)))
        except AssertionError:
            return False
        return True

    def sizes(self, group: tuple[Axis, ...]) -> list[int]:
        """The sizes up to a limit that the program takes in these dimensions, the others being as they are."""
        if group not in self._sizes:
            limit = _limit(self.inputs.shapes[group[0][0]][group[0][1]])
            candidates = range(1, limit + 1)
            self._sizes[group] = [size for size in candidates if self.accept(self.inputs.resize({group: size}))]
        return self._sizes[group]

    def spans(self, groups: Groups) -> tuple[Span, ...]:
        """Every dimension that may vary, by input."""
        found = []
        for group in groups:
            axes = tuple(axis for axis in group if self.is_free(axis))
            if not axes:
                continue
            size = self.inputs.shapes[axes[0][0]][axes[0][1]]
            low, high, step = _progression(set(self.sizes(group)), size)
            if low != high:
                top = None if high + step > _limit(size) else high
                found += [Span(self.names[index], dim, low, top, step) for index, dim in axes]
        return tuple(sorted(found, key=lambda span: (self.names.index(span.input), span.dimension)))

    def other_spaces(self, groups: Groups) -> Iterator[tuple[Shape, ...]]:
        """Shapes with every spatial dimension that may vary at another size, smaller ones first; a few of them."""
        moves: dict[tuple[Axis, ...], list[int]] = {}
        for axes in groups:
            if any(self.is_free(axis) for axis in axes):
                size = self.inputs.shapes[axes[0][0]][axes[0][1]]
                taken = self.sizes(axes)
                below, above = [n for n in reversed(taken) if n < size], [n for n in taken if n > size]
                if below or above:
                    moves[axes] = [n for pair in zip(below, above, strict=False) for n in pair] or below or above
        for shift in range(_TRIES if moves else 0):
            # Another place in each list, so that dimensions of one size end with different ones.
            chosen = {axes: sizes[(shift + place) % len(sizes)] for place, (axes, sizes) in enumerate(moves.items())}
            shapes = self.inputs.resize(chosen)
            if self.accept(shapes):
                yield shapes


def free_batch_of_one(program: ExportedProgram) -> list[str]:
    """Removes the guards that say only that a batch is not 1, and returns all guards as they were.

    Torch asks that about the layout of tensors in memory, not about their values. The one size that such a guard keeps
    out is 1, so that comparing the outputs there shows whether it was needed.
    """
    before: list[str] = list(getattr(program, "_guards_code", []))
    set_guards(program, [guard for guard in before if not _BATCH_OF_ONE.fullmatch(guard)])
    return before


def free_single_voxels(program: ExportedProgram, network: nn.Module, inputs: Inputs) -> None:
    """Removes the guards by which something inside is larger than one voxel, where these inputs make it one.

    Torch asks that about layout too. Who calls this must compare the outputs at these inputs.
    """
    meta = inputs.at(inputs.shapes, empty="meta")
    arguments = inspect.signature(network.forward).bind(*meta.args, **meta.kwargs).arguments
    names = {**SYMPY_INTERP, "math": math, "L": arguments}
    guards: list[str] = list(getattr(program, "_guards_code", []))
    # The guards are Python that torch wrote a moment ago, and runs itself whenever the program is called.
    set_guards(program, [guard for guard in guards if not _MORE_THAN_ONE.fullmatch(guard) or eval(guard, names)])


def set_guards(program: ExportedProgram, guards: list[str]) -> None:
    """Replaces the guards of a program."""
    if hasattr(program, "_guards_code"):
        program._guards_code = guards


def _limit(size: int) -> int:
    return max(2 * size, size + 64)


def _progression(taken: set[int], size: int) -> tuple[int, int, int]:
    """Low, high and step of the run through ``size`` that reaches about as far as any, with the least step."""
    runs = []
    for step in range(1, size + 1):
        low = high = size
        while low - step in taken:
            low -= step
        while high + step in taken:
            high += step
        runs.append((low, high, step))
    reach = max(high - low for low, high, _ in runs)
    return next(run for run in runs if run[1] - run[0] >= 0.8 * reach)


def _lively(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Random numbers instead of one number everywhere, which would test nothing."""
    if not tensor.is_floating_point() or tensor.numel() < 2 or bool((tensor != tensor.flatten()[0]).any()):
        return tensor
    return torch.randn(tensor.shape, generator=generator, device="cpu").to(tensor.dtype)


def _resized(tensor: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
    for dim, size in enumerate(shape):
        times = -(-size // tensor.shape[dim])
        tensor = torch.cat([tensor] * times, dim).narrow(dim, 0, size)
    if tensor.is_floating_point():
        tensor = tensor * (0.5 + torch.rand(shape, generator=generator, device="cpu").to(tensor.dtype))
    return tensor.contiguous()
