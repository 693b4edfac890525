"""Fourier transforms and complex numbers: channels pass beside the dimensions that are transformed."""

from __future__ import annotations

from ranp.tracing.operation import Op, labels_of
from ranp.tracing.rules.movement import wrap
from ranp.tracing.rules.table import rule


@rule("_fft_r2c", "_fft_c2c", "_fft_c2r")
def fourier(op: Op) -> None:
    """Every frequency is made of all places along the transformed dimensions, so those must stay."""
    x = op["self"]
    dims = {wrap(d, x.dim()) for d in op["dim"]}
    op.pin_tensor(x, "a Fourier transform runs along channels", sorted(dims))
    op.emit({d: v for d, v in labels_of(x).items() if d not in dims})


@rule("view_as_real", "view_as_real_copy", "view_as_complex", "view_as_complex_copy")
def pairs(op: Op) -> None:
    """Real and imaginary parts lie along a last dimension of two, which no cut may touch."""
    x = op["self"]
    last = op.out.dim() if "complex" in op.name else x.dim()
    op.pin_tensor(x, "real and imaginary parts", [last])
    op.emit({d: v for d, v in labels_of(x).items() if d != last})
