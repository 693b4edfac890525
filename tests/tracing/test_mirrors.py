from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ranp


class Projecting(nn.Module):
    """An LSTM whose states are projected."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 6), nn.Linear(4, 3)
        self.memory = nn.LSTM(6, 8, proj_size=4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """All steps."""
        found: Tensor = self.head(self.memory(self.embed(x).relu())[0])
        return found


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_states_that_are_projected_stay() -> None:
    trace = ranp.trace(Projecting(), torch.zeros(2, 5, 4))
    assert {layer.name for layer in trace.layers if not layer.pinned} == {"embed"}
    assert "must be wider than its projection" in trace.layer("memory.weight_ih_l0").reason


def test_a_slim_recurrent_layer_knows_its_sizes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.GRU(6, 8, num_layers=2, batch_first=True))
    batches = [((torch.randn(2, 5, 4),), None)]
    pruned = ranp.prune(model, batches, lambda output, _: output[0].square().mean(), sparsity=0.3, exact=True)
    memory = pruned.model[2]
    assert (memory.input_size, memory.hidden_size) == (memory.weight_ih_l0.shape[1], memory.weight_hh_l0.shape[1])
    assert memory.input_size < 6
