"""What torch's attention on the CPU allocates beyond its results: the scores of one block, for every thread.

The rest of a layer of attention is made of operators that have rules of their own.
"""

from __future__ import annotations

from ranp.costs.step import Call, Sized
from ranp.costs.step.cpu import Cpu

_BLOCKS = ((768, 256), (192, 64), (0, 32))
"""Queries from which on a block has so many of them."""
_KEYS = 512


def _block(query: Sized, key: Sized) -> tuple[int, int, int]:
    """Queries and keys of a block, and bytes of a number that sums."""
    queries = query.shape[2]
    most = next(block for least, block in _BLOCKS if queries >= least)
    return min(most, queries), min(_KEYS, key.shape[2]), max(4, query.dtype.itemsize)


def forward_transient(call: Call, cpu: Cpu) -> int:
    """Scores, their maxima and sums, and the result of a block; half precision keeps the scores in both precisions."""
    query, key = call.inputs[:2]
    rows, columns, wide = _block(query, key)
    narrow = query.dtype.itemsize if query.dtype.itemsize < wide else 0
    return cpu.threads * rows * (wide * (columns + 2 + query.shape[3]) + narrow * columns)


def backward_transient(call: Call, cpu: Cpu) -> int:
    """Scores and their gradients; a gradient that does not lie as the results do, with heads inside, is copied."""
    grad, query, key = call.inputs[:3]
    rows, columns, wide = _block(query, key)
    narrow = query.dtype.itemsize if query.dtype.itemsize < wide else 0
    copied = grad.bytes if not grad.scattered and grad.shape[1] > 1 and grad.shape[2] > 1 else 0
    return copied + cpu.threads * 2 * rows * columns * (wide + narrow) + rows * wide
