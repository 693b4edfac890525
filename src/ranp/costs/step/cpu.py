"""What torch says of the CPU that it runs on: whatever decides which kernels it takes, and so what they allocate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

_WIDE, _NARROW = 16, 8
"""Channels in a block of oneDNN's layouts with AVX-512 and with AVX2: as many numbers as a vector register holds."""
_HALVES = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}


@dataclass(frozen=True, slots=True)
class Cpu:
    """What decides on kernels, beside the operator.

    Attributes:
        isa: Instructions that oneDNN uses: ``"avx512"``, ``"avx2"``, ``"other"`` (its kernels are not known; those for
            AVX2 stand in for them), or ``"none"`` where torch does without oneDNN.
        threads: Threads of one operator.
        halves: Types of 16 bits whose convolutions torch gives to oneDNN.
        level: What AVX-512 computes bfloat16 with: ``"core"`` (instructions for float32, between conversions),
            ``"bf16"`` (its own instructions), or ``"other"`` (AMX and what follows: the kernels are not known; those
            for ``"bf16"`` stand in for them).
    """

    isa: str = "avx2"
    threads: int = 1
    halves: tuple[torch.dtype, ...] = ()
    level: str = "core"

    @property
    def block(self) -> int:
        """Numbers in a vector register."""
        return _WIDE if self.isa == "avx512" else _NARROW


def this_cpu() -> Cpu:
    """The CPU, the library and the number of threads of this process at this moment."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:  # type: ignore[no-untyped-call]
        return Cpu("none", torch.get_num_threads())
    return Cpu(_isa(), torch.get_num_threads(), _halves(), _level())


def blocks(device: str, precision: str) -> tuple[int, ...]:
    """Channels that a machine computes at once: to some of these multiples, a layer may grow at no cost of time."""
    if device == "cpu":
        return (8, 16) if this_cpu().block > 8 else (8,)
    return (8,) if precision in ("float32", "float64") else (8, 16)


@cache
def _halves() -> tuple[torch.dtype, ...]:
    return tuple(dtype for dtype, question in _HALVES.items() if getattr(torch.ops.mkldnn, question)())


@cache
def _isa() -> str:
    """Asks oneDNN itself, which goes by the processor and ``ONEDNN_MAX_CPU_ISA``, not by torch's own capability.

    It tells by the room that it gives to a weight: one output channel is padded to a block. AVX without AVX2 has the
    same blocks but pads the input channels of a wide weight too.
    """
    try:
        narrow, wide = _padded_weight(1, 1), _padded_weight(17, 17)
    except (AttributeError, RuntimeError):  # another version of torch, or of its oneDNN, does not answer
        return "other"
    if narrow == _WIDE:
        return "avx512"
    return "avx2" if narrow == _NARROW and wide < 24 * 24 else "other"


@cache
def _level() -> str:
    """Asks oneDNN likewise: in bfloat16 it pads 33 input channels to a block, to a pair, or with AMX to two blocks."""
    if _isa() != "avx512" or torch.bfloat16 not in _halves():
        return "core"
    try:
        channels = _padded_weight(64, 33, torch.bfloat16) // 64
    except (AttributeError, RuntimeError):
        return "other"
    return {48: "core", 34: "bf16"}.get(channels, "other")


def _padded_weight(out: int, into: int, dtype: torch.dtype = torch.float32) -> int:
    """Elements per point of the kernel of a weight in the layout that oneDNN chooses for it."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch.no_grad():
        weight = torch.zeros(out, into, 3, 3, 3, dtype=dtype, device="cpu").to_mkldnn()
        places = [1, 1, 1]
        laid = torch.ops.aten.mkldnn_reorder_conv3d_weight(weight, places, places, places, 1, [2, into, 16, 16, 16])
        return int(torch.ops.mkldnn._nbytes(laid)) // (dtype.itemsize * 27)
