"""Vanilla pruning by six criteria (the paper's table ``neuron_importance_full``), each at its largest sparsity."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from ranp.paper.published.rows import Row, row

_SHAPENET = partial(row, "unet3d-shapenet")
_BRATS = partial(row, "unet3d-brats")
_MOBILENET = partial(row, "mobilenetv2-ucf101")
_I3D = partial(row, "i3d-ucf101")
_PSM = partial(row, "psm-sceneflow")

CRITERIA: Mapping[str, tuple[Row, ...]] = MappingProxyType(
    {
        "unet3d-shapenet": (
            _SHAPENET("full", 0, (62.26, 237.85, 997.00), None, (83.79, 0.21)),
            _SHAPENET("mpmg-mean", 68.10, (5.08, 110.14, 819.97), None, (83.33, 0.18)),
            _SHAPENET("mpmg-max", 70.24, (4.54, 107.38, 809.88), None, (83.79, 0.10)),
            _SHAPENET("mpmg-sum", 78.24, (2.54, 55.69, 557.32), None, (83.26, 0.14)),
            _SHAPENET("mnmg-mean", 63.03, (4.23, 112.95, 834.98), None, (83.46, 0.13)),
            _SHAPENET("mnmg-max", 73.93, (3.67, 103.57, 796.44), None, (83.51, 0.08)),
            _SHAPENET("mnmg-sum", 66.93, (4.29, 100.34, 783.14), None, (83.65, 0.02)),
        ),
        "unet3d-brats": (
            _BRATS("full", 0, (15.57, 478.13, 3628.00), None, (72.96, 0.60), (73.51, 1.54), (86.79, 0.35)),
            _BRATS("mpmg-mean", 65.64, (1.48, 226.86, 3038.27), None, (73.51, 0.82), (73.28, 1.14), (87.15, 0.43)),
            _BRATS("mpmg-max", 75.78, (0.83, 189.43, 2812.53), None, (73.67, 0.98), (72.73, 1.70), (86.44, 0.71)),
            _BRATS("mpmg-sum", 78.17, (0.55, 104.50, 1936.44), None, (71.94, 1.68), (69.39, 2.29), (84.68, 0.78)),
            _BRATS("mnmg-mean", 63.85, (1.08, 176.76, 2790.64), None, (73.35, 0.70), (73.38, 0.94), (87.21, 0.38)),
            _BRATS("mnmg-max", 80.05, (0.59, 169.99, 2676.05), None, (72.52, 1.91), (72.40, 1.74), (84.63, 0.60)),
            _BRATS("mnmg-sum", 81.32, (0.35, 73.50, 1933.20), None, (64.48, 1.10), (68.47, 1.59), (80.71, 1.07)),
        ),
        "mobilenetv2-ucf101": (
            _MOBILENET("full", 0, (9.47, 0.58, 157.47), None, (47.08, 0.72), (76.68, 0.50)),
            _MOBILENET("mpmg-mean", 26.31, (4.39, 0.55, 156.00), None, (2.98, 0.14), (14.04, 0.14)),
            _MOBILENET("mpmg-max", 29.48, (3.96, 0.54, 155.38), None, (3.49, 0.12), (13.64, 0.10)),
            _MOBILENET("mpmg-sum", 33.15, (6.35, 0.55, 155.17), None, (46.32, 0.79), (75.42, 0.60)),
            _MOBILENET("mnmg-mean", 38.91, (2.79, 0.50, 147.69), None, (29.13, 0.92), (62.93, 1.37)),
            _MOBILENET("mnmg-max", 50.33, (2.59, 0.53, 153.45), None, (2.84, 0.06), (13.40, 0.23)),
            _MOBILENET("mnmg-sum", 39.89, (4.66, 0.43, 120.01), None, (1.03, 0.00), (5.76, 0.00)),
        ),
        "i3d-ucf101": (
            _I3D("full", 0, (47.27, 27.88, 201.28), None, (51.58, 1.86), (77.35, 0.63)),
            _I3D("mpmg-mean", 16.47, (31.57, 26.50, 196.51), None, (51.88, 2.00), (77.98, 1.46)),
            _I3D("mpmg-max", 19.83, (30.06, 26.31, 195.62), None, (52.44, 1.25), (78.08, 1.27)),
            _I3D("mpmg-sum", 25.32, (29.93, 25.76, 192.42), None, (51.57, 1.46), (78.07, 1.34)),
            _I3D("mnmg-mean", 35.36, (16.69, 15.37, 124.85), None, (49.26, 0.96), (75.70, 1.49)),
            _I3D("mnmg-max", 40.27, (17.86, 23.73, 184.77), None, (44.90, 1.19), (74.43, 1.26)),
            _I3D("mnmg-sum", 32.87, (20.00, 16.03, 125.17), None, (46.90, 1.26), (74.02, 1.25)),
        ),
        "psm-sceneflow": (
            _PSM("full", 0, (19.93, 771.02, 7217.37), None, (85.97, 0.70), (94.21, 0.33), (1.42, 0.07)),
            _PSM("mpmg-mean", 21.50, (13.50, 575.13, 6689.85), None, (85.32, 0.77), (93.71, 0.43), (1.53, 0.11)),
            _PSM("mpmg-max", 27.25, (11.61, 540.05, 6467.20), None, (84.84, 0.80), (93.65, 0.42), (1.56, 0.11)),
            _PSM("mpmg-sum", 20.92, (14.03, 571.21, 6663.24), None, (85.75, 0.48), (94.17, 0.25), (1.43, 0.06)),
            _PSM("mnmg-mean", 44.33, (6.00, 449.20, 5744.31), None, (85.04, 0.50), (93.07, 0.23), (1.54, 0.06)),
            _PSM("mnmg-max", 50.07, (6.85, 473.74, 5872.91), None, (85.11, 0.71), (93.69, 0.36), (1.53, 0.09)),
            _PSM("mnmg-sum", 46.20, (6.52, 452.25, 5653.44), None, (85.24, 0.77), (93.83, 0.41), (1.51, 0.09)),
        ),
    }
)

VANILLA: Mapping[str, str] = MappingProxyType(
    {
        "unet3d-shapenet": "mpmg-sum",
        "unet3d-brats": "mpmg-sum",
        "mobilenetv2-ucf101": "mpmg-sum",
        "i3d-ucf101": "mpmg-sum",
        "psm-sceneflow": "mnmg-sum",
    }
)
"""The criterion that the paper goes on with, and that its vanilla, weighted and RANP rows rest on."""
