"""One file, any weights, bit for bit; and everything that is not such a file is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import ranp
from ranp.choosing.plan import Plan, Sparsity
from ranp.errors import PlanMismatchError, StorageError, UnsupportedError
from ranp.paper import models
from ranp.paper.models import UNet3d
from ranp.slimming import storage
from tests.support import processes


def unet() -> nn.Module:
    return UNet3d(1, 3, widths=(8, 16))


def slim_unet(sparsity: float = 0.4) -> ranp.Pruned:
    torch.manual_seed(0)
    batches = [(torch.randn(2, 1, 8, 8, 8), None)]
    return ranp.prune(unet(), batches, no_loss, sparsity=sparsity, method="layerwise", criterion="magnitude")


def no_loss(output: Tensor, target: object) -> Tensor:
    raise AssertionError("nothing here needs gradients")


def whole(model: nn.Module) -> Plan:
    """A plan that removes nothing, for networks that are not slim at all."""
    channels = {name: m.out_features for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    total = sum(channels.values())
    return Plan({name: tuple(range(n)) for name, n in channels.items()}, channels, {}, Sparsity(0.0, 0, total, total))


def everything(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def assert_same(first: nn.Module, second: nn.Module) -> None:
    mine, theirs = everything(first), everything(second)
    assert list(mine) == list(theirs)
    for name in mine:
        assert mine[name].dtype == theirs[name].dtype, name
        assert torch.equal(mine[name].cpu(), theirs[name]), name
        assert isinstance(mine[name], nn.Parameter) == isinstance(theirs[name], nn.Parameter), name


def train_a_little(model: nn.Module, example: Tensor) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        model.train()(example).square().mean().backward()
        optimiser.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_trained_slim_network_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    result = slim_unet()
    train_a_little(result.model, torch.randn(2, 1, 8, 8, 8))
    model = result.model.to(dtype)
    ranp.save(tmp_path / "net.safetensors", model, result.plan)
    again = ranp.load(tmp_path / "net.safetensors", unet)
    assert_same(model, again)
    x = torch.randn(1, 1, 8, 8, 8).to(dtype)
    assert torch.equal(model.eval()(x), again.eval()(x))


def test_it_trains_on_after_loading(tmp_path: Path) -> None:
    result = slim_unet()
    ranp.save(tmp_path / "net.safetensors", result.model, result.plan)
    again = ranp.load(tmp_path / "net.safetensors", unet)
    example = torch.randn(2, 1, 8, 8, 8)
    train_a_little(result.model, example)
    train_a_little(again, example)
    assert_same(result.model, again)


def test_training_flags_and_frozen_parameters_come_back(tmp_path: Path) -> None:
    result = slim_unet()
    result.model.eval()
    result.model.encoders[0].train()
    result.model.head.requires_grad_(False)
    ranp.save(tmp_path / "net.safetensors", result.model, result.plan)
    again = ranp.load(tmp_path / "net.safetensors", unet)
    assert {n: m.training for n, m in again.named_modules()} == {n: m.training for n, m in result.model.named_modules()}
    assert {n: p.requires_grad for n, p in again.named_parameters()} == {
        n: p.requires_grad for n, p in result.model.named_parameters()
    }


class Tied(nn.Module):
    """Two layers share one weight, one module is called twice, a buffer is not in the state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6, bias=False)
        self.second = nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight
        self.again = self.first
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("grid", torch.linspace(0, 1, 6), persistent=False)
        self.register_buffer("nothing", torch.empty(0, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.again(x)) * self.grid


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    model = Tied()
    with torch.no_grad():
        model.grid += 1
    ranp.save(tmp_path / "net.safetensors", model, whole(model))
    assert sorted(load_file(tmp_path / "net.safetensors")) == ["first.weight", "grid", "nothing", "steps"]
    again = ranp.load(tmp_path / "net.safetensors", Tied)
    assert again.second.weight is again.first.weight is again.again.weight
    assert_same(model, again)
    x = torch.randn(2, 6)
    assert torch.equal(model(x), again(x))


def test_tensors_that_are_views_of_one_another(tmp_path: Path) -> None:
    model = nn.Linear(4, 4, bias=False)
    big = torch.randn(8, 8)
    model.weight = nn.Parameter(big.t()[2:6, 2:6])
    model.register_buffer("part", big[:2])
    ranp.save(tmp_path / "net.safetensors", model, whole(model))

    def build() -> nn.Module:
        empty = nn.Linear(4, 4, bias=False)
        empty.register_buffer("part", torch.zeros(2, 8))
        return empty

    assert_same(model, ranp.load(tmp_path / "net.safetensors", build))


def test_the_full_network_is_never_allocated(tmp_path: Path) -> None:
    result = slim_unet()
    ranp.save(tmp_path / "net.safetensors", result.model, result.plan)
    devices: list[str] = []

    def build() -> nn.Module:
        model = unet()
        devices.append(next(model.parameters()).device.type)
        return model

    ranp.load(tmp_path / "net.safetensors", build)
    assert devices == ["meta"]


class Constant(nn.Module):
    """Holds a tensor that is neither parameter nor buffer: only a real build gives it values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.scale = torch.arange(3.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Reader(nn.Module):
    """Asks for the value of a tensor while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, int(torch.full((1,), 3.0).item()))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize("build", [Constant, Reader])
