"""What is exported computes the same at every size it claims to take, and a failure leaves nothing behind."""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.errors import DataError, StorageError, UnsupportedError
from ranp.integrations import export_formats, exporting
from ranp.integrations.exporting import Exported, export
from ranp.paper import models
from ranp.paper.models import UNet3d

FORMATS = ("onnx", "torch-export")


def slim(model: nn.Module, example: Any) -> nn.Module:
    """Random channels removed, and no two statistics of norms alike."""
    torch.manual_seed(0)
    trace = ranp.trace(model, example)
    scores = ranp.Scores({layer.name: torch.rand(layer.channels) + 0.01 for layer in trace.layers})
    plan = ranp.select(scores, trace, sparsity=min(0.4, ranp.max_sparsity(scores, trace)))
    network = ranp.slim(model, plan).eval()
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    return network


def run_file(made: Exported, *tensors: Tensor) -> list[Tensor]:
    """Runs the exported file as its users would, with nothing of ranp."""
    if made.format == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(made.path), providers=["CPUExecutionProvider"])
        feed = {name: tensor.numpy() for name, tensor in zip(made.inputs, tensors, strict=True)}
        return [torch.from_numpy(value) for value in session.run(None, feed)]
    with made.path.open("rb") as file:
        output = torch.export.load(file).module()(*tensors)
    return [output] if isinstance(output, Tensor) else list(output)


def assert_agrees(made: Exported, model: nn.Module, *tensors: Tensor) -> None:
    with torch.no_grad():
        expected = model.eval()(*tensors)
    got = run_file(made, *tensors)
    for mine, theirs in zip([expected] if isinstance(expected, Tensor) else expected, got, strict=True):
        assert (mine - theirs).abs().max() <= 1e-4 * mine.abs().max()


def conv() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 2, 1)).eval()


@pytest.mark.parametrize("format", FORMATS)
def test_a_slim_network_of_the_paper_takes_any_batch_and_size(format: str, tmp_path: Path) -> None:
    network = slim(UNet3d(1, 3, widths=(4, 8), softmax_in_eval=True), torch.randn(2, 1, 8, 8, 8))
    made = export(network, torch.randn(1, 1, 8, 8, 8), tmp_path / "net.file", format=format)
    assert made.dynamic_batch
    assert made.dynamic_space
    assert made.reasons == ()
    assert made.max_error < 1e-4
    assert {check.shapes[0][0] for check in made.checks} >= {1, 3}
    assert any(check.shapes[0][2:] != (8, 8, 8) for check in made.checks)
    assert {(span.dimension, span.low, span.high, span.step) for span in made.dynamic} == {
        (0, 1, None, 1), (2, 2, None, 1), (3, 2, None, 1), (4, 2, None, 1)
    }  # fmt: skip
    for shape in ((1, 1, 8, 8, 8), (2, 1, 8, 8, 8), (5, 1, 9, 14, 7)):
        assert_agrees(made, network, torch.randn(shape))
    assert [path.name for path in tmp_path.iterdir()] == ["net.file"]


PAPER: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "unet3d-brats": ({"widths": (4, 8, 16)}, (1, 4, 8, 8, 8)),
    "mobilenetv2-ucf101": ({"width": 0.25, "stages": ((1, 16, 1, 1), (6, 24, 2, 2))}, (1, 3, 4, 16, 16)),
    "i3d-ucf101": ({"width": 0.0625, "window": (1, 1, 1)}, (1, 3, 8, 32, 32)),
    "psm-sceneflow": ({"width": 0.125, "disparities": 16, "blocks": (1, 1, 1, 1), "windows": (4, 2)}, (1, 3, 32, 48)),
}


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", PAPER)
def test_networks_of_the_paper(name: str, format: str, tmp_path: Path) -> None:
    options, shape = PAPER[name]
    example = (torch.randn(shape),) * (2 if name.startswith("psm") else 1)
    network = slim(
        models.build(name, **options), tuple(tensor.repeat(2, *[1] * (len(shape) - 1)) for tensor in example)
    )
    made = export(network, example, tmp_path / "net", format=format)
    assert made.dynamic_batch
    assert made.dynamic_space
    assert made.reasons == ()
    for batch in (1, 4):
        assert_agrees(made, network, *(torch.randn(batch, *shape[1:]) for _ in example))
    step = {"psm-sceneflow": 16, "i3d-ucf101": 32}.get(name, 3)
    larger = [size + step for size in shape[2:]]
    assert_agrees(made, network, *(torch.randn(2, shape[1], *larger) for _ in example))


