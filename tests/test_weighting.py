from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ranp.errors import DataError, PlanMismatchError
from ranp.scoring.scores import Scores
from ranp.weighting import balance, reweight

values = st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5)
networks = st.dictionaries(st.sampled_from("abcdefg"), values, min_size=1).map(
    lambda layers: Scores({name: torch.tensor(v, dtype=torch.float64) for name, v in layers.items()})
)


@given(networks)
def test_balanced_layers_have_the_largest_mean(scores: Scores):
    largest = max(float(v.mean()) for v in scores.values())
    balanced = balance(scores)
    assert balanced.stage == "balanced"
    for name, v in balanced.items():
        assert float(v.mean()) == pytest.approx(largest, rel=1e-12)
        torch.testing.assert_close(v / v.sum(), scores[name] / scores[name].sum(), rtol=1e-12, atol=0)


@given(networks, st.lists(st.floats(0, 1e12), min_size=7, max_size=7), st.floats(0, 1e3))
def test_reweighting_is_the_formula(scores: Scores, taus: list[float], strength: float):
    costs = dict(zip("abcdefg", taus, strict=True))
    reweighted = reweight(scores, costs, strength)
    largest = max(costs[name] for name in scores) or 1.0
    exponentials = {name: math.exp(-costs[name] / largest) for name in scores}
    for name in scores:
        factor = 1 + strength * exponentials[name] / sum(exponentials.values())
        torch.testing.assert_close(reweighted[name], scores[name] * factor, rtol=1e-12, atol=0)
    assert reweighted.stage == "reweighted"


@given(networks, st.lists(st.floats(0, 1e12), min_size=7, max_size=7))
def test_strength_zero_changes_no_bit(scores: Scores, taus: list[float]):
    reweighted = reweight(scores, dict(zip("abcdefg", taus, strict=True)), 0)
    assert all(torch.equal(reweighted[name], scores[name]) for name in scores)


def test_cheap_layers_gain_at_most_e_times_what_costly_ones_do():
    raw = Scores({"cheap": torch.ones(1), "dear": torch.ones(1)})
    gained = {name: float(v) - 1 for name, v in reweight(raw, {"cheap": 0.0, "dear": 1e15}, 11.0).items()}
    assert gained["cheap"] / gained["dear"] == pytest.approx(math.e)
    assert sum(gained.values()) == pytest.approx(11.0)


def test_excluded_layers_take_no_part():
    raw = Scores({"a": torch.tensor([1.0, 3.0]), "dead": torch.zeros(2)}, excluded={"dead": "no gradient reaches it"})
    alone = Scores({"a": torch.tensor([1.0, 3.0])})
    assert torch.equal(balance(raw)["a"], balance(alone)["a"])
    assert torch.equal(reweight(raw, {"a": 2.0}, 5.0)["a"], reweight(alone, {"a": 2.0}, 5.0)["a"])
    assert balance(raw)["dead"].tolist() == [0.0, 0.0]
    assert balance(raw).excluded == raw.excluded


def test_single_weights_are_scaled_with_their_layer():
    raw = Scores({"a": torch.tensor([3.0]), "b": torch.tensor([6.0])}, weights={"a": torch.tensor([[1.0, 2.0]])})
    assert balance(raw).weights["a"].tolist() == [[2.0, 4.0]]
    assert raw.weights["a"].tolist() == [[1.0, 2.0]]


def test_refusals():
    raw = Scores({"a": torch.ones(2), "b": torch.ones(2)})
    costs = {"a": 1.0, "b": 2.0}
    with pytest.raises(DataError, match="balanced already"):
        balance(balance(raw))
    with pytest.raises(DataError, match="reweighted already"):
        balance(reweight(raw, costs, 1.0))
    with pytest.raises(DataError, match="reweighted already"):
        reweight(reweight(raw, costs, 1.0), costs, 1.0)
    for strength in (-1.0, float("nan"), float("inf")):
        with pytest.raises(DataError, match="strength="):
            reweight(raw, costs, strength)
    with pytest.raises(PlanMismatchError, match="'b' has scores but no cost"):
        reweight(raw, {"a": 1.0}, 1.0)
    for cost in (-1.0, float("nan"), float("inf")):
        with pytest.raises(DataError, match="cost of layer 'b'"):
            reweight(raw, {"a": 1.0, "b": cost}, 1.0)
    with pytest.raises(DataError, match="'z' are zero"):
        balance(Scores({"a": torch.ones(2), "z": torch.zeros(2)}))
    with pytest.raises(DataError, match="every layer"):
        balance(Scores({"z": torch.zeros(2)}, excluded={"z": "dead"}))
