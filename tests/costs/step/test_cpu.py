"""What torch says of the CPU, against what oneDNN logs that it runs."""

from __future__ import annotations

import pytest
import torch

from ranp.costs.step.cpu import Cpu, this_cpu


def kernel_that_runs(capfd: pytest.CaptureFixture[str], dtype: torch.dtype = torch.float32) -> str:
    """The name of the kernel of a convolution, as oneDNN's verbose log has it."""
    x, weight = torch.zeros(2, 64, 16, 16, 16, dtype=dtype), torch.zeros(64, 64, 3, 3, 3, dtype=dtype)
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        torch.nn.functional.conv3d(x, weight, padding=1)
    lines = [line.split(",") for line in capfd.readouterr().out.splitlines()]
    return next(parts[6] for parts in lines if "exec" in parts and "convolution" in parts)


@pytest.mark.hardware
def test_names_the_instructions_that_onednn_uses(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_that_runs(capfd)
    named = next((isa for isa in ("avx512", "avx2") if isa in kernel), "other")
    assert this_cpu().isa == named


@pytest.mark.hardware
def test_names_the_instructions_for_16_bits(capfd: pytest.CaptureFixture[str]) -> None:
    cpu = this_cpu()
    if cpu.isa != "avx512" or torch.bfloat16 not in cpu.halves:
        assert cpu.level == "core"
        return
    instructions = kernel_that_runs(capfd, torch.bfloat16).split(":")[1]
    assert cpu.level == {"avx512_core": "core", "avx512_core_bf16": "bf16"}.get(instructions, "other")


@pytest.mark.hardware
def test_answers_without_data_too() -> None:
    from torch._subclasses import FakeTensorMode

    from ranp.costs.step.cpu import _isa, _level

    plain = this_cpu()
    _isa.cache_clear()
    _level.cache_clear()
    with FakeTensorMode():
        assert this_cpu() == plain


def test_goes_by_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert this_cpu().threads == threads
    finally:
        torch.set_num_threads(before)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert this_cpu().isa == "none"


def test_registers_hold_as_many_numbers_as_they_do() -> None:
    assert {isa: Cpu(isa).block for isa in ("avx512", "avx2", "other", "none")} == {
        "avx512": 16,
        "avx2": 8,
        "other": 8,
        "none": 8,
    }
