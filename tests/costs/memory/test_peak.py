"""The predicted peak against arithmetic on made-up steps, and against what PyTorch's allocator reports of real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from benchmarks.judges import saved_bytes
from ranp.costs.memory import Footprint, kept_bytes, measured_peak, peak, training_memory
from ranp.costs.step import Call, Sized, StepTrace, Storage, TrainingStep, trace_step
from ranp.costs.step.cpu import Cpu, this_cpu
from ranp.errors import UnsupportedError
from tests.support.training_networks import NETWORKS, network

EXACT = 0.01
ROUGH = 0.5
"""Of bfloat16 where the CPU has AMX, of whose kernels nothing is known; ``make hardware`` runs without it."""
PARTS = ("parameters", "gradients", "state", "inputs", "activations", "transient")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """As many as the environment says, up to the two for which rules were checked."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)


def call(op: str = "aten.relu.default") -> Call:
    size = Sized((1,), torch.float32)
    return Call(op, (size,), (size,), '[["T"]]', "backward", "somewhere")


def storage(elements: int, kind: str, born: int, dies: int) -> Storage:
    return Storage((elements,), torch.float32, kind, born, dies, "")


def test_is_the_largest_sum_of_what_lives_together() -> None:
    storages = (
        storage(10, "parameter", -1, 4),
        storage(7, "input", -1, 4),
        storage(100, "activation", 0, 1),
        storage(60, "activation", 1, 2),
        storage(90, "temporary", 2, 3),
        storage(10, "gradient", 3, 4),
    )
    found = peak(StepTrace(tuple(call() for _ in range(4)), storages, TrainingStep()))
    assert found.peak == 4 * (10 + 7 + 100 + 60)
    assert (found.parameters, found.inputs, found.activations, found.transient) == (40, 28, 640, 0)
    assert (found.phase, found.op, found.module) == ("backward", "aten.relu.default", "somewhere")


def test_against_a_sum_over_every_moment() -> None:
    model, x = network("unet")
    seen = trace_step(model, x)
    from ranp.costs.memory.transients import transient

    sums = []
    for index, one in enumerate(seen.calls):
        alive = sum(s.bytes for s in seen.storages if s.born <= index <= s.dies)
        sums.append(alive + transient(one))
    assert peak(seen).peak == max(sums)


def test_cuda_rounds_every_storage_up() -> None:
    storages = (storage(1, "parameter", -1, 1), storage(129, "activation", 0, 1))
    assert peak(StepTrace((call(),), storages, TrainingStep(), "cuda")).peak == 512 + 1024


def test_nothing_runs_and_nothing_lives() -> None:
    assert peak(StepTrace((), (), None)).peak == 0
    assert "nothing" in str(peak(StepTrace((), (), None)))


def parts_of(found: Footprint) -> dict[str, int]:
    return {part: getattr(found, part) for part in PARTS}


ON_EVERY_CPU = (
    TrainingStep(),
    TrainingStep(optimiser="sgd", batch=1),
    TrainingStep(optimiser="sgd", precision="amp-bfloat16"),
    TrainingStep(optimiser="none", precision="bfloat16"),
)
"""Steps whose kernels depend on the CPU."""
OTHERS = (
    TrainingStep(optimiser="momentum", batch=4),
    TrainingStep(optimiser="nesterov"),
    TrainingStep(optimiser="amsgrad"),
    TrainingStep(optimiser="rmsprop", precision="float64"),
    TrainingStep(optimiser="adamw", checkpointing=True),
)
"""Steps that differ by what follows from the parameters alone: one network tells, the others are for the slow run."""


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *(pytest.param(name, step, marks=pytest.mark.hardware) for step in ON_EVERY_CPU for name in NETWORKS),
        *(
            pytest.param(name, step, marks=() if name == "unet" else pytest.mark.slow)
            for step in OTHERS
            for name in NETWORKS
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.optimiser}-{value.precision}-{value.batch}",
)
def test_is_what_the_allocator_reports(name: str, step: TrainingStep) -> None:
    model, x = network(name)
    found = training_memory(model, x, step=step)
    measured = measured_peak(model, x, step=step)
    unknown = found.is_estimate and this_cpu().level == "other" and "bfloat16" in step.precision
    within = ROUGH if unknown else 0.05 if step.checkpointing else EXACT
    assert found.peak == pytest.approx(measured, rel=within, abs=40_000)
    assert sum(parts_of(found).values()) == found.peak
    assert min(parts_of(found).values()) >= 0
    assert found.parameters == sum(p.numel() for p in model.parameters()) * (
        {"float64": 8, "bfloat16": 2}.get(step.precision, 4)
    )