def monai(name: str) -> tuple[nn.Module, tuple[int, ...], int]:
    """The network, its example, and by what its sizes may grow."""
    from monai.networks import nets

    torch.manual_seed(0)
    made: dict[str, Callable[[], nn.Module]] = {
        "UNet": lambda: nets.UNet(3, 1, 2, channels=(4, 8), strides=(2,), num_res_units=1),
        "SegResNet": lambda: nets.SegResNet(3, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)),
        "DynUNet": lambda: nets.DynUNet(3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 8]),
        "AttentionUnet": lambda: nets.AttentionUnet(3, 1, 2, channels=(4, 8), strides=(2,)),
        "VNet": lambda: nets.VNet(),
        "DenseNet121": lambda: nets.DenseNet121(3, 1, 2),
    }
    size = {"VNet": 16, "DenseNet121": 64}.get(name, 8)
    return made[name](), (1, 1, size, size, size), {"VNet": 16}.get(name, 8)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("UNet", "SegResNet", "DynUNet", "AttentionUnet", "VNet", "DenseNet121")
    ],
)
def test_networks_of_monai(name: str, format: str, tmp_path: Path) -> None:
    model, shape, step = monai(name)
    network = slim(model, torch.randn(2, *shape[1:]))
    made = export(network, torch.randn(shape), tmp_path / "net", format=format)
    assert made.dynamic_batch
    assert made.dynamic_space
    for batch in (1, 4):
        assert_agrees(made, network, torch.randn(batch, *shape[1:]))
    assert_agrees(made, network, torch.randn(2, 1, *(size + step for size in shape[2:])))


class Pathways(nn.Module):
    """A list goes in, as SlowFast has it; a list comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.fast = nn.Conv3d(1, 4, 1), nn.Conv3d(1, 2, 1)

    def forward(self, views: list[Tensor]) -> list[Tensor]:
        slow, fast = self.slow(views[0]), self.fast(views[1])
        return [slow.mean((2, 3, 4)), fast]


class Keywords(nn.Module):
    """Keywords in another order than the arguments, and a dict of outputs with None."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(1, 4, 1), nn.Linear(3, 4)

    def forward(self, volume: Tensor, vector: Tensor) -> dict[str, Any]:
        mixed = self.a(volume) + self.b(vector)[:, :, None, None, None]
        return {"out": mixed, "nothing": None, "deep": [mixed.mean((2, 3, 4)), (volume,)]}


@dataclasses.dataclass
class Result:
    logits: Tensor
    extra: Tensor | None = None


class Objects(nn.Module):
    """Returns an object of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv3d(1, 4, 1)

    def forward(self, *volumes: Tensor) -> Result:
        return Result(sum(self.a(volume) for volume in volumes))


@pytest.mark.parametrize("format", FORMATS)
def test_inputs_and_outputs_of_any_form(format: str, tmp_path: Path) -> None:
    slow, fast = torch.randn(1, 1, 2, 6, 6), torch.randn(1, 1, 8, 6, 6)
    made = export(Pathways(), ([slow, fast],), tmp_path / "list", format=format)
    assert len(made.inputs) == 2
    assert {(span.input, span.dimension) for span in made.dynamic} == {
        (n, d) for n in made.inputs for d in (0, 2, 3, 4)
    }
    example = {"vector": torch.randn(1, 3), "volume": torch.randn(1, 1, 4, 4, 4)}
    model = Keywords().eval()
    made = export(model, example, tmp_path / "dict", format=format)
    assert made.inputs == ("volume", "vector")
    assert made.dynamic_batch
    made = export(Objects(), (slow, slow), tmp_path / "object", format=format)
    assert len(made.inputs) == 2
    assert made.dynamic_space


class Fixed(nn.Module):
    """Sizes in the code: width as a constant, depth in a branch, height free."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x.reshape(x.shape[0], 2, x.shape[2], x.shape[3], 6) * torch.arange(6)
        return x + 1 if x.shape[2] == 4 else x - 1


