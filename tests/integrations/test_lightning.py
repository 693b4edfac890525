"""The Lightning callback: the optimiser sees the slim network, checkpoints bring it back, training is left alone."""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import ranp
from ranp.errors import DataError, PlanMismatchError, RanpError, UnsupportedError
from tests.support import processes

lightning = pytest.importorskip("lightning.pytorch")
from lightning.pytorch import LightningDataModule, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, WeightAveraging  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from ranp.integrations.lightning import (  # noqa: E402
    PruneAtInitialisation,
    slim_from_checkpoint,
    slim_like,
)
from ranp.integrations.lightning_step import step_of  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:GPU available but not used.*"),
    pytest.mark.filterwarnings("ignore:.*tensorboard.*has been removed as a dependency.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:.*exists and is not empty.*"),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("lightning.pytorch"), "level", logging.ERROR)


def network(width: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, width, 3, padding=1),
        nn.BatchNorm3d(width),
        nn.ReLU(),
        nn.Conv3d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(width, 2, 1),
    )


def data(count: int = 8) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(count, 1, 4, 4, 4, generator=generator)
    return [(image, (image[0] > 0).long()) for image in images]


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(data(), batch_size=4, **options)  # type: ignore[arg-type]


class Module(LightningModule):
    """An ordinary module: a network, a step that logs, an optimiser of all parameters."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.model = network()

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        image, label = batch
        loss = cross_entropy(self(image), label)
        self.log("loss", loss)
        return loss

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("loss", cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Watch(Callback):
    """Notes the weights before the first step, and the batches of the training."""

    def __init__(self) -> None:
        self.before: dict[str, Tensor] = {}
        self.batches: list[Tensor] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.before = {name: value.clone() for name, value in pl_module.state_dict().items()}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.batches.append(batch[0] if isinstance(batch, list) else batch["image"])


def make_trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    settings = {
        "max_steps": 2, "logger": False, "enable_checkpointing": False, "accelerator": "cpu", "devices": 1,
        "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder,
    }  # fmt: skip
    return Trainer(callbacks=list(callbacks), **{**settings, **options})


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class Momentum(Module):
    def configure_optimizers(self) -> Any:
        optimiser = torch.optim.SGD(self.parameters(), 0.01, momentum=0.9)
        return [optimiser], [torch.optim.lr_scheduler.StepLR(optimiser, 1)]


def test_a_budget_of_training_memory_is_that_of_the_modules_optimiser(tmp_path: Path) -> None:
    steps = []
    for module, given in ((Module(), {}), (Momentum(), {}), (Module(), {"step": ranp.TrainingStep(2, "none")})):
        callback = PruneAtInitialisation(budget="train-memory=90%", max_batches=1, **given)
        make_trainer(tmp_path, callback, precision="bf16-mixed").fit(module, loader())
        assert callback.plan is not None
        steps.append(callback.plan.settings["step"])
    words = [(step["batch"], step["optimiser"], step["precision"]) for step in steps]
    assert words == [(None, "adamw", "amp-bfloat16"), (None, "momentum", "amp-bfloat16"), (2, "none", "float32")]


def test_a_step_is_told_from_whatever_configure_optimizers_returns() -> None:
    module, trainer = Module(), Trainer(logger=False, accelerator="cpu", enable_checkpointing=False)
    other = nn.Linear(1, 1)
    adam, strange = torch.optim.Adam(other.parameters()), torch.optim.Adadelta(module.parameters())
    rmsprop = torch.optim.RMSprop(module.parameters())
    for configured, word in (
        ({"optimizer": rmsprop}, "rmsprop"),
        (({"optimizer": adam}, {"optimizer": rmsprop}), "rmsprop"),
        (strange, "adam"),
        (None, "none"),
    ):
        module.configure_optimizers = lambda configured=configured: configured  # type: ignore[method-assign, assignment, misc]
        assert step_of(module, trainer, module.model).optimiser == word
    module.configure_optimizers = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert step_of(module, trainer, module.model) == ranp.TrainingStep()


def test_the_optimiser_holds_and_trains_exactly_the_slim_parameters(tmp_path: Path) -> None:
    module, callback, watch = Module(), PruneAtInitialisation(0.4), Watch()
    full = size(module)
    trainer = make_trainer(tmp_path, callback, watch)
    trainer.fit(module, loader())
    held = {id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]}
    assert held == {id(p) for p in module.model.parameters()}
    assert size(module) < full
    assert module.model is callback.pruned.model  # type: ignore[union-attr]
    assert {
        f"model.{name}": m.weight.shape[0] for name, m in module.model.named_modules() if isinstance(m, nn.Conv3d)
    } == {
        f"model.{name}": width
        for name, width in callback.plan.widths.items()  # type: ignore[union-attr]
    }
    for name, value in module.named_parameters():
        assert value.shape == watch.before[name].shape
        assert not torch.equal(value, watch.before[name]), name
    assert not vars(trainer.strategy).keys() & {"setup", "load_model_state_dict"}


def test_the_training_step_gives_the_same_plan_as_its_loss(tmp_path: Path) -> None:
    plans = []
    for options in ({}, {"loss": cross_entropy}, {"loss": cross_entropy, "batches": lambda: loader()}):
        callback = PruneAtInitialisation(0.4, **options)
        make_trainer(tmp_path, callback).fit(Module(), loader())
        plans.append(callback.plan)
    direct = ranp.prune(Module().model, loader(), cross_entropy, sparsity=0.4, max_batches=10)
    assert all(plan == direct.plan for plan in plans)
    assert all(torch.equal(callback.pruned.scores[name], direct.scores[name]) for name in direct.scores)  # type: ignore


def test_plan_and_report_are_saved_and_logged(tmp_path: Path) -> None:
    callback = PruneAtInitialisation(0.4, init="glorot", method="ranp-m", max_batches=1)
    trainer = make_trainer(tmp_path, callback, logger=CSVLogger(tmp_path))
    trainer.fit(Module(), loader())
    folder = Path(trainer.log_dir or "")
    assert folder != tmp_path
    assert ranp.Plan.load(folder / "plan.json") == callback.plan
    assert ranp.Report.load(folder / "report.json").params == callback.report.params  # type: ignore[union-attr]
    assert callback.plan.settings | {"method": "ranp-m", "init": "glorot", "batches": 1} == callback.plan.settings  # type: ignore
    assert "ranp/params_after" in (folder / "metrics.csv").read_text()


class Data(LightningDataModule):
    """Dict batches, as MONAI gives them; made in setup, moved and scaled by the transfer hook."""

    def setup(self, stage: str) -> None:
        self.samples = [{"image": image, "label": label} for image, label in data()]

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.samples, batch_size=2, shuffle=True)  # type: ignore[arg-type]

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return {"image": batch["image"] * 2, "label": batch["label"]}


class DictModule(Module):
    """Builds its network late, in configure_model, and steps on dicts."""

    def __init__(self) -> None:
        LightningModule.__init__(self)

    def configure_model(self) -> None:
        if not hasattr(self, "nets"):
            torch.manual_seed(0)
            self.nets = nn.ModuleDict({"student": network()})

    def training_step(self, batch: Any) -> dict[str, Tensor]:  # type: ignore[override]
        return {"loss": cross_entropy(self.nets["student"](input=batch["image"]), batch["label"])}


@pytest.mark.parametrize("own", [False, True])
def test_datamodule_dict_batches_and_a_nested_network_built_late(tmp_path: Path, own: bool) -> None:
    options: dict[str, Any] = {}
    if own:
        options = {"loss": cross_entropy, "unpack": lambda batch: (batch["image"], batch["label"])}
    module, callback = DictModule(), PruneAtInitialisation(0.4, attribute="nets.student", **options)
    make_trainer(tmp_path, callback).fit(module, datamodule=Data())
    assert size(module.nets["student"]) < size(network())
    assert callback.plan.settings["batches"] == 4  # type: ignore[union-attr]


def test_monais_tensors_prune_as_plain_ones_do(tmp_path: Path) -> None:
    meta = pytest.importorskip("monai.data").MetaTensor
    plans = []
    for kind in (lambda x: x, meta):
        samples = [(kind(image), label) for image, label in data()]
        callback = PruneAtInitialisation(0.4)
        monai_loader = pytest.importorskip("monai.data").DataLoader(samples, batch_size=4)
        make_trainer(tmp_path, callback).fit(Module(), monai_loader)
        plans.append(callback.plan)
    assert plans[0] == plans[1]
    assert plans[0].sparsity.removed > 0


class Layers(LightningModule):
    """The module is itself the network."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv3d(1, 8, 3, padding=1), nn.Conv3d(8, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        return self.last(self.first(image).relu())

    def train_dataloader(self) -> DataLoader[Any]:
        return loader()

    training_step = Module.training_step
    configure_optimizers = Module.configure_optimizers


