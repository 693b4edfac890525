"""What a task's network is scored on: single samples drawn evenly from the whole training data, made when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ranp.paper.tasks.task import Samples, Task


class ScoringBatches:
    """Batches of one sample each, as the paper scores, or of more.

    Data sets are often sorted by class, so the samples are drawn by seed, not taken from the beginning.

    Args:
        task: Whose training data.
        size: Edge of a sample.
        count: How many batches, over all ranks; as many as the data have if that is fewer.
        seed: Same seed, same samples.
        rank: Every rank takes its share: batches ``rank``, ``rank + ranks``, ...
        ranks: Number of ranks.
        batch: Samples in a batch.
    """

    def __init__(
        self, task: Task, size: int, count: int, seed: int, rank: int = 0, ranks: int = 1, batch: int = 1
    ) -> None:
        self.samples: Samples = task.train_data(size, None, seed)
        order = np.random.default_rng((seed, 2)).permutation(len(self.samples)).tolist()
        batches = [order[start : start + batch] for start in range(0, len(order) - batch + 1, batch)][:count]
        self.chosen: list[list[int]] = batches[rank::ranks]

    def __len__(self) -> int:
        return len(self.chosen)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        for numbers in self.chosen:
            samples = [self.samples[number] for number in numbers]
            inputs = tree_map(lambda *tensors: torch.stack(tensors), *(given for given, _ in samples))
            yield inputs, torch.stack([target for _, target in samples])


def example_of(task: Task, size: int, seed: int = 0) -> Any:
    """The inputs of one call with one training sample, without data: what costs are taken at."""
    inputs, _ = task.train_data(size, None, seed)[0]
    return tree_map(lambda tensor: torch.empty((1, *tensor.shape), dtype=tensor.dtype, device="meta"), inputs)
