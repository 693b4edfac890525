"""A network as a file that runs without its Python code: ONNX, or a program of ``torch.export``.

The file is written beside its place, read back, run at several sizes and compared with the network; only then it takes
its name. So what is there was checked, and a failure leaves nothing behind.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ranp.errors import DataError, StorageError, UnsupportedError, unknown_name
from ranp.files.atomic import beside, check_target, publish
from ranp.integrations.export_formats import FORMATS, Check, Format, Subject, quiet
from ranp.integrations.export_programs import make_program
from ranp.integrations.export_sizes import Groups, Guards, Inputs, Shape, Span
from ranp.running.calling import first_line, tensors_in, unwrap
from ranp.running.copies import copy_model
from ranp.running.randomness import untouched_rng

__all__ = ["Check", "Exported", "Span", "export"]

TOLERANCE = 1e-4
DYNAMIC = {"auto": ("all", "batch", "space", "none"), "batch": ("batch", "none"), "none": ("none",)}
"""What is tried, in turn, for each choice of what may vary."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What ``export`` wrote.

    Attributes:
        path: The file.
        format: ``"onnx"`` or ``"torch-export"``.
        inputs: Names of the inputs, in order.
        dynamic: The dimensions that may vary, and the sizes they take.
        checks: Every comparison with the network.
        reasons: Why a dimension that was asked to vary does not, one sentence each.
    """

    path: Path
    format: str
    inputs: tuple[str, ...]
    dynamic: tuple[Span, ...]
    checks: tuple[Check, ...]
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        value = asdict(self)
        return {**value, "path": str(self.path), "max_error": self.max_error}

    @property
    def max_error(self) -> float:
        """The largest relative difference of all comparisons."""
        return max(check.error for check in self.checks)

    @property
    def dynamic_batch(self) -> bool:
        """True if the batch may vary."""
        return any(span.dimension == 0 for span in self.dynamic)

    @property
    def dynamic_space(self) -> bool:
        """True if a spatial size may vary."""
        return any(span.dimension > 1 for span in self.dynamic)


def export(
    model: nn.Module,
    example: Any,
    path: str | os.PathLike[str],
    *,
    format: str = "onnx",
    dynamic: str = "auto",
    opset: int | None = None,
    force: bool = False,
    tolerance: float = TOLERANCE,
) -> Exported:
    """Writes a network as it is in eval mode to a file, and checks the file against it.

        >>> import tempfile
        >>> net = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 2, 1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = export(net, torch.randn(1, 1, 8, 8, 8), Path(folder, "net.pt2"), format="torch-export")
        >>> made.dynamic_batch, made.dynamic_space, made.max_error
        (True, True, 0.0)

    Args:
        model: The network, slim or not; it is not changed. DataParallel, DDP and compiled ones are unwrapped.
        example: Inputs of one call: a tuple is splatted, a dict passed as keywords. On the meta device, random
            numbers take their place.
        path: The file to write.
        format: ``"onnx"`` (needs the extra ``ranp[onnx]``) or ``"torch-export"``.
        dynamic: ``"auto"``: batch and spatial sizes may vary as far as the forward code allows; ``"batch"``: only the
            batch; ``"none"``: sizes are those of the example.
        opset: Version of the ONNX operators, default the exporter's own.
        force: Replace a file that is there.
        tolerance: How far an output may be off, as a fraction of its largest absolute value.

    Returns:
        What varies, what was compared, and why something does not vary.

    Raises:
        UnsupportedError: The network cannot be exported, or the file does not compute the same; an option is unknown;
            a package is missing.
        StorageError: The file exists, or cannot be written.
        DataError: The network does not run on the example.
    """
    if format not in FORMATS:
        raise UnsupportedError(unknown_name("format", format, FORMATS))
    if dynamic not in DYNAMIC:
        raise UnsupportedError(unknown_name("dynamic", dynamic, DYNAMIC))
    kind, target = FORMATS[format], Path(path)
    check_target(target, force=force)
    kind.require()
    network = _ready(model)
    inputs = Inputs.of(example, network)
    kind.require_types({tensor.dtype for tensor in (*network.parameters(), *inputs.tensors)})
    subject = _with_plain_outputs(Subject(network, inputs, tolerance))
    reasons: list[str] = []
    for choice in DYNAMIC[dynamic]:
        try:
            with beside(target) as temporary, quiet(), untouched_rng():
                made = _attempt(subject, temporary, target, kind, choice, opset)
                publish(temporary, target)
                return replace(made, reasons=(*reasons, *made.reasons))
        except (UnsupportedError, StorageError):
            raise
        except Exception as error:  # The exporters raise anything, and the network's code is the user's.
            reasons.append(f"{_WHAT[choice]}: {first_line(error)}")
    raise UnsupportedError(
        f"{type(unwrap(model)).__name__} cannot be exported to {format} ({reasons[-1]}). "
        "Rewrite that part of its forward code, or try the other format."
    )


_WHAT = {
    "all": "batch and space cannot both vary",
    "batch": "the batch cannot vary",
    "space": "space cannot vary",
    "none": "at fixed sizes",
}


def _ready(model: nn.Module) -> nn.Module:
    """A copy in eval mode on the CPU; exporting runs and sometimes changes what it is given."""
    network = unwrap(model)
    if any(tensor.is_meta for tensor in (*network.parameters(), *network.buffers())):
        raise UnsupportedError("the network is on the meta device and holds no weights. Give it weights first.")
    return copy_model(network, meta=False).cpu().eval().requires_grad_(False)


class _Flat(nn.Module):
    """A network whose output is the tuple of the tensors in it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """The tensors of the network's output, in order."""
        return tuple(tensors_in(self.network(*args, **kwargs)))