def test_what_cannot_be_built_without_data_is_built_for_real(tmp_path: Path, build: Callable[[], nn.Module]) -> None:
    model = build()
    ranp.save(tmp_path / "net.safetensors", model, whole(model))
    again = ranp.load(tmp_path / "net.safetensors", build)
    x = torch.randn(2, 3)
    assert torch.equal(model(x), again(x))


@pytest.mark.parametrize("build", [unet, Reader])
def test_loading_leaves_the_random_state_alone(tmp_path: Path, build: Callable[[], nn.Module]) -> None:
    if build is unet:
        result = slim_unet()
        ranp.save(tmp_path / "net.safetensors", result.model, result.plan)
    else:
        model = build()
        ranp.save(tmp_path / "net.safetensors", model, whole(model))
    before = torch.get_rng_state()
    ranp.load(tmp_path / "net.safetensors", build)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_plan_for_fifty_classes_saved_with_three(tmp_path: Path) -> None:
    result = slim_unet()
    other = ranp.slim(UNet3d(2, 7, widths=(8, 16)), result.plan)
    ranp.save(tmp_path / "net.safetensors", other, result.plan)
    assert_same(other, ranp.load(tmp_path / "net.safetensors", lambda: UNet3d(2, 7, widths=(8, 16))))
    with pytest.raises(PlanMismatchError, match=r"shape \(.*\) in the file"):
        ranp.load(tmp_path / "net.safetensors", unet)


def test_a_plan_transferred_to_another_input_size_needs_an_example(tmp_path: Path) -> None:
    def build(size: int) -> nn.Module:
        layers = [nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * size**3, 2)]
        return nn.Sequential(*layers)

    small, large = torch.randn(2, 1, 3, 3, 3), torch.randn(2, 1, 4, 4, 4)
    plan = ranp.prune(build(3), [(small, None)], no_loss, sparsity=0.5, method="random").plan
    model = ranp.slim(build(4), plan, example=large)
    ranp.save(tmp_path / "net.safetensors", model, plan)
    with pytest.raises(PlanMismatchError, match="pass example="):
        ranp.load(tmp_path / "net.safetensors", lambda: build(4))
    assert_same(model, ranp.load(tmp_path / "net.safetensors", lambda: build(4), example=large))


def test_metadata_and_plan_are_read_without_the_tensors(tmp_path: Path) -> None:
    result = slim_unet()
    path = tmp_path / "net.safetensors"
    ranp.save(path, result.model, result.plan, accuracy=0.87, labels=["a", "b"], path_of_data="x", unicode="é")
    assert storage.metadata(path) == {"accuracy": 0.87, "labels": ["a", "b"], "path_of_data": "x", "unicode": "é"}
    assert storage.plan_of(path) == result.plan


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, torch.zeros(1)])
def test_metadata_that_json_cannot_say_is_refused_and_nothing_is_written(tmp_path: Path, value: object) -> None:
    result = slim_unet()
    with pytest.raises(StorageError, match="metadata is not plain JSON"):
        ranp.save(tmp_path / "net.safetensors", result.model, result.plan, value=value)
    assert not list(tmp_path.iterdir())


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    result = slim_unet(0.8)
    path = tmp_path / "net.safetensors"
    ranp.save(path, result.model, result.plan, note="n")
    data = path.read_bytes()
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(len(data), (60,), generator=generator).tolist()
    for place in [*range(9), *places, len(data) - 1]:
        changed = bytearray(data)
        changed[place] ^= 0x10
        path.write_bytes(bytes(changed))
        with pytest.raises((StorageError, PlanMismatchError)):
            ranp.load(path, unet)
    path.write_bytes(data)
    ranp.load(path, unet)


@pytest.mark.parametrize("length", [0, 4, 8, 100, -1])
def test_a_torn_file_is_refused(tmp_path: Path, length: int) -> None:
    result = slim_unet()
    path = tmp_path / "net.safetensors"
    ranp.save(path, result.model, result.plan)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StorageError, match="torn"):
        ranp.load(path, unet)