def test_a_module_that_is_itself_the_network_with_its_own_loader(tmp_path: Path) -> None:
    module, callback = Layers(), PruneAtInitialisation(0.4, attribute=None)
    trainer = make_trainer(tmp_path, callback)
    trainer.fit(module)
    assert module.first.out_channels == module.last.in_channels == callback.plan.widths["first"] < 8  # type: ignore
    assert {id(p) for p in module.parameters()} == {
        id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]
    }


def run(folder: Path, *callbacks: Callback, **options: Any) -> tuple[Watch, Module]:
    watch, module = Watch(), Module()
    torch.manual_seed(5)
    make_trainer(folder, *callbacks, watch).fit(module, loader(**options))
    return watch, module


@pytest.mark.parametrize("generator", [False, True])
def test_pruning_leaves_the_random_state_of_the_training_alone(tmp_path: Path, generator: bool) -> None:
    def options() -> dict[str, Any]:
        return {"shuffle": True, "generator": torch.Generator().manual_seed(3) if generator else None}

    plain, _ = run(tmp_path, **options())
    pruned, first = run(tmp_path, PruneAtInitialisation(0.4), **options())
    _, second = run(tmp_path, PruneAtInitialisation(0.4), **options())
    assert all(torch.equal(a, b) for a, b in zip(plain.batches, pruned.batches, strict=True))
    assert all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


