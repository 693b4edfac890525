"""Arms beyond the package's methods: rules that might be better, and controls that must not be.

A model function that imports this module makes them known by name to ``ranp compare``.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import torch
from torch import Tensor

import ranp
from benchmarks.evidence.fitted import parts
from ranp.choosing.coupling import Coupling
from ranp.choosing.methods import Method, register
from ranp.choosing.widths import fair, in_proportion, places, worths
from ranp.tracing.layout import Floats

PHI = 0.75
FITTED = {"down-0": 4.083, "down-1": 3.404, "down-2": 0.0, "up-2": 0.0, "up-1": 0.0, "up-0": 17.205}
"""What ``python -m benchmarks.evidence.fitted`` printed of 32 random vectors of widths on ``shapes16``."""


def _floored(coupling: Coupling, _prices: Floats) -> Floats:
    """At least ``PHI`` of what flat widths would be; above that, as the scores rank channels over the network."""
    place, rank = places(coupling), np.empty(len(coupling.score), int)
    rank[np.argsort(-coupling.score, kind="stable")] = np.arange(len(rank))
    return np.maximum(PHI, place / np.sort(place)[rank])


def _noise(weight: Tensor, gradient: Tensor) -> Tensor:
    """Scores of the layer's own spread, handed to its channels blindly."""
    score = (weight * gradient).abs().flatten(1).sum(1)
    spread = score.log().std() if len(score) > 1 else torch.zeros(())
    generator = torch.Generator().manual_seed(int(1e6 * weight.double().abs().sum()) % 2**31)
    return score.mean() * torch.exp(spread * torch.randn(len(score), generator=generator))


noise = ranp.Criterion("noise", _noise)


def _fitted(trace: ranp.Trace) -> dict[str, float]:
    """What one channel of each layer is worth by ``FITTED``; no part is worth less than a hundredth of the largest."""
    where = parts(trace)
    sizes, least = Counter(where.values()), max(FITTED.values()) / 100
    return {layer: max(FITTED.get(part, 0.0), least) / sizes[part] for layer, part in where.items()}


register(
    Method(
        "floored", balance=True, resource="flops", scope=in_proportion("floored", _floored),
        description="RANP-f with three quarters of flat widths as a floor",
    )
)  # fmt: skip
register(
    Method(
        "fitted", balance=True, scope=in_proportion("fitted", fair(_fitted, 2.0), priced=True),
        description="widths fitted to what random ones reached",
    )
)  # fmt: skip
for _name, _alpha, _kappa in (("fair-2", 2.0, 0.5), ("fair-8", 8.0, 0.5), ("fair-k0", 4.0, 0.0), ("fair-k1", 4.0, 1.0)):
    register(
        Method(
            _name, balance=True, scope=in_proportion(_name, fair(partial(worths, kappa=_kappa), _alpha), priced=True),
            description=f"balanced with alpha {_alpha:g} and kappa {_kappa:g}",
        )
    )  # fmt: skip
