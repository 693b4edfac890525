"""Tensors made from nothing: fillers everywhere, until something is written into them."""

from __future__ import annotations

import numpy as np

from ranp.running.operators import flat_tensors
from ranp.tracing.operation import Op, labels_of
from ranp.tracing.rules.table import rule


@rule(
    "zeros", "ones", "empty", "full", "rand", "randn", "randint", "scalar_tensor", "new_zeros", "new_ones",
    "new_empty", "new_full", "empty_strided", "new_empty_strided", "empty_permuted",
)  # fmt: skip
def factory(op: Op) -> None:
    """A new tensor owns writable labels, so that a cost volume filled slice by slice ends with the right ones."""
    for out in flat_tensors(op.out):
        op.emit({d: np.zeros(n, np.int64) for d, n in enumerate(out.shape)}, out)


@rule(
    "arange", "linspace", "logspace", "eye", "randperm", "tril_indices", "triu_indices", "bartlett_window",
    "blackman_window", "hamming_window", "hann_window", "kaiser_window", "range", "fft_fftfreq", "fft_rfftfreq",
)  # fmt: skip
def numbered(op: Op) -> None:
    """Every index holds another value, so none may go: what meets it position by position must stay."""
    op.emit({})


@rule("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
def like(op: Op) -> None:
    """A new tensor shaped after another: its dimensions are those of the other one."""
    op.emit({d: v.copy() for d, v in labels_of(op["self"]).items()})


@rule(
    "multinomial", "nonzero", "unique", "_unique2", "unique_dim", "unique_consecutive", "histc", "bincount",
    "_unique", "unique_dim_consecutive", "nonzero_static", "masked_select", "histogram", "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors", "repeat_interleave", "segment_reduce",
)  # fmt: skip
def counted(op: Op) -> None:
    """Data decides the shape: nothing that goes in may change."""
    for tensor in op.tensors:
        op.pin_tensor(tensor, "data decides the shape of the result")


@rule("tril", "triu")
def triangle(op: Op) -> None:
    """Masks by position: rows and columns must stay, the rest passes."""
    x = op["self"]
    op.pass_beside(x, [x.dim() - 2, x.dim() - 1], "masked by position")