class Refuse:
    """A loss that must not be asked."""

    def __call__(self, *_: Any) -> Tensor:
        raise AssertionError("scored again")


def saved(folder: Path, **options: Any) -> tuple[Path, Module, PruneAtInitialisation]:
    module, callback = Module(), PruneAtInitialisation(0.4)
    keep = ModelCheckpoint(folder, filename="last", save_on_train_epoch_end=True, **options)
    make_trainer(folder, callback, keep, enable_checkpointing=True).fit(module, loader())
    return folder / "last.ckpt", module, callback


def equal(a: nn.Module, b: nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)


def test_resuming_applies_the_stored_plan_and_does_not_prune_again(tmp_path: Path) -> None:
    path, module, first = saved(tmp_path / "a")
    again, watch = Module(seed=9), Watch()
    callback = PruneAtInitialisation(0.9, loss=Refuse())
    trainer = make_trainer(tmp_path / "b", callback, watch, max_steps=4)
    trainer.fit(again, loader(), ckpt_path=path)
    assert all(torch.equal(watch.before[name], value) for name, value in module.state_dict().items())
    assert callback.plan == first.plan
    assert callback.report.params == first.report.params  # type: ignore[union-attr]
    assert callback.pruned is None
    assert ranp.Plan.load(tmp_path / "b" / "plan.json") == first.plan
    assert trainer.global_step == 4
    assert not torch.equal(again.model[0].weight, watch.before["model.0.weight"])
    by_hand = Module()  # Lightning's own resuming of a module that was made slim without the callback
    by_hand.model = ranp.slim(by_hand.model, first.plan)  # type: ignore[arg-type]
    make_trainer(tmp_path / "c", max_steps=4).fit(by_hand, loader(), ckpt_path=path)
    assert equal(again, by_hand)


