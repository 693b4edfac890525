"""Tables around the 23-layer network: transfer between data sets, and training on a single GPU.

In the paper ``transfer`` and ``single_GPU``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ranp.paper.published.rows import OnGpus, Transferred, measured

_SHAPENET, _BRATS = "unet3d-shapenet-23", "unet3d-brats-23"


def _transferred(network: str, method: str, pruned_on: str | None, *figures: tuple[float, float]) -> Transferred:
    return Transferred(method=method, pruned_on=pruned_on, figures=measured(network, figures))


TRANSFER: Mapping[str, tuple[Transferred, ...]] = MappingProxyType(
    {
        _SHAPENET: (
            _transferred(_SHAPENET, "full", None, (84.27, 0.21)),
            _transferred(_SHAPENET, "ranp-f", _SHAPENET, (83.86, 0.15)),
            _transferred(_SHAPENET, "ranp-f", _BRATS, (83.25, 0.17)),
        ),
        _BRATS: (
            _transferred(_BRATS, "full", None, (74.04, 1.45), (75.11, 2.43), (84.49, 0.74)),
            _transferred(_BRATS, "ranp-f", _BRATS, (71.13, 1.43), (72.40, 1.48), (83.32, 0.62)),
            _transferred(_BRATS, "ranp-f", _SHAPENET, (72.74, 0.69), (73.25, 1.69), (85.22, 0.57)),
        ),
    }
)
"""By the network that is trained. The table prints no sparsity; the text says 80 %."""


def _on_gpus(network: str, method: str, layers: int, gpus: int, sparsity: float, miou: tuple[float, float]) -> OnGpus:
    return OnGpus(
        network=network,
        method=method,
        layers=layers,
        batch=12,
        gpus=gpus,
        sparsity=sparsity,
        figures=measured(network, [miou]),
    )


SINGLE_GPU: tuple[OnGpus, ...] = (
    _on_gpus("unet3d-shapenet", "full", 15, 2, 0, (83.79, 0.21)),
    _on_gpus(_SHAPENET, "full", 23, 2, 0, (84.27, 0.21)),
    _on_gpus(_SHAPENET, "ranp-f", 23, 1, 80, (84.34, 0.21)),
)
