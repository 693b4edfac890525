"""A study small enough to check by hand: three layers, two methods, one of which fails early."""

from __future__ import annotations

from ranp.reporting.study import LayerStudy, Step, Study, Sweep

LAYERS = (
    LayerStudy(
        "stem",
        "conv",
        4,
        4_000_000,
        400_000,
        {"raw": (1.0, 2.0, 3.0, 4.0), "balanced": (0.5, 1.0, 1.5, 2.0), "reweighted": (0.5, 0.9, 1.4, 1.9)},
        (2, 3),
        "",
    ),
    LayerStudy(
        "body.0.conv",
        "conv",
        2,
        2_000_000,
        100_000,
        {"raw": (0.0, 0.1), "balanced": (0.0, 2.5), "reweighted": (0.0, 2.4)},
        (1,),
        "",
    ),
    LayerStudy(
        "head",
        "linear",
        2,
        10_000,
        2,
        {"raw": (7.0, 9.0), "balanced": (1.0, 1.5), "reweighted": (1.0, 1.5)},
        (0, 1),
        "output",
    ),
)
STUDY = Study(
    layers=LAYERS,
    groups=(("stem", "body.0.conv"),),
    sweeps=(
        Sweep(
            "ranp-f",
            0.5,
            (
                Step(0.0, True, (4, 2, 2), 0.0, 1234, 6_010_000, 500_002),
                Step(0.25, True, (3, 1, 2), 0.25, 777, 3_210_000, 350_002),
                Step(0.5, True, (2, 1, 2), 0.375, 555, 1_510_000, 250_002),
                Step(0.75, False),
                Step(0.99, False),
            ),
        ),
        Sweep(
            "vanilla",
            0.26,
            (
                Step(0.0, True, (4, 2, 2), 0.0, 1234, 6_010_000, 500_002),
                Step(0.26, True, (4, 1, 2), 0.125, 999, 5_010_000, 450_002),
                Step(0.99, False),
            ),
        ),
    ),
    method="ranp-f",
    strength=11.0,
    criterion="mpmg-sum",
)
