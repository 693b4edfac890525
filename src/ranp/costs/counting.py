"""The counting rules: what one call of a module costs, in the convention of the paper's tables and of its equation.

Convention first: the tables count a multiply-add of a convolution once, the equation counts it as two operations, less
one addition. Both see modules only, never functions, and share every rule but that of the convolution:

=====================================  ======================================================================
convolution, transposed convolution    paper: ``out * (in / groups * kernel + bias)``
                                       equation: ``out * (2 * in / groups * kernel - 1 + bias)``
linear                                 ``out * (2 * in - 1 + bias)``
batch, instance, group, layer norm     ``4 * out``
average pooling                        ``out * (window + 1)``
leaky and smooth activations           ``out``
softmax                                ``batch * (3 * channels - 1)``: the space it runs over is left out
ReLU, maximum pooling, dropout         nothing
=====================================  ======================================================================

Here ``out`` is the number of output elements, also for a transposed convolution. The paper's networks have batch norm,
LeakyReLU and plain average pooling only; their rules extend to the relatives in the table.
"""

from __future__ import annotations

import re
from math import prod

from ranp.running.recording import LAYER_KIND, NORM_KIND, LeafCall

CONVENTIONS = ("true", "paper", "equation")
FLOAT32 = 4
"""Bytes of an activation, as the paper counts them."""

_FREE = re.compile(
    r"ReLU6?|(Adaptive|Fractional)?MaxPool[123]d|MaxUnpool[123]d|(Feature)?(Alpha)?Dropout[123]?d?|Identity|Sequential"
    r"|Flatten|Unflatten|Upsample|Upsampling(Nearest|Bilinear)2d|\w+Pad[123]d|Pixel(Uns|S)huffle|ChannelShuffle"
    r"|Fold|Unfold|Embedding"
)
_ONE_PER_ELEMENT = re.compile(
    r"LeakyReLU|PReLU|RReLU|C?ELU|SELU|GELU|SiLU|Mish|GLU|Sigmoid|LogSigmoid|Tanh|Tanhshrink|Threshold"
    r"|Hard(tanh|swish|sigmoid|shrink)|Soft(plus|sign|shrink)"
)
_AVERAGE = re.compile(r"(Adaptive)?AvgPool[123]d|LPPool[123]d")
_SOFTMAX = re.compile(r"(Log)?Softmax|Softmax2d|Softmin")


def counts(kind: str) -> bool:
    """True if there is a rule for this kind of module, be it that it costs nothing."""
    rules = (LAYER_KIND, NORM_KIND, _FREE, _ONE_PER_ELEMENT, _AVERAGE, _SOFTMAX)
    return any(rule.fullmatch(kind) for rule in rules)


def call_macs(call: LeafCall) -> int:
    """Multiply-adds of one call of a convolution or linear layer, its bias left out; 0 for anything else."""
    return prod(call.output) * fan_in(call) if LAYER_KIND.fullmatch(call.kind) else 0


def call_flops(call: LeafCall, convention: str) -> int:
    """FLOPs of one call of a leaf module by the table of this module.

    Args:
        call: The call.
        convention: ``"paper"`` or ``"equation"``.
    """
    if is_softmax(call):
        # The tables leave out the size of the space that the softmax runs over, and so does this rule.
        return call.output[0] * (3 * call.output[1] - 1)
    by_fan, flat = rates(call, convention)
    return prod(call.output) * (by_fan * (fan_in(call) if by_fan else 0) + flat)


def rates(call: LeafCall, convention: str) -> tuple[int, int]:
    """``(a, b)`` such that an output element of the call costs ``a * fan_in + b``; a softmax has a rule of its own."""
    kind = call.kind
    if LAYER_KIND.fullmatch(kind):
        once = convention == "paper" and kind != "Linear"
        return (1, int(call.bias)) if once else (2, call.bias - 1)
    if NORM_KIND.fullmatch(kind):
        return 0, 4
    if _ONE_PER_ELEMENT.fullmatch(kind):
        return 0, 1
    if _AVERAGE.fullmatch(kind):
        return 0, prod(call.window) + 1
    return 0, 0


def is_softmax(call: LeafCall) -> bool:
    """True for a softmax over channels, whose cost is not one per output element."""
    return bool(_SOFTMAX.fullmatch(call.kind)) and len(call.output) > 1


def call_memory(call: LeafCall) -> int:
    """Elements of the first tensor that one call of a leaf module returns, in place or not."""
    return prod(call.output)


def fan_in(call: LeafCall) -> int:
    """Multiplications behind one output element, read off the weight."""
    if "Transpose" in call.kind:
        inputs, _, *kernel = call.weight
        return inputs // call.groups * prod(kernel)
    return prod(call.weight[1:])
