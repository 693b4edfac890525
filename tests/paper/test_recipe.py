"""Recipes: every field can be set and is checked, learning rates follow the paper, nothing is lost in JSON."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from torch.utils._pytree import tree_map

import ranp
from ranp.costs.step.optimisers import name_of
from ranp.errors import UnsupportedError
from ranp.paper import tasks
from ranp.paper.recipe import Recipe
from ranp.paper.scoring import example_of
from ranp.paper.training.network import make_full, make_optimiser

PLAIN = Recipe(network="unet3d-shapenet", size=16, epochs=4, batch=2, optimiser="adam", learning_rate=0.01)


def test_settings_are_read_as_their_fields_are_typed() -> None:
    made = PLAIN.but(
        (
            "epochs=7 learning_rate=1e-3 nesterov=true milestones=3,5 train_count=12 init=orthogonal "
            "options.widths=4,8 options.softmax_in_eval=false checkpoint_every=5"
        ).split()
    )
    assert made == dataclasses.replace(
        PLAIN,
        epochs=7,
        learning_rate=1e-3,
        nesterov=True,
        milestones=(3, 5),
        train_count=12,
        init="orthogonal",
        options={"widths": (4, 8), "softmax_in_eval": False},
        checkpoint_every=5,
    )
    assert made.but(["train_count=all", "checkpoint_every=none", "milestones=none"]) == dataclasses.replace(
        made, train_count=None, checkpoint_every=None, milestones=()
    )


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("epoch=3", ["'epoch'", "did you mean 'epochs'"]),
        ("epochs", ["not key=value"]),
        ("epochs=three", ["epochs=three", "a whole number"]),
        ("epochs=0", ["epochs=0", "at least 1"]),
        ("learning_rate=nan", ["learning_rate=nan", "finite"]),
        ("learning_rate=-1", ["learning_rate=-1", "above 0"]),
        ("momentum=1.5", ["momentum=1.5", "below 1"]),
        ("nesterov=perhaps", ["nesterov=perhaps", "true or false"]),
        ("optimiser=sdg", ["'sdg'", "did you mean 'sgd'"]),
        ("schedule=cosine", ["'cosine'", "constant, exponential, step"]),
        ("precision=fp8", ["'fp8'", "bf16"]),
        ("milestones=5,3", ["milestones=[5, 3]", "rising"]),
        ("milestones=a,b", ["milestones=a,b", "whole numbers"]),
        ("size=4", ["size=4", "at least 8"]),
        ("options=3", ["'options'"]),
        ("weight_decay=-0.1", ["weight_decay=-0.1", "at least 0"]),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(setting: str, parts: list[str]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        PLAIN.but([setting])
    for part in parts:
        assert part in str(caught.value)


def test_words_of_a_training_step_and_of_older_files_are_taken() -> None:
    sgd = dataclasses.replace(PLAIN, optimiser="sgd")
    assert PLAIN.but(["optimiser=nesterov"]) == dataclasses.replace(sgd, nesterov=True)
    assert PLAIN.but(["optimiser=amsgrad"]) == dataclasses.replace(PLAIN, amsgrad=True)
    assert PLAIN.but(["optimiser=momentum"]) == sgd
    for old, new in (("bf16", "amp-bfloat16"), ("fp16", "amp-float16")):
        assert Recipe.from_dict({**PLAIN.to_dict(), "precision": old}).precision == new


def test_the_step_of_a_recipe_is_one_part_of_a_batch_on_one_rank() -> None:
    recipe = dataclasses.replace(PLAIN, batch=12, accumulate=2, precision="amp-float16")
    assert recipe.step() == ranp.TrainingStep(6, "adam", "amp-float16")
    assert recipe.step(ranks=3).batch == 2
    assert recipe.but(["optimiser=sgd", "momentum=0"]).step().optimiser == "sgd"
    assert recipe.but(["optimiser=sgd"]).step().optimiser == "momentum"
    shapenet = tasks.get("shapenet")
    assert tasks.step_of(shapenet) == ranp.TrainingStep(12, "nesterov")
    assert tasks.step_of(shapenet, "cpu") == shapenet.cpu.step()
    assert tasks.step_of(shapenet, batch=1, optimiser="sgd", precision="float64", checkpointing=True) == (
        ranp.TrainingStep(1, "sgd", "float64", checkpointing=True)
    )
    with pytest.raises(UnsupportedError, match="gpu"):
        tasks.step_of(shapenet, "gpu")


@pytest.mark.parametrize("name", tasks.names())
def test_the_memory_of_a_step_is_that_of_the_optimiser_and_the_batch_that_train(name: str) -> None:
    task = tasks.get(name)
    recipe = dataclasses.replace(task.cpu, batch=2, accumulate=1)
    model = make_full(task, recipe)
    optimiser = make_optimiser(model, recipe)
    assert name_of(optimiser) == recipe.step().optimiser
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    kept = [value for entry in optimiser.state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
    found = ranp.training_memory(model, example_of(task, recipe.size), step=recipe.step())
    assert found.state == sum(tensor.nbytes for tensor in kept)
    batch = tree_map(lambda tensor: tensor.expand(2, *tensor.shape[1:]).contiguous(), example_of(task, recipe.size))
    assert found == ranp.training_memory(model, batch, step=dataclasses.replace(recipe.step(), batch=None))


def test_learning_rates_are_those_of_the_paper() -> None:
    shapenet, brats = tasks.get("shapenet").recipe, tasks.get("brats").recipe
    ucf101, sceneflow = tasks.get("ucf101").recipe, tasks.get("sceneflow").recipe
    assert [shapenet.rate(epoch) for epoch in (0, 1, 50)] == [0.1, 0.1 * math.exp(-0.04), 0.1 * math.exp(-2)]
    assert [brats.rate(epoch) for epoch in (0, 149, 150, 199)] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])
    assert [ucf101.rate(epoch) for epoch in (39, 40, 54, 55, 60, 70)] == pytest.approx(
        [0.1, 0.01, 0.01, 1e-3, 1e-4, 1e-5]
    )
    assert sceneflow.rate(0) == sceneflow.rate(14) == 1e-3


def test_the_papers_recipes() -> None:
    told = {
        name: (r.optimiser, r.epochs, r.batch, r.size, r.weight_decay, r.nesterov, r.amsgrad, r.network)
        for name in tasks.names()
        for r in [tasks.get(name).recipe]
    }
    assert told == {
        "shapenet": ("sgd", 100, 12, 64, 1e-4, True, False, "unet3d-shapenet"),
        "brats": ("adam", 200, 2, 128, 1e-4, False, True, "unet3d-brats"),
        "ucf101": ("sgd", 100, 8, 112, 1e-3, False, False, "mobilenetv2-ucf101"),
        "sceneflow": ("adam", 15, 12, 256, 0.0, False, False, "psm-sceneflow"),
    }
    assert {name: tasks.get(name).strength for name in tasks.names()} == {
        "shapenet": 11,
        "brats": 15,
        "ucf101": 80,
        "sceneflow": 100,
    }


def test_a_recipe_survives_json() -> None:
    made = PLAIN.but(["options.widths=4,8", "milestones=1,2"])
    assert Recipe.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    for name in tasks.names():
        for recipe in (tasks.get(name).recipe, tasks.get(name).cpu):
            assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    with pytest.raises(UnsupportedError, match="unknown setting 'epoch'"):
        Recipe.from_dict({**made.to_dict(), "epoch": 3})
    with pytest.raises(UnsupportedError, match="not complete"):
        Recipe.from_dict({"network": "unet3d-shapenet"})


def test_a_recipe_cannot_be_changed_from_outside() -> None:
    options = {"widths": (4, 8)}
    made = dataclasses.replace(PLAIN, options=options)
    options["widths"] = (1,)
    assert made.options["widths"] == (4, 8)
    with pytest.raises(TypeError):
        made.options["widths"] = (1,)  # type: ignore[index]
