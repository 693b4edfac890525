"""``ranp.score`` against plain training steps on the same network and batches: time and peak memory."""

from __future__ import annotations

import torch

import ranp
from benchmarks.networks import Case, segresnet, train_step
from benchmarks.pairs import measure_pairs, peak_bytes, table
from ranp.paper import models

PAIRS = 15
BATCHES = 4
"""Batches in one round. ``ranp.score`` copies the network once per call, a fixed cost that these share."""


def cases(quick: bool) -> list[Case]:
    widths = (8, 16, 32) if quick else (32, 64, 128, 256)
    cube = (1, 1, *[16 if quick else 32] * 3)
    clip = (2, 3, 8, 32, 32) if quick else (1, 3, 16, 112, 112)
    return [
        Case("3D-UNet, half width", lambda: models.build("unet3d-shapenet", widths=widths), (cube,), classes=50),
        Case("MobileNetV2-3D", lambda: models.build("mobilenetv2-ucf101"), (clip,), "clip", 101),
        Case("SegResNet (MONAI)", lambda: segresnet(8 if quick else 16), (cube,)),
    ]


def compare(case: Case, count: int) -> tuple[object, ...]:
    model = case.build().train()
    batches = [case.batch(seed) for seed in range(BATCHES)]
    trace = ranp.trace(model, batches[0][0])
    trained = case.build().train()
    optimiser = torch.optim.SGD(trained.parameters(), lr=1e-6)

    def score() -> object:
        return ranp.score(model, batches, case.loss, trace=trace)

    def train() -> None:
        for batch in batches:
            train_step(trained, optimiser, case, batch)
        optimiser.zero_grad(set_to_none=True)

    pairs = measure_pairs(score, train, count)
    ours, theirs = peak_bytes(score), peak_bytes(train)
    peaks = f"{ours / 2**20:.1f} / {theirs / 2**20:.1f} = {ours / theirs:.3f}"
    return case.name, case.size, pairs.ratio, pairs.work_ratio, pairs.count, peaks


def run(*, quick: bool) -> None:
    rows = [compare(case, 3 if quick else PAIRS) for case in cases(quick)]
    header = ("network", "batch", "time", "CPU time", "pairs", "peak MB")
    notes = (
        "Score over plain step (forward, backward, SGD), per batch: median (quartiles; extremes) of interleaved pairs.",
        f"One round is {BATCHES} batches. The copy of the network that `ranp.score` makes in every call is inside its "
        "time and memory; the trace, which `ranp.prune` needs anyway, is made before.",
        "Peak: torch's allocator events, above what was held before the round (weights and batches).",
    )
    print(table("Scoring against a training step", header, rows, notes))