def test_testing_a_checkpoint_and_loading_it_without_a_trainer(tmp_path: Path) -> None:
    path, module, _ = saved(tmp_path)
    told = []
    for fresh in (Module(seed=3), module):  # a full one, and the slim one itself
        trainer = make_trainer(tmp_path, PruneAtInitialisation(0.4, loss=Refuse()))
        told.append(trainer.test(fresh, loader(), ckpt_path=path, verbose=False))
        assert equal(fresh, module)
    assert told[0] == told[1]
    assert equal(slim_from_checkpoint(path, Module(seed=4)), module)

    class Loading(Module):
        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            slim_like(self, checkpoint)

    assert equal(Loading.load_from_checkpoint(path), module)
    trainer = make_trainer(tmp_path, PruneAtInitialisation(0.4))
    trainer.test(full := Module(), loader(), verbose=False)  # nothing loaded: the full network is tested as it is
    assert size(full) == size(Module())


@pytest.mark.parametrize("how", ["validate", "predict"])
def test_other_stages_make_the_module_slim_too(how: str, tmp_path: Path) -> None:
    class Evaluated(Module):
        validation_step = Module.test_step

        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self(batch[0])

    path, module, _ = saved(tmp_path)
    fresh = Evaluated(seed=3)
    getattr(make_trainer(tmp_path, PruneAtInitialisation(0.4)), how)(fresh, loader(), ckpt_path=path)
    assert equal(fresh, module)


def test_fitting_twice_goes_on_and_a_new_module_is_pruned_anew(tmp_path: Path) -> None:
    module, callback = Module(), PruneAtInitialisation(0.4)
    make_trainer(tmp_path, callback).fit(module, loader())
    plan, slim = callback.plan, module.model
    make_trainer(tmp_path, callback).fit(module, loader())
    assert callback.plan is plan
    assert module.model is slim
    make_trainer(tmp_path, callback).fit(other := Module(), loader())
    assert callback.plan is not plan
    assert size(other) == size(module)


def test_a_given_plan_is_applied_without_scoring_and_serves_bare_weights(tmp_path: Path) -> None:
    path, module, first = saved(tmp_path / "a", save_weights_only=True)
    file = tmp_path / "a" / "plan.json"
    given = PruneAtInitialisation(plan=file, loss=Refuse())
    fresh = Module()
    make_trainer(tmp_path / "b", given).fit(fresh, loader())
    assert given.plan == first.plan
    assert size(fresh) == size(module)
    make_trainer(tmp_path, PruneAtInitialisation(plan=file)).test(
        tested := Module(), loader(), str(path), verbose=False
    )
    assert equal(tested, module)
    with pytest.raises(PlanMismatchError, match=r"holds no plan.*plan="):
        make_trainer(tmp_path, PruneAtInitialisation(0.4)).test(Module(), loader(), str(path), verbose=False)
    with pytest.raises(PlanMismatchError, match="holds no plan"):
        slim_from_checkpoint(path, Module())


def test_two_networks_by_two_callbacks(tmp_path: Path) -> None:
    class Two(Module):
        def __init__(self, seed: int = 0) -> None:
            super().__init__(seed)
            self.other = network(16)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            image, label = batch
            return cross_entropy(self.model(image), label) + cross_entropy(self.other(image), label)

    def callbacks(sparsity: float) -> list[Callback]:
        return [PruneAtInitialisation(sparsity, attribute=name) for name in ("model", "other")]

    module = Two()
    keep = ModelCheckpoint(tmp_path, filename="last", every_n_train_steps=2)
    trainer = make_trainer(tmp_path, *callbacks(0.4), keep, enable_checkpointing=True)
    trainer.fit(module, loader())
    assert size(module.model) < size(network())
    assert size(module.other) < size(network(16))
    assert not vars(trainer.strategy).keys() & {"setup", "load_model_state_dict"}
    resumed = Two(seed=2)
    make_trainer(tmp_path, *callbacks(0.9), max_steps=2).fit(resumed, loader(), ckpt_path=tmp_path / "last.ckpt")
    assert equal(resumed, module)


