"""nnU-Net: its architecture hook, in both of its forms, makes the slim network again from ``plans.json`` alone.

A stand-in with nnU-Net's names, order of calls and signatures runs everywhere, the real packages where installed.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

import ranp
from ranp.errors import PlanMismatchError
from ranp.integrations.nnunet import KEY, PrunedTraining, slimmed

ARCHITECTURE: dict[str, Any] = {
    "network_class_name": "PlainConvUNet",
    "arch_kwargs": {"features_per_stage": [8, 16, 24], "n_conv_per_stage": 2},
    "_kw_requires_import": [],
}
PLANS: dict[str, Any] = {
    "dataset_name": "Dataset001_Balls",
    "plans_name": "nnUNetPlans",
    "configurations": {
        "3d_fullres": {"batch_size": 2, "patch_size": [8, 8, 8], "architecture": ARCHITECTURE},
        "3d_cascade_fullres": {"inherits_from": "3d_fullres", "batch_size": 3},
    },
}


def convs(inputs: int, outputs: int, count: int, stride: int = 1) -> nn.Sequential:
    blocks = []
    for i in range(count):
        conv = nn.Conv3d(inputs if i == 0 else outputs, outputs, 3, stride if i == 0 else 1, 1)
        blocks += [conv, nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(inplace=True)]
    return nn.Sequential(*blocks)


class Decoder(nn.Module):
    """All heads are always built, so that weights load with and without deep supervision."""

    def __init__(self, widths: list[int], classes: int, count: int, deep_supervision: bool) -> None:
        super().__init__()
        self.deep_supervision = deep_supervision
        pairs = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.transpconvs = nn.ModuleList(nn.ConvTranspose3d(below, width, 2, 2) for below, width in pairs)
        self.stages = nn.ModuleList(convs(2 * width, width, count) for _, width in pairs)
        self.seg_layers = nn.ModuleList(nn.Conv3d(width, classes, 1) for _, width in pairs)

    def forward(self, skips: list[Tensor]) -> Tensor | list[Tensor]:
        x, heads = skips[-1], []
        for i, (up, stage, head) in enumerate(zip(self.transpconvs, self.stages, self.seg_layers, strict=True)):
            x = stage(torch.cat((up(x), skips[-(i + 2)]), 1))
            if self.deep_supervision or i == len(self.stages) - 1:
                heads.append(head(x))
        return heads[::-1] if self.deep_supervision else heads[-1]


class PlainConvUNet(nn.Module):
    """The default network of nnU-Net, small."""

    def __init__(
        self, input_channels: int, num_classes: int, features_per_stage: list[int], n_conv_per_stage: int,
        deep_supervision: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        widths = [input_channels, *features_per_stage]
        self.stages = nn.ModuleList(
            convs(a, b, n_conv_per_stage, 2 if i else 1) for i, (a, b) in enumerate(pairwise(widths))
        )
        self.decoder = Decoder(features_per_stage, num_classes, n_conv_per_stage, deep_supervision)

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        skips = []
        for stage in self.stages:
            x = stage(x)
            skips.append(x)
        return self.decoder(skips)


class ConfigurationManager:
    def __init__(self, configuration: dict[str, Any]) -> None:
        self.configuration = configuration

    network_arch_class_name = property(lambda self: self.configuration["architecture"]["network_class_name"])
    network_arch_init_kwargs = property(lambda self: self.configuration["architecture"]["arch_kwargs"])
    network_arch_init_kwargs_req_import = property(
        lambda self: self.configuration["architecture"]["_kw_requires_import"]
    )
    batch_size = property(lambda self: self.configuration["batch_size"])


class PlansManager:
    def __init__(self, plans: dict[str, Any]) -> None:
        self.plans = plans

    def get_configuration(self, name: str) -> ConfigurationManager:
        found = deepcopy(self.plans["configurations"][name])
        if "inherits_from" in found:
            found = {**deepcopy(self.plans["configurations"][found["inherits_from"]]), **found}
        return ConfigurationManager(found)


def loss(outputs: Tensor | list[Tensor], targets: Tensor | list[Tensor]) -> Tensor:
    """nnU-Net's deep supervision: one target for each output."""
    both = zip(outputs, targets, strict=True) if isinstance(outputs, list) else [(outputs, targets)]
    return torch.stack([cross_entropy(o, t[:, 0].long()) / 2**i for i, (o, t) in enumerate(both)]).sum()  # type: ignore


