"""The two kinds of file a network is exported to, how each is run, and whether it computes the same as the network."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ranp.errors import DataError, UnsupportedError, asked
from ranp.integrations.export_sizes import Inputs, Shape, Span
from ranp.running.calling import first_line, map_tensors, tensors_in
from ranp.running.randomness import untouched_rng

Runner = Callable[[Inputs], list[Tensor]]
"""Gives the tensors of the output of an exported network, in order."""

ONNX_LIMIT = 2**31 - 2**20
"""Bytes of weights that fit in one ONNX file, with room for the graph."""
_EXTRA = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    Attributes:
        name: As the command line calls it.
        suffix: How its files usually end.
        require: Raises ``UnsupportedError`` if a package is missing.
        require_types: ``require_types(types of parameters and inputs)`` raises it if one of them cannot be checked.
        write: ``write(program, path, opset, axes, notes)``.
        reader: ``reader(path)`` reads the file back and gives a function that runs it.
    """

    name: str
    suffix: str
    require: Callable[[], None]
    require_types: Callable[[AbstractSet[torch.dtype]], None]
    write: Callable[[ExportedProgram, Path, int | None, Mapping[str, str], tuple[Span, ...]], None]
    reader: Callable[[Path], Runner]


def _require_onnx() -> None:
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"ONNX needs {', '.join(missing)}, which is not installed. Run: pip install 'ranp[onnx]'."
        )


def _require_single(types: AbstractSet[torch.dtype]) -> None:
    other = sorted(str(kind) for kind in types if kind.is_floating_point and kind != torch.float32)
    if other:
        raise UnsupportedError(
            f"weights or inputs are {other[0]}, which onnxruntime does not convolve on a CPU, so that nothing could be "
            "checked. Call .float() on the network and its inputs, or use format torch-export."
        )


def _write_onnx(
    program: ExportedProgram, path: Path, opset: int | None, axes: Mapping[str, str], spans: tuple[Span, ...]
) -> None:
    weights = sum(tensor.nbytes for tensor in tensors_in((program.state_dict, program.constants)))
    if weights > ONNX_LIMIT:
        raise UnsupportedError(
            f"{weights / 2**30:.1f} GiB of weights do not fit in one ONNX file, which holds 2. "
            "Prune more, or use format torch-export."
        )
    exported = torch.onnx.export(program, dynamo=True, opset_version=opset, external_data=False, verbose=False)
    if exported is None:
        raise RuntimeError("torch.onnx.export made nothing")
    renamed: dict[Any, str] = dict(axes)
    exported.rename_axes(renamed)
    notes = [{"input": s.input, "dimension": s.dimension, "sizes": str(s)} for s in spans]
    exported.model.metadata_props["ranp.sizes"] = json.dumps(notes)
    made = exported.model_proto
    version = next(one.version for one in made.opset_import if not one.domain)
    if opset not in (None, version):  # the exporter only warns, and keeps its own
        raise UnsupportedError(
            f"{asked('opset', opset)} cannot be had: PyTorch writes this network with version {version}. Leave it out."
        )
    path.write_bytes(made.SerializeToString())


def _read_onnx(path: Path) -> Runner:
    import onnx
    import onnxruntime

    onnx.checker.check_model(str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(inputs: Inputs) -> list[Tensor]:
        feed = dict(zip(names, (tensor.numpy() for tensor in inputs.tensors), strict=True))
        return [torch.from_numpy(value) for value in session.run(None, feed)]

    return run


def _nothing(*_: Any) -> None:
    """Torch alone is enough, in any precision."""


def _write_program(
    program: ExportedProgram, path: Path, opset: int | None, axes: Mapping[str, str], spans: tuple[Span, ...]
) -> None:
    if opset is not None:
        raise UnsupportedError(f"opset {opset} is a matter of ONNX. Leave it out for format torch-export.")
    # Torch stores the inputs it saw, to test the sizes of later ones by. A stand-in of one element has the same sizes.
    program.example_inputs = map_tensors(
        lambda tensor: torch.zeros((), dtype=tensor.dtype).expand(tensor.shape), program.example_inputs
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    path.write_bytes(buffer.getvalue())


def _read_program(path: Path) -> Runner:
    with path.open("rb") as file:
        module = torch.export.load(file).module()

    def run(inputs: Inputs) -> list[Tensor]:
        return tensors_in(inputs.run(module))

    return run


FORMATS: Mapping[str, Format] = {
    "onnx": Format("onnx", ".onnx", _require_onnx, _require_single, _write_onnx, _read_onnx),
    "torch-export": Format("torch-export", ".pt2", _nothing, _nothing, _write_program, _read_program),
}


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps to itself what the exporters say about their own code: warnings, and log lines below an error."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison with the network: shapes of the inputs, and the largest difference.

    Attributes:
        shapes: Of every tensor that went in.
        error: Largest absolute difference of any output, over the largest absolute value of that output.
    """

    shapes: tuple[Shape, ...]
    error: float


class DisagreesError(Exception):
    """The exported file computes something else."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is exported.

    Attributes:
        network: In eval mode.
        inputs: Of one call.
        tolerance: How far an output of the file may be off, as a fraction of its largest absolute value.
    """

    network: nn.Module
    inputs: Inputs
    tolerance: float

    def run(self, inputs: Inputs, *, seed: int | None = None) -> Any:
        """What the network returns; random numbers that it draws are the same every time, but for another ``seed``.

        Raises:
            DataError: It does not run on these inputs.
        """
        try:
            with torch.no_grad(), untouched_rng():
                if seed is not None:
                    torch.default_generator.manual_seed(seed)
                return inputs.run(self.network)
        except Exception as error:  # It is the user's code and may raise anything.
            raise DataError(
                f"{type(self.network).__name__} does not run on the example of {inputs} ({first_line(error)}). "
                "Pass inputs of one call that it takes."
            ) from error

    def compare(self, exported: Runner, inputs: Inputs) -> Check:
        """Compares one run of what was exported with one of the network.

        Raises:
            DisagreesError: The outputs are further apart than the tolerance.
        """
        expected = tensors_in(self.run(inputs))
        with torch.no_grad():
            error = _difference(expected, exported(inputs))
        if not error <= self.tolerance:
            again = _difference(expected, tensors_in(self.run(inputs, seed=0)))
            why = "the network is random in eval mode" if again > 0 else f"tolerance {self.tolerance:g}"
            raise DisagreesError(f"the file is off by {error:.1e} of the largest output at {inputs} ({why})")
        return Check(inputs.shapes, error)


def _difference(expected: list[Tensor], got: list[Tensor]) -> float:
    """Largest absolute difference of any output over its largest absolute value; infinite if they do not compare."""
    if [tuple(t.shape) for t in expected] != [tuple(t.shape) for t in got]:
        return float("inf")
    worst = 0.0
    for mine, theirs in zip(expected, got, strict=True):
        if not mine.numel():
            continue
        first, second = mine.double(), theirs.double()
        if not torch.equal(first.isfinite(), second.isfinite()):
            return float("inf")
        first, second = first.nan_to_num(), second.nan_to_num()
        scale = max(first.abs().max().item(), torch.finfo(torch.float32).tiny)
        worst = max(worst, (first - second).abs().max().item() / scale)
    return worst