def test_a_random_step_and_a_metric_are_not_disturbed_by_scoring(tmp_path: Path) -> None:
    from torchmetrics import MeanMetric

    seen: list[Tensor] = []

    class Noisy(Module):
        def __init__(self, seed: int = 0) -> None:
            super().__init__(seed)
            self.mean = MeanMetric()
            self.other = nn.BatchNorm3d(1)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            image = batch[0] + torch.randn_like(batch[0])
            seen.append(image)
            self.mean.update(image)
            return cross_entropy(self.model(self.other(image)), batch[1])

        def on_train_start(self) -> None:
            assert self.mean.update_count == self.other.num_batches_tracked == self.model[1].num_batches_tracked == 0

    make_trainer(tmp_path, PruneAtInitialisation(0.4, max_batches=2)).fit(Noisy(), loader())
    assert any(torch.equal(a, b) for a, b in pairwise(seen))


def fit(module: LightningModule, callback: Callback, folder: Path, *loaders: Any, **options: Any) -> None:
    make_trainer(folder, callback, **options).fit(module, *loaders)


class Early(Module):
    def __init__(self) -> None:
        super().__init__()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimiser


class Twice(Module):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return cross_entropy(self.model(batch[0]) + self.model(batch[0]), batch[1])


class Never(Module):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.model[0](batch[0]).mean()


class Manual(Module):
    automatic_optimization = False  # type: ignore[assignment]