def _with_plain_outputs(subject: Subject) -> Subject:
    """The same; a network that returns objects of its own, which no file can hold, gives a tuple of tensors instead."""
    output = subject.run(subject.inputs)
    if not tensors_in(output):
        raise UnsupportedError(f"the network returns a {type(output).__name__} without tensors. Return tensors.")
    plain = all(isinstance(leaf, Tensor | int | float | str | None) for leaf in tree_leaves(output))
    return subject if plain else replace(subject, network=_Flat(subject.network))


def _attempt(subject: Subject, temporary: Path, target: Path, kind: Format, choice: str, opset: int | None) -> Exported:
    """Exports once, with one choice of what may vary, and compares."""
    inputs = subject.inputs
    own, batch, space = inputs.shapes, inputs.batch_axes(), inputs.space_groups()
    varies = {"all": (batch, *space), "batch": (batch,), "space": space}.get(choice, ())
    groups = tuple(group for group in varies if group)
    made = make_program(subject, groups)
    guards, spans, reasons = made.guards, made.spans, list(made.reasons)
    count = own[0][0] if batch and batch in groups else 0
    others = [inputs.resize({batch: size}) for size in (1, max(count, 2) + 1)] if count else []
    wanted = [shapes for shapes in dict.fromkeys([own, *others, *made.also]) if guards.accept(shapes)]
    if own not in wanted:
        raise RuntimeError("torch fixed sizes that keep the example itself out")
    if choice in ("all", "space"):
        other = _another_space(subject, guards, space)
        wanted += [] if other is None else [other]
        reasons += _fixed(guards, space, spans)
        if other is None and any(span.dimension > 1 for span in spans):
            raise RuntimeError("no other size was found to check it at")
    kind.write(made.program, temporary, opset, _axis_names(guards), spans)
    read_back = kind.reader(temporary)
    checks = tuple(subject.compare(read_back, inputs.at(shapes)) for shapes in wanted)
    return Exported(target, kind.name, tuple(guards.names), spans, checks, tuple(reasons))


def _another_space(subject: Subject, guards: Guards, space: Groups) -> tuple[Shape, ...] | None:
    """Shapes with other spatial sizes that the program and the network take, at the example's own batch."""
    for shapes in guards.other_spaces(space):
        pairs = zip(subject.inputs.shapes, shapes, strict=True)
        shapes = tuple((own[0], *shape[1:]) if shape else shape for own, shape in pairs)
        with suppress(DataError):
            subject.run(subject.inputs.at(shapes))
            return shapes
    return None


def _fixed(guards: Guards, space: Groups, spans: tuple[Span, ...]) -> list[str]:
    free = {(span.input, span.dimension) for span in spans}
    return [
        f"dimension {dim} of {guards.names[index]!r} is fixed at {guards.inputs.shapes[index][dim]}: "
        "the forward code depends on it"
        for group in space
        for index, dim in group
        if (guards.names[index], dim) not in free
    ]


def _axis_names(guards: Guards) -> dict[str, str]:
    """What the dimensions are called in an ONNX file: ``batch``, then the input and its dimension."""
    batch = guards.inputs.batch_axes()
    return {
        symbol: "batch" if dim == 0 and (index, dim) in batch else f"{guards.names[index]}_{dim}"
        for symbol, (index, dim) in guards.symbols().items()
    }