@pytest.mark.parametrize("format", FORMATS)
def test_what_the_code_fixes_stays_fixed_and_is_reported(format: str, tmp_path: Path) -> None:
    model = Fixed().eval()
    made = export(model, torch.randn(1, 1, 4, 5, 6), tmp_path / "net", format=format)
    assert {span.dimension for span in made.dynamic} == {0, 3}
    assert [reason.split(":")[0] for reason in made.reasons] == [
        "dimension 2 of 'x' is fixed at 4", "dimension 4 of 'x' is fixed at 6"
    ]  # fmt: skip
    assert_agrees(made, model, torch.randn(3, 1, 4, 9, 6))


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_an_example_that_shrinks_to_one_voxel_does_not_bound_the_sizes(format: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv3d(1, 4, 3, stride=2, padding=1), nn.BatchNorm3d(4), nn.AvgPool3d(2), nn.Conv3d(4, 4, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    made = export(model, torch.randn(1, 1, 4, 4, 4), tmp_path / "net", format=format)
    assert {(span.dimension, span.low, span.high) for span in made.dynamic} == {
        (0, 1, None), (2, 3, None), (3, 3, None), (4, 3, None)
    }  # fmt: skip
    for shape in ((1, 1, 4, 4, 4), (2, 1, 3, 3, 3), (1, 1, 8, 9, 12), (3, 1, 4, 4, 20)):
        assert_agrees(made, model, torch.randn(shape))


class Alone(nn.Module):
    """Treats a batch of one in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) if x.shape[0] > 1 else -self.conv(x)


def test_a_batch_of_one_with_code_of_its_own_is_not_mixed_up(tmp_path: Path) -> None:
    model = Alone().eval()
    many = export(model, torch.randn(2, 1, 4, 4, 4), tmp_path / "many", format="torch-export")
    assert {span.low for span in many.dynamic if span.dimension == 0} == {2}
    assert "a batch of 1 is refused" in many.reasons[0]
    assert_agrees(many, model, torch.randn(3, 1, 4, 4, 4))
    with pytest.raises(AssertionError, match="Guard failed"):
        run_file(many, torch.randn(1, 1, 4, 4, 4))
    one = export(model, torch.randn(1, 1, 4, 4, 4), tmp_path / "one", format="torch-export")
    assert not one.dynamic_batch
    assert one.reasons
    assert_agrees(one, model, torch.randn(1, 1, 4, 4, 4))


class Single(nn.Module):
    """Takes one volume at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        (volume,) = x
        return self.conv(volume)


def test_space_may_vary_where_the_batch_cannot(tmp_path: Path) -> None:
    model = Single().eval()
    made = export(model, torch.randn(1, 1, 4, 4, 4), tmp_path / "net", format="torch-export")
    assert {span.dimension for span in made.dynamic} == {2, 3, 4}
    assert len(made.reasons) == 2
    assert_agrees(made, model, torch.randn(1, 1, 5, 7, 9))


@pytest.mark.parametrize(("dynamic", "dimensions"), [("batch", {0}), ("none", set())])
def test_less_may_vary_if_asked_for(dynamic: str, dimensions: set[int], tmp_path: Path) -> None:
    made = export(conv(), torch.randn(1, 1, 4, 4, 4), tmp_path / "net", format="torch-export", dynamic=dynamic)
    assert {span.dimension for span in made.dynamic} == dimensions
    assert made.reasons == ()
    assert made.checks[0].shapes == ((1, 1, 4, 4, 4),)


def test_an_onnx_file_names_its_dimensions_and_tells_its_sizes(tmp_path: Path) -> None:
    import json

    import onnx

    export(conv(), torch.empty(1, 1, 4, 4, 4, device="meta"), tmp_path / "net.onnx", opset=18)
    model = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(model, full_check=True)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["batch", 1, "input_2", "input_3", "input_4"]
    assert model.opset_import[0].version == 18
    told = {prop.key: prop.value for prop in model.metadata_props}["ranp.sizes"]
    assert [entry["dimension"] for entry in json.loads(told)] == [0, 2, 3, 4]


def test_the_network_and_the_random_state_are_left_alone(tmp_path: Path) -> None:
    model = conv().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    export(model, torch.randn(1, 1, 4, 4, 4, generator=torch.Generator()), tmp_path / "net", format="torch-export")
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_program_file_is_read_without_unrestricted_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are raw bytes; the sizes of the example go through torch's restricted reader."""
    made = export(conv(), torch.randn(1, 1, 16, 16, 16), tmp_path / "net.pt2", format="torch-export")
    loads: list[bool] = []
    original = torch.load

    def watched(*args: Any, **kwargs: Any) -> Any:
        loads.append(kwargs["weights_only"])
        return original(*args, **kwargs)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was read")

    monkeypatch.setattr(torch, "load", watched)
    monkeypatch.setattr(pickle, "loads", refuse)
    run_file(made, torch.randn(1, 1, 16, 16, 16))
    assert loads == [True]
    with zipfile.ZipFile(made.path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        samples = next(name for name in sizes if "sample_inputs" in name)
        inside = zipfile.ZipFile(io.BytesIO(archive.read(samples)))
    data = [info.file_size for info in inside.infolist() if "/data/" in info.filename]
    assert data == [4], "the example is not stored, only its shape"


class Noisy(nn.Module):
    """Random in eval mode."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class ReadsValues(nn.Module):
    """A branch on data, which no graph can hold."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x


class ThroughNumpy(nn.Module):
    """Leaves torch."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.sin(x.numpy()))


@pytest.mark.parametrize(
    ("model", "format", "message"),
    [
        pytest.param(Noisy(), "onnx", "Noisy cannot be exported to onnx .*random in eval mode", marks=pytest.mark.slow),
        (ReadsValues(), "torch-export", "ReadsValues cannot be exported to torch-export .*Rewrite that part"),
        (ThroughNumpy(), "torch-export", "ThroughNumpy cannot be exported to torch-export"),
        (conv().double(), "onnx", r"torch\.float64, which onnxruntime does not convolve"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(
    model: nn.Module, format: str, message: str, tmp_path: Path
) -> None:
    dtype = next((parameter.dtype for parameter in model.parameters()), torch.float32)
    with pytest.raises(UnsupportedError, match=message) as caught:
        export(model, torch.randn(1, 1, 4, 4, 4, dtype=dtype), tmp_path / "net", format=format)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_file_that_computes_something_else_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(
        export_formats.FORMATS["torch-export"], reader=lambda path: lambda inputs: [inputs.tensors[0]]
    )
    monkeypatch.setattr(exporting, "FORMATS", {"torch-export": wrong})
    (tmp_path / "net").write_text("old")
    with pytest.raises(UnsupportedError, match="off by"):
        export(nn.Conv3d(1, 1, 1), torch.randn(1, 1, 4, 4, 4), tmp_path / "net", format="torch-export", force=True)
    assert (tmp_path / "net").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_programs_keep_their_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    model, x = conv().to(dtype), torch.randn(1, 1, 4, 4, 4, dtype=dtype)
    made = export(model, x, tmp_path / "net", format="torch-export")
    assert torch.equal(run_file(made, x)[0], model(x))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format": "onx"}, UnsupportedError, "did you mean 'onnx'"),
        ({"dynamic": "all"}, UnsupportedError, "Allowed: auto, batch, none"),
        ({"format": "torch-export", "opset": 18}, UnsupportedError, "opset 18"),
        ({"path": "missing/net"}, StorageError, "no folder"),
        ({"path": "there"}, StorageError, "exists"),
        ({"path": "."}, StorageError, "is a folder"),
        ({"example": torch.randn(1, 2, 4, 4, 4)}, DataError, "does not run on the example of 1x2x4x4x4"),
        ({"model": nn.Conv3d(1, 2, 1, device="meta")}, UnsupportedError, "holds no weights"),
    ],
)
def test_wrong_requests_are_refused(
    change: dict[str, Any], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("old")
    request = {"model": conv(), "example": torch.randn(1, 1, 4, 4, 4), "path": "net", **change}
    with pytest.raises(error, match=message):
        export(request.pop("model"), request.pop("example"), request.pop("path"), **request)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert Path("there").read_text() == "old"


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_formats, "find_spec", lambda name: None if name == "onnxruntime" else name)
    with pytest.raises(UnsupportedError, match=r"needs onnxruntime, .*pip install 'ranp\[onnx\]'"):
        export(conv(), torch.randn(1, 1, 4, 4, 4), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_weights_beyond_one_onnx_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_formats, "ONNX_LIMIT", 10)
    with pytest.raises(UnsupportedError, match="do not fit in one ONNX file"):
        export(conv(), torch.randn(1, 1, 4, 4, 4), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_importing_it_loads_no_exporter() -> None:
    import subprocess

    code = "import ranp.integrations.exporting, sys; print({'onnx', 'onnxruntime', 'onnxscript'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"