def test_tampering_that_keeps_the_format_is_refused(tmp_path: Path) -> None:
    """A tensor, the plan or the metadata is replaced and the file written anew by safetensors itself."""
    from safetensors import safe_open

    result = slim_unet()
    path = tmp_path / "net.safetensors"
    ranp.save(path, result.model, result.plan, author="me")
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    tensors = load_file(path)
    other = dict(tensors)
    other["head.bias"] = other["head.bias"] + 1
    fewer = {name: tensor for name, tensor in tensors.items() if name != "head.bias"}
    for changed, told in (
        (other, header),
        (fewer, header),
        (tensors, {**header, "plan": header["plan"].replace("layerwise", "ranp-f")}),
        (tensors, {**header, "metadata": json.dumps({"author": "you"})}),
    ):
        save_file(changed, path, told)
        with pytest.raises(StorageError, match="was changed since it was written"):
            ranp.load(path, unet)
        if told is not header:
            with pytest.raises(StorageError, match="was changed since it was written"):
                storage.metadata(path)
    save_file(tensors, path, header)
    ranp.load(path, unet)


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    with pytest.raises(StorageError, match="no such file"):
        ranp.load(path, unet)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(StorageError, match=r"ranp\.save did not write it"):
        ranp.load(path, unet)
    torch.save({"x": torch.zeros(2)}, path)
    with pytest.raises(StorageError, match="not a safetensors file"):
        ranp.load(path, unet)
    with pytest.raises(StorageError, match="no such file"):
        storage.metadata(tmp_path)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    from safetensors import safe_open

    result = slim_unet()
    path = tmp_path / "net.safetensors"
    ranp.save(path, result.model, result.plan)
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    save_file(load_file(path), path, {**header, "version": "99"})
    with pytest.raises(StorageError, match="version '99'"):
        ranp.load(path, unet)


def test_another_network_is_refused(tmp_path: Path) -> None:
    result = slim_unet()
    path = tmp_path / "net.safetensors"
    ranp.save(path, result.model, result.plan)
    with pytest.raises(PlanMismatchError):
        ranp.load(path, lambda: UNet3d(1, 3, widths=(8, 32)))
    with pytest.raises(PlanMismatchError, match="does not have"):
        ranp.load(path, lambda: nn.Linear(2, 2))
    with pytest.raises(UnsupportedError, match="int"):
        ranp.load(path, lambda: 3)  # type: ignore[arg-type, return-value]

    def with_more() -> nn.Module:
        model = unet()
        model.extra = nn.Linear(2, 2)
        return model

    with pytest.raises(PlanMismatchError, match="only the network has 'extra"):
        ranp.load(path, with_more)


def test_a_network_without_data_is_not_saved(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(StorageError, match="holds no data"):
        ranp.save(tmp_path / "net.safetensors", model, whole(model))


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    result = slim_unet()
    path = tmp_path / "net.safetensors"
    ranp.save(path, result.model, result.plan, number=1)
    with pytest.raises(StorageError):
        ranp.save(path, result.model, result.plan, number=float("inf"))
    assert storage.metadata(path) == {"number": 1}
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_networks_of_the_paper_are_known_by_name(tmp_path: Path) -> None:
    assert set(models.names()) <= set(storage.NETWORKS)
    model = models.build("mobilenetv2-ucf101")
    trace = ranp.trace(model, torch.empty(1, 3, 8, 32, 32, device="meta"))
    plan = ranp.select(ranp.score(model, [], no_loss, trace=trace, criterion="random"), trace, sparsity=0.3)
    slim = ranp.slim(model, plan)
    ranp.save(tmp_path / "net.safetensors", slim, plan)
    assert_same(slim, ranp.load(tmp_path / "net.safetensors", "mobilenetv2-ucf101"))
    with pytest.raises(UnsupportedError, match="did you mean 'mobilenetv2-ucf101'"):
        ranp.load(tmp_path / "net.safetensors", "mobilenetv2-ucf10")


def test_wrapped_networks_are_unwrapped(tmp_path: Path) -> None:
    result = slim_unet()
    ranp.save(tmp_path / "net.safetensors", nn.DataParallel(result.model), result.plan)
    assert_same(result.model, ranp.load(tmp_path / "net.safetensors", unet))


def test_a_fresh_process_gets_the_same_outputs(tmp_path: Path) -> None:
    result = slim_unet()
    train_a_little(result.model, torch.randn(2, 1, 8, 8, 8))
    x = torch.randn(1, 1, 8, 8, 8)
    ranp.save(tmp_path / "net.safetensors", result.model, result.plan, who="me")
    save_file({"x": x, "y": result.model.eval()(x).detach()}, tmp_path / "pair.safetensors")
    program = textwrap.dedent(
        """
        import sys, torch, ranp
        from safetensors.torch import load_file
        from ranp.slimming import storage
        from ranp.paper.models import UNet3d
        pair = load_file(sys.argv[2])
        net = ranp.load(sys.argv[1], lambda: UNet3d(1, 3, widths=(8, 16)))
        assert storage.metadata(sys.argv[1]) == {"who": "me"}
        assert torch.equal(net.eval()(pair["x"]), pair["y"])
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path / "net.safetensors"), str(tmp_path / "pair.safetensors")]
    environment = processes.environment()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