class Shared(Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = self.model[0]


class Compiled(Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.compile(self.model)  # type: ignore[assignment]


PROBLEMS: dict[str, tuple[Callable[[], LightningModule], dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "attribute": (Module, {"attribute": "modle"}, {}, UnsupportedError, r"'modle'; did you mean 'model'\?"),
    "early optimiser": (Early, {}, {}, UnsupportedError, r"8 of the optimiser's 8 .* inside configure_optimizers"),
    "two calls": (Twice, {}, {}, DataError, r"calls self.model more than once.* Pass loss="),
    "no call": (Never, {}, {}, DataError, r"training_step cannot be run on its own .*Pass loss="),
    "by hand": (Manual, {}, {}, DataError, "Pass loss="),
    "shared": (Shared, {}, {}, UnsupportedError, "self.encoder is part of self.model"),
    "compiled": (Compiled, {}, {}, UnsupportedError, r"self.model.compile\(\)"),
    "spawn": (Module, {}, {"strategy": "ddp_spawn"}, UnsupportedError, "strategy='ddp'"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_told_with_what_to_do(name: str, tmp_path: Path) -> None:
    module, options, settings, kind, message = PROBLEMS[name]
    trainer = make_trainer(tmp_path, **{k: v for k, v in settings.items() if k != "strategy"})
    callback = PruneAtInitialisation(0.4, **options)
    if "strategy" in settings:  # no processes are needed to see the refusal
        trainer = make_trainer(tmp_path, callback, **settings)
        with pytest.raises(kind, match=message):
            callback.setup(trainer, module(), "fit")
        return
    with pytest.raises(kind, match=message):
        fit(module(), callback, tmp_path, loader())


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="did you mean 'strength'"):
        PruneAtInitialisation(0.4, strenght=3)
    with pytest.raises(UnsupportedError, match="nothing says how much"):
        PruneAtInitialisation()
    with pytest.raises(UnsupportedError, match="unpack= is for a loss"):
        PruneAtInitialisation(0.4, unpack=lambda batch: batch)
    with pytest.raises(DataError, match=r"a dict with 'image', 'label'.*unpack="):
        fit(DictModule(), PruneAtInitialisation(0.4, attribute="nets.student", loss=cross_entropy), tmp_path, Data())
    with pytest.raises(UnsupportedError, match="WeightAveraging"):
        make_trainer(tmp_path, PruneAtInitialisation(0.4), WeightAveraging()).fit(Module(), loader())
    callback = PruneAtInitialisation(0.4)
    trainer = make_trainer(tmp_path, callback)
    with pytest.raises(DataError, match=r"no training data.*batches="):
        callback._source(trainer)

    class Late(Callback):
        def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
            trainer.callbacks.append(PruneAtInitialisation(0.4))  # type: ignore[attr-defined]

        def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            trainer.callbacks.append(PruneAtInitialisation(0.4))  # type: ignore[attr-defined]

    with pytest.raises(UnsupportedError, match=r"Trainer\(callbacks="):
        fit(Module(), Late(), tmp_path, loader())


def test_strategies_that_split_the_network_are_refused() -> None:
    strategy = SimpleNamespace(launcher=None, restore_checkpoint_after_setup=True)  # as FSDP's and DeepSpeed's is
    with pytest.raises(UnsupportedError, match=r"splits the network.*ranp.prune"):
        PruneAtInitialisation(0.4).setup(SimpleNamespace(strategy=strategy), Module(), "fit")


@pytest.mark.parametrize(("name", "extra"), [("lightning", "lightning"), ("monai", "medical")])
def test_a_missing_package_is_named(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for gone in ("lightning", "lightning.pytorch", "pytorch_lightning", "monai", "monai.losses.ds_loss"):
        monkeypatch.setitem(sys.modules, gone, None)
    monkeypatch.delitem(sys.modules, f"ranp.integrations.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'ranp\[{extra}\]'"):
        importlib.import_module(f"ranp.integrations.{name}")


OLDER = """
import warnings; warnings.simplefilter("ignore")
import sys, torch, pytorch_lightning as pl
from torch import nn
from ranp.integrations.lightning import PruneAtInitialisation

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Conv3d(1, 8, 1), nn.ReLU(), nn.Conv3d(8, 2, 1))
    def training_step(self, batch):
        return self.model(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

loader = torch.utils.data.DataLoader(torch.randn(4, 1, 3, 3, 3), batch_size=2)
callback = PruneAtInitialisation(0.4)
assert isinstance(callback, pl.Callback)
pl.Trainer(max_steps=1, logger=False, enable_checkpointing=False, callbacks=[callback], accelerator="cpu",
           default_root_dir=sys.argv[1]).fit(Module(), loader)
assert callback.plan.sparsity.removed
"""


@pytest.mark.slow
def test_the_older_name_of_lightning(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    environment = processes.environment()
    done = subprocess.run(
        [sys.executable, "-c", OLDER, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_checkpoint_of_a_full_network_cannot_be_resumed_slim(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, filename="last", every_n_train_steps=2)
    make_trainer(tmp_path, keep, enable_checkpointing=True).fit(Module(), loader())
    with pytest.raises(PlanMismatchError, match="without ckpt_path"):
        make_trainer(tmp_path, PruneAtInitialisation(0.4)).fit(Module(), loader(), ckpt_path=tmp_path / "last.ckpt")


def test_two_callbacks_with_unlike_plans_do_not_mix(tmp_path: Path) -> None:
    path, *_ = saved(tmp_path)
    module = Module()
    make_trainer(tmp_path, PruneAtInitialisation(0.2)).fit(module, loader())
    with pytest.raises(RanpError, match="Build the module anew"):
        slim_from_checkpoint(path, module)


SCRIPT = """
import json
import os

import torch
torch.set_num_threads(1)
from tests.integrations import test_lightning as here
from ranp.integrations.lightning import PruneAtInitialisation

module = here.Module(seed=int(os.environ.get("LOCAL_RANK", "0")))  # the ranks start from different weights
callback = PruneAtInitialisation(0.4)
trainer = here.Trainer(max_steps=2, logger=False, enable_checkpointing=False, accelerator="cpu", devices=2,
                       strategy="ddp", enable_progress_bar=False, enable_model_summary=False,
                       default_root_dir={folder!r})
trainer.callbacks.append(callback)
trainer.fit(module, here.loader(shuffle=True))
told = {{"widths": callback.plan.widths, "kept": {{k: list(v) for k, v in callback.plan.kept.items()}},
         "batches": callback.plan.settings["batches"],
         "sum": [float(p.detach().double().sum()) for p in module.parameters()],
         "held": {{id(p) for g in trainer.optimizers[0].param_groups for p in g["params"]}}
                 == {{id(p) for p in module.parameters()}}}}
open({folder!r} + f"/rank{{trainer.global_rank}}.json", "w").write(json.dumps(told))
"""


@pytest.mark.slow
def test_two_processes_get_the_same_plan_and_weights(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(tmp_path)))
    port = str(processes.free_port())
    environment = processes.environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["held"]
    assert first["widths"]["0"] < 8
    assert ranp.Plan.load(tmp_path / "plan.json").widths == first["widths"]
