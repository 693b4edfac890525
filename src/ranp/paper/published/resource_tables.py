"""Tables around resources: at equal resources, by part of PSM, by initialisation.

In the paper ``similar_resource``, ``2d_pruning`` and ``orthogonal``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from ranp.paper.published.rows import Initialised, Matched, Row, measured, row

Part = Literal["2d", "3d"]


def _matched(
    network: str,
    method: str,
    matched: Literal["gflops", "memory_mb"] | None,
    sparsity: float,
    resources: tuple[float, float, float],
    *figures: tuple[float, float],
) -> Matched:
    params, gflops, memory = resources
    return Matched(
        method=method,
        matched=matched,
        sparsity=sparsity,
        params_mb=params,
        gflops=gflops,
        memory_mb=memory,
        figures=measured(network, figures),
    )


def _initialised(sparsity: float, *rows: tuple[float, float, float]) -> tuple[Initialised, ...]:
    """The rows of one network in their order: full; vanilla, then RANP-f, each orthogonal before Glorot."""
    kinds: tuple[tuple[str, Literal["glorot", "orthogonal"] | None], ...] = (
        ("full", None),
        ("vanilla", "orthogonal"),
        ("vanilla", "glorot"),
        ("ranp-f", "orthogonal"),
        ("ranp-f", "glorot"),
    )
    return tuple(
        Initialised(
            method=method,
            init=init,
            sparsity=0 if method == "full" else sparsity,
            params_mb=params,
            gflops=gflops,
            memory_mb=memory,
        )
        for (method, init), (params, gflops, memory) in zip(kinds, rows, strict=True)
    )


# fmt: off
EQUAL_RESOURCES: Mapping[str, tuple[Matched, ...]] = MappingProxyType(
    {
        "unet3d-shapenet": (
            _matched("unet3d-shapenet", "random", "gflops", 81.01, (2.27, 7.54, 253.12), (82.66, 0.23)),
            _matched("unet3d-shapenet", "layerwise", "gflops", 82.82, (1.84, 7.54, 255.67), (82.82, 0.26)),
            _matched("unet3d-shapenet", "random", "memory_mb", 78.83, (2.87, 9.57, 262.66), (82.86, 0.45)),
            _matched("unet3d-shapenet", "layerwise", "memory_mb", 82.81, (1.94, 8.14, 262.66), (82.52, 0.13)),
            _matched("unet3d-shapenet", "ranp-f", None, 78.24, (2.94, 7.54, 262.66), (83.07, 0.22)),
        ),
        "unet3d-brats": (
            _matched("unet3d-brats", "random", "gflops", 81.08, (0.56, 16.97, 685.77),
                     (61.09, 1.87), (68.94, 2.44), (78.89, 2.47)),
            _matched("unet3d-brats", "layerwise", "gflops", 83.50, (0.46, 16.97, 700.64),
                     (70.50, 0.63), (74.27, 0.95), (83.63, 0.92)),
            _matched("unet3d-brats", "random", "memory_mb", 80.90, (0.57, 17.95, 729.11),
                     (68.45, 1.11), (70.67, 1.21), (75.02, 0.79)),
            _matched("unet3d-brats", "layerwise", "memory_mb", 82.45, (0.51, 17.31, 729.11),
                     (70.45, 1.03), (69.27, 1.95), (82.42, 0.68)),
            _matched("unet3d-brats", "ranp-f", None, 78.17, (0.76, 16.97, 729.11),
                     (70.73, 0.66), (74.50, 1.05), (85.45, 1.06)),
        ),
    }
)
# fmt: on

PSM_PARTS: Mapping[Part, tuple[Row, ...]] = MappingProxyType(
    {
        "2d": (
            row("psm-sceneflow", "full", 0, (12.74, 174.94, 1902.75)),
            row("psm-sceneflow", "snip", 90.66, (8.47, 119.89, 1674.26)),
            row("psm-sceneflow", "random", 46.20, (4.38, 60.62, 1135.57)),
            row("psm-sceneflow", "layerwise", 46.20, (3.84, 53.06, 1051.16)),
            row("psm-sceneflow", "ranp-f", 46.20, (4.09, 56.28, 1079.32)),
        ),
        "3d": (
            row("psm-sceneflow", "full", 0, (7.19, 596.08, 3595.50)),
            row("psm-sceneflow", "snip", 90.66, (2.63, 393.08, 3198.23)),
            row("psm-sceneflow", "random", 46.20, (3.75, 310.86, 2791.13)),
            row("psm-sceneflow", "layerwise", 46.20, (3.87, 325.99, 2843.16)),
            row("psm-sceneflow", "ranp-f", 46.20, (3.83, 306.49, 2697.61)),
        ),
    }
)
"""Convolutions, norms and pooling of each part; activations are in neither, so memory does not add up to the whole."""

INITIALISATION: Mapping[str, tuple[Initialised, ...]] = MappingProxyType(
    {
        "unet3d-shapenet": _initialised(
            70.53,
            (62.26, 237.85, 997.00),
            (4.40, 72.65, 630.00),
            (4.56, 73.22, 618.35),
            (5.40, 21.73, 366.29),
            (5.52, 15.06, 328.66),
        ),
        "unet3d-brats": _initialised(
            72.20,
            (15.57, 478.13, 3628.00),
            (0.95, 159.91, 2240.33),
            (0.92, 130.28, 2109.19),
            (1.24, 33.28, 967.56),
            (1.29, 23.31, 850.56),
        ),
        "mobilenetv2-ucf101": _initialised(
            30.21,
            (9.47, 0.58, 157.47),
            (6.80, 0.56, 155.71),
            (6.77, 0.55, 155.48),
            (5.12, 0.32, 105.88),
            (5.19, 0.28, 94.50),
        ),
        "i3d-ucf101": _initialised(
            24.24,
            (47.27, 27.88, 201.28),
            (30.56, 25.83, 192.70),
            (30.64, 25.85, 192.88),
            (27.39, 15.94, 144.10),
            (27.38, 14.63, 133.80),
        ),
        "psm-sceneflow": _initialised(
            36.76,
            (19.93, 771.02, 7217.37),
            (8.66, 485.98, 5913.52),
            (8.75, 486.92, 5947.86),
            (10.03, 422.34, 5332.72),
            (9.96, 420.77, 5313.30),
        ),
    }
)
"""All methods of a network at the smallest of their largest sparsities; nothing was trained."""
