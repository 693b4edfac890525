"""A slim network survives everything that is done to a network: copied, compiled, saved, loaded somewhere else."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import ranp
from tests.support import networks_to_reload as networks
from tests.support import processes

PROGRAM = """
import json, sys, torch, ranp
from safetensors.torch import load_file
from tests.support import networks_to_reload as networks
torch.manual_seed(12345)
folder, wrong = sys.argv[1], {}
for name in sys.argv[2:]:
    net = ranp.load(f"{folder}/{name}.safetensors", networks.BUILDS[name])
    kept = load_file(f"{folder}/{name}.kept")
    mine = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    bad = [key for key in mine if not torch.equal(mine[key], kept["tensor " + key])]
    if set(kept) != {"x", "y"} | {"tensor " + key for key in mine}:
        bad.append("names differ")
    if not torch.equal(net.eval()(kept["x"]), kept["y"]):
        bad.append("output differs")
    wrong[name] = bad
print(json.dumps(wrong))
"""


def slim(name: str) -> tuple[nn.Module, ranp.Plan]:
    """A slim network after a few steps of training, so that nothing is as it was built."""
    model, plan = _trained(name)
    return copy.deepcopy(model), plan


@functools.cache
def _trained(name: str) -> tuple[nn.Module, ranp.Plan]:
    torch.manual_seed(0)
    full = networks.BUILDS[name]()
    trace = ranp.trace(full, torch.randn(networks.EXAMPLE))
    scores = ranp.Scores({at.name: torch.rand(at.channels) for at in trace.layers})
    plan = ranp.select(scores, trace, sparsity=0.4 if trace.prunable else 0.0)
    model = ranp.slim(full, plan)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        model.train()(torch.randn(networks.EXAMPLE)).square().mean().backward()
        optimiser.step()
    optimiser.zero_grad()
    for _, buffer in model.named_buffers():
        buffer += 1
    return model, plan


def everything(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def test_a_fresh_process_loads_bit_equal_networks(tmp_path: Path) -> None:
    """All but MONAI's, which takes ten times as long to import: tests/journeys reloads one in another process."""
    removed, names = {}, [name for name in networks.BUILDS if name != "monai_unet"]
    for name in names:
        model, plan = slim(name)
        removed[name] = plan.sparsity.removed
        ranp.save(tmp_path / f"{name}.safetensors", model, plan)
        x = torch.randn(networks.EXAMPLE)
        kept = {f"tensor {key}": value.detach().clone() for key, value in everything(model).items()}
        save_file({**kept, "x": x, "y": model.eval()(x).detach()}, tmp_path / f"{name}.kept")
    assert {name for name, count in removed.items() if not count} <= {"unregistered"}
    environment = processes.environment()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: [] for name in names}


@pytest.mark.parametrize("name", networks.BUILDS)
def test_a_copy_and_a_state_dict_are_bit_equal(name: str) -> None:
    model, x = slim(name)[0].eval(), torch.randn(networks.EXAMPLE)
    expected = model(x)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x), expected)
    mine, theirs = everything(model), everything(twin)
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert not {id(t) for t in mine.values()} & {id(t) for t in theirs.values()}
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    assert twin.load_state_dict(model.state_dict()) == ([], [])
    assert torch.equal(twin(x), expected)


@pytest.mark.parametrize("name", ["paper_unet", "monai_unet", "shared_weights", "weight_norm"])
def test_compiling_changes_no_output(name: str) -> None:
    model, x = slim(name)[0].eval(), torch.randn(networks.EXAMPLE)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(copy.deepcopy(model), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), expected, rtol=1e-6, atol=1e-6)
    torch.compiler.reset()


@pytest.mark.slow
def test_a_compiled_network_trains_as_the_eager_one() -> None:
    model, x = slim("paper_unet")[0].double().train(), torch.randn(networks.EXAMPLE).double()
    twin = copy.deepcopy(model)
    model(x).square().mean().backward()
    torch.compile(twin, backend="aot_eager", fullgraph=True)(x).square().mean().backward()
    for (name, mine), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-9, msg=name)
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["paper_unet", "monai_unet"])
def test_the_default_compiler_agrees(name: str) -> None:
    model, x = slim(name)[0].eval(), torch.randn(networks.EXAMPLE)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(copy.deepcopy(model))(x), model(x), rtol=1e-4, atol=1e-5)
    torch.compiler.reset()
