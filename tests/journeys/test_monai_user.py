"""A MONAI user whose U-Net does not fit: real scans, a budget, training, whole volumes, and away with the network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import ranp
from tests.support.processes import environment
from tests.support.real_data import real_data

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning:monai")]
HERE = Path(__file__).parent


def test_a_unet_that_does_not_fit_is_made_to_fit_trained_and_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRATS", str(real_data("brats2015")))
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.chdir(tmp_path)
    import monai_project
    from monai.inferers import sliding_window_inference
    from monai.metrics import DiceMetric
    from monai.utils import set_determinism

    from ranp.integrations.monai import pairs

    set_determinism(0)
    held_out, *cases = monai_project.volumes()
    loader = monai_project.loader(cases)

    pruned = ranp.prune(
        monai_project.model(),
        pairs(loader),
        monai_project.loss,
        budget="train-memory=75%",
        init="glorot",
        max_batches=4,
    )
    full, slim = pruned.training_memory()
    assert slim.peak <= 0.75 * full.peak
    assert pruned.verification.ok

    network = pruned.model
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    losses = []
    for _ in range(25):
        for batch in loader:
            optimiser.zero_grad()
            loss = monai_project.loss(network(batch["image"]), batch["label"])
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])

    network.eval()
    with torch.no_grad():
        output = sliding_window_inference(held_out["image"][None], (32, 32, 32), 4, network, overlap=0.25)
    assert output.shape[2:] == held_out["label"].shape[1:]
    dice = DiceMetric()(output.argmax(1, keepdim=True), held_out["label"][None]).item()
    everywhere = DiceMetric()(torch.ones_like(output[:, :1]), held_out["label"][None]).item()
    assert dice > 2 * everywhere  # it found something of the tumour of a patient it never saw

    ranp.save("slim.safetensors", network, pruned.plan, dice=dice)
    done = subprocess.run(
        [sys.executable, str(HERE / "reload.py"), "expected.safetensors"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("off by")[1]) < 1e-4
    example = torch.randn(1, 2, 32, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(load_file("expected.safetensors")["output"], network(example), atol=1e-5)