class Augmenter:
    """Endless batches, from processes that must be stopped."""

    running = 0

    def __init__(self, batch_size: int) -> None:
        self.batch_size, self.generator = batch_size, torch.Generator().manual_seed(0)
        Augmenter.running += 1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        data = torch.randn(self.batch_size, 1, 8, 8, 8, generator=self.generator)
        target = (data > 0).float()
        return {"data": data, "target": [target, interpolate(target, size=4)]}

    def _finish(self) -> None:
        Augmenter.running -= 1


class NewTrainer:
    """``nnUNetTrainer`` of nnU-Net 2.8, without data and logging."""

    def __init__(self, plans: dict[str, Any], configuration: str, fold: int, results: Path) -> None:
        self.plans_manager = PlansManager(plans)
        self.configuration_manager = self.plans_manager.get_configuration(configuration)
        self.configuration_name, self.fold = configuration, fold
        self.output_folder_base = str(results / f"{type(self).__name__}__nnUNetPlans__{configuration}")
        self.device, self.local_rank, self.was_initialized = torch.device("cpu"), 0, False
        self.oversample_foreground_percent, self.enable_deep_supervision = 0.33, True
        self.network: Any = None
        self.log: list[str] = []

    def initialize(self) -> None:
        assert not self.was_initialized
        self.oversample_foreground_percent *= 2  # as under DDP, where each rank gets its own
        self.network = self._build(self.build_network_architecture, self.configuration_manager, 1, 2, True)
        self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-2, momentum=0.99)
        self.lr_scheduler, self.loss = None, loss
        self.was_initialized = True

    def _build(self, hook: Callable[..., nn.Module], manager: Any, inputs: int, outputs: int, deep: bool) -> nn.Module:
        if "plans_manager" in inspect.signature(hook).parameters:
            return hook(self.plans_manager, manager, inputs, outputs, enable_deep_supervision=deep)
        return hook(
            manager.network_arch_class_name, manager.network_arch_init_kwargs,
            manager.network_arch_init_kwargs_req_import, inputs, outputs, enable_deep_supervision=deep,
        )  # fmt: skip

    @staticmethod
    def build_network_architecture(
        plans_manager: PlansManager, configuration_manager: ConfigurationManager, num_input_channels: int,
        num_output_channels: int, enable_deep_supervision: bool = True,
    ) -> nn.Module:  # fmt: skip
        kwargs = configuration_manager.network_arch_init_kwargs
        return PlainConvUNet(
            num_input_channels, num_output_channels, deep_supervision=enable_deep_supervision, **kwargs
        )

    def get_dataloaders(self) -> tuple[Augmenter, Augmenter]:
        return Augmenter(self.configuration_manager.batch_size), Augmenter(1)

    def print_to_log_file(self, *text: str, also_print_to_console: bool = True) -> None:
        self.log += text

    def on_train_start(self) -> None:
        if not self.was_initialized:
            self.initialize()
        folder = Path(self.output_folder_base, f"fold_{self.fold}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / "plans.json").write_text(json.dumps(self.plans_manager.plans))

    def train(self) -> None:
        self.on_train_start()
        batch = next(iter(self.get_dataloaders()[0]))
        self.optimizer.zero_grad()
        self.loss(self.network(batch["data"]), batch["target"]).backward()
        self.optimizer.step()
        torch.save(
            self.network.state_dict(), Path(self.output_folder_base, f"fold_{self.fold}", "checkpoint_final.pth")
        )


class OldTrainer(NewTrainer):
    """``nnUNetTrainer`` before 2.8: the hook gets the architecture's name and arguments."""

    @staticmethod
    def build_network_architecture(  # type: ignore[override]
        architecture_class_name: str, arch_init_kwargs: dict[str, Any], arch_init_kwargs_req_import: list[str],
        num_input_channels: int, num_output_channels: int, enable_deep_supervision: bool = True,
    ) -> nn.Module:  # fmt: skip
        assert architecture_class_name == "PlainConvUNet"
        return PlainConvUNet(
            num_input_channels, num_output_channels, deep_supervision=enable_deep_supervision, **arch_init_kwargs
        )


class NewTrainerRANP(PrunedTraining, NewTrainer):
    prune_options = {"sparsity": 0.4, "exact": True, "max_batches": 3}  # noqa: RUF012
    build_network_architecture = slimmed(NewTrainer.build_network_architecture)


class OldTrainerRANP(PrunedTraining, OldTrainer):
    prune_options = {"sparsity": 0.4, "exact": True, "max_batches": 3}  # noqa: RUF012
    build_network_architecture = slimmed(OldTrainer.build_network_architecture)


def predictor(trainer_class: Any, folder: Path, configuration: str) -> tuple[nn.Module, list[dict[str, Tensor]]]:
    """What ``nnUNetPredictor`` does: no data, no trainer object, only plans.json, the class, and the folds' weights."""
    plans_manager = PlansManager(json.loads((folder / "plans.json").read_text()))
    manager = plans_manager.get_configuration(configuration)
    hook = trainer_class.build_network_architecture
    if "plans_manager" in inspect.signature(hook).parameters:
        network = hook(plans_manager, manager, 1, 2, enable_deep_supervision=False)
    else:
        network = hook(
            manager.network_arch_class_name, manager.network_arch_init_kwargs,
            manager.network_arch_init_kwargs_req_import, 1, 2, enable_deep_supervision=False,
        )  # fmt: skip
    return network, [torch.load(path) for path in sorted(folder.glob("fold_*/checkpoint_final.pth"))]


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


FULL = size(PlainConvUNet(1, 2, [8, 16, 24], 2, True))


@pytest.mark.parametrize("trainer_class", [NewTrainerRANP, OldTrainerRANP])
@pytest.mark.parametrize("configuration", ["3d_fullres", "3d_cascade_fullres"])
def test_train_folds_continue_and_predict(trainer_class: Any, configuration: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = trainer_class(deepcopy(PLANS), configuration, 0, tmp_path)
    Augmenter.running = 0
    first.initialize()
    assert Augmenter.running == 0  # the scoring's own loaders are stopped
    first.train()
    folder = Path(first.output_folder_base)
    plan = ranp.Plan.load(folder / "ranp_plan.json")
    assert size(first.network) < FULL
    assert {id(p) for group in first.optimizer.param_groups for p in group["params"]} == {
        id(p) for p in first.network.parameters()
    }
    assert first.oversample_foreground_percent == pytest.approx(0.66)  # touched once, as without pruning
    assert plan.settings["batches"] == 3
    assert any("requested" in line for line in first.log)
    assert ranp.Report.load(folder / "ranp_report.json").params.after == size(first.network)

    class Refuse(trainer_class):  # type: ignore[misc]
        def get_dataloaders(self) -> Any:
            raise AssertionError("scored again")

    for name in ("ranp_plan.json", "plans.json"):  # an earlier fold's file; then a model that came as a zip, without it
        (folder / "ranp_plan.json").unlink() if name == "plans.json" else None
        again = Refuse(deepcopy(PLANS), configuration, 1, tmp_path)
        again.output_folder_base = str(folder)
        again.initialize()
        again.network.load_state_dict(first.network.state_dict())
        assert again.oversample_foreground_percent == pytest.approx(0.66)

    second = trainer_class(deepcopy(PLANS), configuration, 1, tmp_path)
    second.train()
    network, weights = predictor(trainer_class, folder, configuration)
    assert len(weights) == 2
    data = torch.randn(1, 1, 8, 8, 8)
    for trainer, state in zip((first, second), weights, strict=True):
        network.load_state_dict(state)
        assert torch.equal(network(data), trainer.network(data)[0])


def test_a_plain_plan_builds_the_full_network_and_a_plan_leaves_its_arguments_alone(tmp_path: Path) -> None:
    trainer = NewTrainerRANP(deepcopy(PLANS), "3d_fullres", 0, tmp_path)
    manager = trainer.configuration_manager
    assert size(trainer.build_network_architecture(trainer.plans_manager, manager, 1, 2)) == FULL
    assert "plans_manager" in inspect.signature(NewTrainerRANP.build_network_architecture).parameters
    trainer.initialize()
    before = deepcopy(manager.configuration)
    assert size(trainer.build_network_architecture(trainer.plans_manager, manager, 1, 2)) == size(trainer.network)
    assert manager.configuration == before
    assert KEY in before["architecture"]["arch_kwargs"]
    more = trainer.build_network_architecture(
        trainer.plans_manager, manager, 4, 7, False
    )  # other data, the same widths
    assert more(torch.randn(1, 4, 8, 8, 8)).shape == (1, 7, 8, 8, 8)


def test_of_two_folds_that_score_at_once_the_first_decides(tmp_path: Path) -> None:
    class Slow(NewTrainerRANP):
        def get_dataloaders(self) -> Any:
            faster = NewTrainerRANP(deepcopy(PLANS), "3d_fullres", 1, tmp_path)
            faster.output_folder_base = self.output_folder_base
            torch.manual_seed(7)
            faster.initialize()
            self.faster = faster.network
            return super().get_dataloaders()

    slow = Slow(deepcopy(PLANS), "3d_fullres", 0, tmp_path)
    slow.initialize()
    slow.network.load_state_dict(slow.faster.state_dict())
    assert (
        slow.configuration_manager.network_arch_init_kwargs[KEY]["layers"]
        == json.loads(Path(slow.output_folder_base, "ranp_plan.json").read_text())["layers"]
    )


def test_another_sparsity_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    NewTrainerRANP(deepcopy(PLANS), "3d_fullres", 0, tmp_path).initialize()

    class Other(NewTrainerRANP):
        prune_options = {"sparsity": 0.2}  # noqa: RUF012

    other = Other(deepcopy(PLANS), "3d_fullres", 0, tmp_path)
    other.output_folder_base = str(tmp_path / "NewTrainerRANP__nnUNetPlans__3d_fullres")
    with pytest.raises(
        PlanMismatchError, match=r"plan for sparsity 0.4, this trainer asks for sparsity 0.2.*another name"
    ):
        other.initialize()


def test_a_budget_of_training_memory_is_that_of_a_step_of_nnunet(tmp_path: Path) -> None:
    class Within(NewTrainerRANP):
        prune_options = {"budget": "train-memory=70%", "max_batches": 1}  # noqa: RUF012

    trainer = Within(deepcopy(PLANS), "3d_fullres", 0, tmp_path)
    trainer.initialize()
    plan = ranp.Plan.load(Path(trainer.output_folder_base) / "ranp_plan.json")
    (entry,) = plan.settings["budget"]
    assert entry["after"] <= entry["limit"] == pytest.approx(0.7 * entry["before"])
    assert plan.settings["step"]["batch"] == trainer.configuration_manager.batch_size
    assert plan.settings["step"]["optimiser"] == "momentum"

    class Other(NewTrainerRANP):
        prune_options = {"budget": "train-memory=50%"}  # noqa: RUF012

    other = Other(deepcopy(PLANS), "3d_fullres", 0, tmp_path)
    other.output_folder_base = trainer.output_folder_base
    with pytest.raises(PlanMismatchError, match=r"plan for train-memory=70%, this trainer asks for train-memory=50%"):
        other.initialize()


@pytest.mark.parametrize("name", ["PlainConvUNet", "ResidualEncoderUNet"])
@pytest.mark.parametrize("deep", [True, False])
def test_the_real_networks(name: str, deep: bool) -> None:
    unet = pytest.importorskip("dynamic_network_architectures.architectures.unet")

    def build(deep_supervision: bool) -> nn.Module:
        torch.manual_seed(0)
        count = {"n_conv_per_stage" if name == "PlainConvUNet" else "n_blocks_per_stage": [1, 2, 2]}
        network = getattr(unet, name)(
            2, 3, [8, 16, 32], nn.Conv3d, 3, [1, 2, 2], num_classes=3, n_conv_per_stage_decoder=[2, 2], conv_bias=True,
            norm_op=nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=nn.LeakyReLU,
            nonlin_kwargs={"inplace": True}, deep_supervision=deep_supervision, **count,
        )  # fmt: skip
        return network.apply(network.initialize)

    data = torch.randn(2, 2, 16, 16, 16)
    target = (data[:, :1] > 0).float()
    batch = (data, [target, interpolate(target, size=8)] if deep else target)
    pruned = ranp.prune(build(deep), [batch], loss, sparsity=0.4, exact=True)
    assert pruned.verification.ok
    assert ranp.verify(build(deep), pruned.plan, data).max_error < 1e-9
    ranp.slim(build(not deep), pruned.plan).load_state_dict(pruned.model.state_dict())


def test_the_recipe_of_the_guide_runs() -> None:
    pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")
    page = (Path(__file__).parents[2] / "docs" / "nnunet.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.split("```py\n")[1].split("```")[0], names)
    trainer = names["nnUNetTrainerRANP"]
    assert isinstance(trainer.__dict__["build_network_architecture"], staticmethod)
    assert trainer.initialize is PrunedTraining.initialize


def test_the_real_hook(tmp_path: Path) -> None:
    pytest.importorskip("nnunetv2")
    trainers = pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")
    handling = pytest.importorskip("nnunetv2.utilities.plans_handling.plans_handler")
    kwargs = {
        "n_stages": 3, "features_per_stage": [8, 16, 32], "conv_op": "torch.nn.modules.conv.Conv3d",
        "kernel_sizes": [[3, 3, 3]] * 3, "strides": [[1, 1, 1], [2, 2, 2], [2, 2, 2]], "n_conv_per_stage": [2, 2, 2],
        "n_conv_per_stage_decoder": [2, 2], "conv_bias": True,
        "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
        "norm_op_kwargs": {"eps": 1e-5, "affine": True}, "dropout_op": None, "dropout_op_kwargs": None,
        "nonlin": "torch.nn.LeakyReLU", "nonlin_kwargs": {"inplace": True},
    }  # fmt: skip
    architecture = {
        "network_class_name": "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        "arch_kwargs": kwargs,
        "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
    }
    base = trainers.nnUNetTrainer.build_network_architecture
    hook = slimmed(base).__func__

    def build(build: Callable[..., nn.Module], deep: bool) -> nn.Module:
        plans = {"configurations": {"3d_fullres": {"architecture": deepcopy(architecture)}}}
        manager = handling.PlansManager(plans)
        configuration = manager.get_configuration("3d_fullres")
        if "plans_manager" in inspect.signature(build).parameters:
            return build(manager, configuration, 1, 2, enable_deep_supervision=deep)
        return build(
            configuration.network_arch_class_name, configuration.network_arch_init_kwargs,
            configuration.network_arch_init_kwargs_req_import, 1, 2, enable_deep_supervision=deep,
        )  # fmt: skip

    full = build(hook, True)
    batch = next(Augmenter(2))
    pruned = ranp.prune(full, [(batch["data"], batch["target"])], loss, sparsity=0.4, exact=True)
    pruned.plan.save(tmp_path / "plan.json")
    kwargs[KEY] = json.loads((tmp_path / "plan.json").read_text())
    network = build(hook, False)
    network.load_state_dict(pruned.model.state_dict())
    with pytest.raises(TypeError, match=KEY):  # the stock trainer does not silently build something else
        build(base, False)
