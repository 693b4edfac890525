"""Where the paper contradicts itself, or its authors' code; the figures stay as printed, the reader is told."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ERRATA", "Erratum"]


@dataclass(frozen=True, slots=True)
class Erratum:
    """Something printed that cannot be meant.

    Attributes:
        where: The table by its label, or ``"text"``.
        network: By our name; None for all of them.
        methods: Whose rows; empty for all of them.
        figure: A row's field or figure; that of a reduction is ``"params"``, ``"gflops"`` or ``"memory"``.
        printed: What the paper says.
        instead: What follows from the rest of it, or from the authors' code.
        reason: Why.
    """

    where: str
    network: str | None
    methods: tuple[str, ...]
    figure: str
    printed: str
    instead: str
    reason: str


ERRATA: tuple[Erratum, ...] = (
    Erratum("full_table", "unet3d-brats", ("layerwise",), "memory", "77.0", "76.9", "836.88 of 3628.00 MB"),
    Erratum("full_table", "unet3d-brats", ("ranp-f",), "memory", "80.0", "79.9", "729.11 of 3628.00 MB"),
    Erratum(
        "full_table", "unet3d-brats", ("weighted",), "params", "95.0", "94.9", "0.79 of 15.57 MB; a rounding before"
    ),
    Erratum(
        "full_table", "mobilenetv2-ucf101", ("snip",), "params", "61.3", "61.2", "3.67 of 9.47 MB; a rounding before"
    ),
    Erratum(
        "full_table", "psm-sceneflow", ("ranp-f",), "gflops", "53.0", "52.9", "362.77 of 771.02; a rounding before"
    ),
    Erratum(
        "full_table",
        "psm-sceneflow",
        (),
        "acc3",
        "Acc-2",
        "Acc-3",
        "the header alone says Acc-2; the text and the other table say Acc-3, with the same figures of two rows",
    ),
    Erratum(
        "full_table",
        "i3d-ucf101",
        ("random",),
        "top5_video",
        "second best",
        "weighted is second best",
        "79.05 is marked, 79.26 is larger",
    ),
    Erratum(
        "full_table",
        "psm-sceneflow",
        ("weighted",),
        "acc1",
        "second best",
        "snip is second best",
        "84.86 is marked, 84.98 is larger",
    ),
    Erratum(
        "full_table",
        "psm-sceneflow",
        ("weighted",),
        "acc3",
        "second best",
        "layerwise is second best",
        "93.67 is marked, 93.82 is larger",
    ),
    Erratum(
        "full_table",
        "psm-sceneflow",
        ("weighted",),
        "epe",
        "second best",
        "snip is second best",
        "1.56 is marked, 1.53 is smaller",
    ),
    Erratum(
        "neuron_importance_full",
        "psm-sceneflow",
        ("mnmg-sum",),
        "acc1",
        "second best",
        "mpmg-mean is second best",
        "85.24 is marked, 85.32 is larger",
    ),
    Erratum(
        "text",
        "unet3d-brats",
        (),
        "dice_et, dice_tc, dice_wt",
        "IoU",
        "Dice",
        "the authors' code computes Dice",
    ),
    Erratum(
        "text",
        "unet3d-shapenet",
        ("weighted",),
        "memory",
        "29.6",
        "25.7",
        "weighted pruning removes 69.8 % of the memory, vanilla 44.1 %; 29.6 is what RANP-f adds to vanilla",
    ),
    Erratum(
        "text",
        "unet3d-shapenet-23",
        ("full",),
        "memory_mb",
        "1005.96",
        "1005.97",
        "the sum of what the layers put out, counted as in every other row",
    ),
    Erratum(
        "text",
        "psm-sceneflow",
        ("ranp-f",),
        "epe",
        "0.3 pixels decrease",
        "0.3 pixels increase",
        "a smaller error would be a gain, and it stands among the losses",
    ),
    Erratum(
        "text",
        None,
        ("vanilla",),
        "memory_mb",
        "Glorot takes less memory than orthogonal on every network",
        "more on i3d-ucf101 and psm-sceneflow",
        "192.88 after 192.70 MB, 5947.86 after 5913.52 MB; the text excepts FLOPs only",
    ),
)
