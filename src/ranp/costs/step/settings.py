"""The arguments of an operator that are not tensors, as a value; and the operator called again from it.

Sizes that repeat the shape of a tensor of the call are held as a reference to it (``"=O0"``: the shape of the first
output), so that the same operator at another width has the same settings wherever it can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ranp.errors import UnsupportedError

if TYPE_CHECKING:
    from ranp.costs.step.records import Call, Sized

_SHAPES = frozenset("size self_size input_size input_sizes self_sizes bias_sizes normalized_shape shape sizes".split())
"""Names of list arguments that repeat a shape."""
_COUNTS = frozenset(["N", "C", "HxW"])
"""Names of the arguments by which group normalisation repeats the shape of its first input."""
_TENSOR = "T"


@dataclass(frozen=True, slots=True)
class Tag:
    """An argument that is neither a number nor a list: ``"text"``, ``"torch"`` (a constant), ``"device"`` and so on."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Settings:
    """All arguments of a call: None, flags, numbers, tuples of these, ``"T"`` for a tensor, references and tags.

    >>> given = Settings(("T", (2, 3), 1.5))
    >>> given.text(), given.numbers, given.with_numbers([4, 6]).positional
    ('[["T",[2,3],1.5]]', (2, 3), ('T', (4, 6), 1.5))

    Attributes:
        positional: In order.
        named: By keyword.
    """

    positional: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    _texts: dict[bool, str] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Settings:
        """The settings of that text."""
        positional, *named = json.loads(text)
        return cls(tuple(map(_read, positional)), tuple((name, _read(value)) for name, value in dict(*named).items()))

    def text(self, *, is_blank: bool = False) -> str:
        """The same as one line of JSON, for the keys of tables of times.

        Args:
            is_blank: Leave out fractions, which change results and never times.
        """
        if is_blank not in self._texts:
            parts = (self.positional, self.named)
            positional, named = _mapped(parts, float, lambda _: "#") if is_blank else parts
            value = [positional, dict(named)] if named else [positional]
            self._texts[is_blank] = json.dumps(value, separators=(",", ":"), default=lambda tag: {tag.kind: tag.value})
        return self._texts[is_blank]

    @property
    def numbers(self) -> tuple[int, ...]:
        """All whole numbers, in order."""
        found: list[int] = []
        _mapped((self.positional, self.named), int, found.append)
        return tuple(found)

    def with_numbers(self, numbers: Iterable[int]) -> Settings:
        """The same with other whole numbers, as many as there are."""
        given = iter(numbers)
        return Settings(*_mapped((self.positional, self.named), int, lambda _: next(given)))

    def with_argument(self, index: int, value: Any) -> Settings:
        """The same with another positional argument."""
        return Settings((*self.positional[:index], value, *self.positional[index + 1 :]), self.named)


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A nested value with each number of exactly that type changed."""
    if isinstance(value, tuple):
        return tuple(_mapped(item, kind, change) for item in value)
    return change(value) if type(value) is kind else value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_read, value))
    return Tag(*next(iter(value.items()))) if isinstance(value, dict) else value


def settings_of(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[Sized], outputs: Sequence[Sized]
) -> Settings:
    """The settings of a call."""
    names = [argument.name for argument in func._schema.arguments]
    return Settings(
        tuple(_encoded(value, name, inputs, outputs) for name, value in zip(names, args, strict=False)),
        tuple((name, _encoded(value, name, inputs, outputs)) for name, value in kwargs.items()),
    )


def _encoded(value: Any, name: str, inputs: Sequence[Sized], outputs: Sequence[Sized]) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, torch.Tensor):
        return _TENSOR
    if isinstance(value, int | torch.SymInt):
        number = int(value)
        if name in _COUNTS and inputs:
            axis = ("N", "C", "HxW").index(name)
            if _count(axis, inputs[0].shape) == number:
                return f"=N{axis}"
        return number
    if isinstance(value, list | tuple):
        reference = _reference([int(item) for item in value], inputs, outputs) if name in _SHAPES else ""
        return reference or tuple(_encoded(item, "", inputs, outputs) for item in value)
    if isinstance(value, str):
        return Tag("text", value)
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return Tag("torch", str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return Tag("device", value.type)
    if isinstance(value, complex):
        return Tag("complex", (value.real, value.imag))
    return Tag("unknown", type(value).__name__)


def _count(axis: int, shape: Sequence[int]) -> int:
    return prod(shape[2:]) if axis == 2 else shape[axis] if axis < len(shape) else -1


def _reference(sizes: list[int], inputs: Sequence[Sized], outputs: Sequence[Sized]) -> str:
    """The first tensor whose shape, or whose last extents, these sizes are."""
    for letter, tensors in (("O", outputs), ("I", inputs)):
        for index, tensor in enumerate(tensors):
            if sizes == list(tensor.shape):
                return f"={letter}{index}"
    for index, tensor in enumerate(inputs):
        if sizes and sizes == list(tensor.shape[-len(sizes) :]):
            return f"=I{index}:{len(sizes)}"
    return ""


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "torch": lambda name: getattr(torch, name),
    "device": torch.device,
    "complex": lambda parts: complex(*parts),
}


def _decoded(value: Any, call: Call, tensors: Iterator[torch.Tensor]) -> Any:
    if value == _TENSOR:
        return next(tensors)
    if isinstance(value, str):
        kind, rest = value[1], value[2:]
        if kind == "N":
            return _count(int(rest), call.inputs[0].shape)
        index, _, last = rest.partition(":")
        shape = (call.outputs if kind == "O" else call.inputs)[int(index)].shape
        return list(shape[-int(last) :] if last else shape)
    if isinstance(value, tuple):
        return [_decoded(item, call, tensors) for item in value]
    if not isinstance(value, Tag):
        return value
    if value.kind not in _DECODERS:
        raise UnsupportedError(f"{call.op} cannot be run again: one of its arguments is a {value.value}")
    return _DECODERS[value.kind](value.value)


def _drawn(tensor: Sized, device: str) -> torch.Tensor:
    """A real tensor of this size and layout: random numbers, and zeros for integers, which are valid as any index."""
    shape, dtype = tensor.shape, tensor.dtype
    if tensor.scattered:
        return _scattered(shape, dtype, device)
    filled = _filled(shape, dtype, device)
    if not tensor.channels_last:
        return filled
    return filled.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)


def _filled(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, device=device, dtype=torch.float32).to(dtype)
    return torch.zeros(shape, device=device, dtype=dtype)


def _scattered(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every tensor of which only a part is read: along the outermost axis that makes a difference, as a slice is."""
    for axis in range(1, len(shape)):
        wide = _filled((*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]), dtype, device)
        part = wide.narrow(axis, 0, shape[axis])
        if not part.is_contiguous():
            return part
    return _filled(shape, dtype, device)


def rerun(call: Call, *, device: str = "cpu") -> Callable[[], Any]:
    """Makes real tensors for a call and returns a function that runs its operator on them, as often as wanted.

    >>> from ranp.costs.step import Call, Sized
    >>> size = Sized((2, 3), torch.float32)
    >>> rerun(Call("aten.relu.default", (size,), (size,), Settings(("T",)), "forward", ""))().shape
    torch.Size([2, 3])

    Raises:
        UnsupportedError: Torch does not know the operator, or an argument cannot be made again.
    """
    space, name, overload = call.op.split(".")
    try:
        func = getattr(getattr(getattr(torch.ops, space), name), overload)
    except AttributeError as error:
        raise UnsupportedError(f"this torch ({torch.__version__}) has no operator {call.op!r}") from error
    tensors = iter([_drawn(tensor, device) for tensor in call.inputs])
    args = [_decoded(value, call, tensors) for value in call.settings.positional]
    kwargs = {name: _decoded(value, call, tensors) for name, value in call.settings.named}
    if "device" in kwargs:
        kwargs["device"] = torch.device(device)

    def run() -> Any:
        with torch.no_grad():
            return func(*args, **kwargs)

    return run
