"""Answers that do not look at their input are worth what counting says."""

from __future__ import annotations

import pytest
import torch

from ranp.paper import tasks
from ranp.paper.guessing import always, frequencies, trivial


def test_the_most_frequent_answer_is_right_as_often_as_it_occurs() -> None:
    task = tasks.get("ucf101")
    recipe = task.cpu
    samples, others = (data(16, 8, recipe.seed) for data in (task.train_data, task.valid_data))
    counts = frequencies(task, samples, len(samples))
    assert counts.sum() == len(samples)
    labels = [int(others[index][1]) for index in range(len(others))]
    for label in set(labels):
        scores = torch.nn.functional.one_hot(torch.tensor(label), task.classes).float()
        assert always(task, scores, others)["top1_clip"] == pytest.approx(labels.count(label) / len(labels))


def test_the_best_of_a_few_constant_answers_is_taken() -> None:
    task = tasks.get("brats")
    recipe = task.cpu.but(["train_count=4", "valid_count=4", "size=16"])
    validation = task.valid_data(recipe.size, recipe.valid_count, recipe.seed)
    each = [always(task, scores, validation)["dice"] for scores in torch.eye(task.classes)]
    assert max(each) > 0
    assert trivial(task, recipe, "dice") == pytest.approx(max(each))