@pytest.mark.hardware
def test_own_loss_and_target_are_counted() -> None:
    model, x = network("residual")
    target = torch.zeros(1, 2, 12, 12, 12)

    def loss(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(output, wanted)

    found = training_memory(model, x, loss=loss, target=target)
    assert found.peak == pytest.approx(measured_peak(model, x, loss=loss, target=target), rel=EXACT)


def test_grows_with_the_batch_and_shrinks_with_checkpoints() -> None:
    model, x = network("unet")
    # From two on: torch convolves a batch of one by kernels of its own, which may take more than two samples of oneDNN.
    sizes = [training_memory(model, x, step=TrainingStep(batch=batch)).peak for batch in (2, 3, 5, 8)]
    assert sizes == sorted(set(sizes))
    deep = nn.Sequential(*(nn.Sequential(nn.Conv3d(16, 16, 3, padding=1), nn.Sigmoid(), nn.Tanh()) for _ in range(8)))
    x = torch.empty(2, 16, 16, 16, 16, device="meta")
    plain, thrifty = (training_memory(deep, x, step=TrainingStep(checkpointing=yes)) for yes in (False, True))
    assert thrifty.peak < 0.75 * plain.peak
    assert thrifty.activations < plain.activations


def test_optimisers_cost_what_they_keep() -> None:
    model, x = network("residual")
    states = {
        name: training_memory(model, x, step=TrainingStep(optimiser=name)).state for name in ("sgd", "momentum", "adam")
    }
    size = sum(p.nbytes for p in model.parameters())
    counters = 4 * len(list(model.parameters()))
    assert states == {"sgd": 0, "momentum": size, "adam": 2 * size + counters}


def test_a_step_without_data_allocates_nothing_of_its_size() -> None:
    model = nn.Sequential(nn.Conv3d(1, 64, 3, padding=1, device="meta"), nn.ReLU(), nn.Conv3d(64, 2, 1, device="meta"))
    found = training_memory(model, torch.empty(8, 1, 512, 512, 512, device="meta"))
    assert found.peak > 8 * 64 * 512**3 * 4  # half a terabyte


def test_prints_its_parts() -> None:
    model, x = network("unet")
    text = str(training_memory(model, x))
    assert all(part in text for part in ("peak", *PARTS))
    assert "MiB" in text


def test_says_that_it_is_an_estimate() -> None:
    model, x = network("unet")
    seen = trace_step(model, x)
    for isa in ("avx2", "avx512"):
        known = peak(seen, cpu=Cpu(isa))
        assert not known.is_estimate
        assert "estimate" not in str(known)
    rough = peak(seen, cpu=Cpu("other"))
    assert rough.is_estimate
    assert "estimate" in str(rough)
    assert peak(StepTrace((), (), None, "cuda")).is_estimate


def test_is_that_of_the_cpu_asked_for() -> None:
    model = nn.Sequential(nn.Conv3d(1, 17, 3), nn.Conv3d(17, 17, 3))
    seen = trace_step(model, torch.empty(2, 1, 24, 24, 24, device="meta"))
    narrow, wide = (peak(seen, cpu=Cpu(isa)).peak for isa in ("avx2", "avx512"))
    assert narrow < wide  # 17 channels take the room of 24, or of 32


def test_needs_a_step() -> None:
    model, x = network("unet")
    with pytest.raises(UnsupportedError, match=r"step=None is not allowed. Pass a ranp.TrainingStep"):
        training_memory(model, x, step=None)  # type: ignore[arg-type]


@pytest.mark.hardware
@pytest.mark.parametrize(("into", "out", "batch"), [(56, 1, 1), (33, 2, 1), (33, 2, 2), (8, 8, 1)])
def test_room_that_a_transposed_kernel_leaves_unused_is_held_until_the_end(into: int, out: int, batch: int) -> None:
    net = nn.Sequential(
        nn.Conv3d(1, into, 3, padding=1),
        nn.ConvTranspose3d(into, out, 3, stride=2, padding=1, output_padding=1),
        nn.InstanceNorm3d(out),
        nn.Conv3d(out, 2, 1),
    )
    x = torch.randn(batch, 1, 9, 9, 9)
    # Threads that share sums of weight gradients take a little more.
    assert peak(trace_step(net, x)).peak == pytest.approx(measured_peak(net, x), rel=0.02)
    assert kept_bytes(trace_step(net, x, step=None, training=True)) == saved_bytes(net, x)
