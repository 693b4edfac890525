"""Values of constants without data, against the same code run for real."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ranp.running.dataless import execute
from ranp.running.randomness import ambient_seed, untouched_rng
from ranp.tracing.constants import LARGEST, Constants, MadeFromNumbers, compact


class Following(TorchDispatchMode):
    """Runs operators without data and follows constants."""

    def __init__(self) -> None:
        super().__init__()
        self.constants = Constants(meta=True)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = execute(func, args, kwargs or {})
        self.constants.follow(func, args, kwargs or {}, out)
        return out


def followed(code: Callable[[Tensor], Tensor], x: Tensor) -> Tensor | None:
    """The value of what code makes beside a tensor without data, None if it is not known."""
    mode, empty = Following(), x.to("meta")
    with untouched_rng():
        ambient_seed()
        with mode, MadeFromNumbers():
            made = code(empty)
        return mode.constants.of(made)


def seeded(count: int) -> Tensor:
    """Numbers that the code draws from a seed of its own."""
    return torch.randn(count, generator=torch.Generator().manual_seed(5))


def written() -> Tensor:
    """Zeros with something written into a part of them."""
    made = torch.zeros(4, 3)
    made[1:3, 0] = torch.tensor([2.0, 5.0])
    made[:, 2].add_(1.5)
    return made


X = torch.rand(2, 6, 4)
CODE: dict[str, Callable[[Tensor], Tensor]] = {
    "tensor": lambda x: torch.tensor(float(x.shape[1])),
    "tensor on the device": lambda x: torch.tensor([1.0, x.shape[1]], device=x.device).sqrt(),
    "new tensor": lambda x: x.new_tensor([[1.0], [x.shape[1]]]) * 3,
    "new full": lambda x: x.new_full((2,), x.shape[1]) / 7,
    "zeros and ones": lambda x: torch.cat([torch.zeros(3), torch.ones(2)]).view(5, 1).expand(5, 2),
    "ones counted": lambda x: torch.ones_like(x).sum(1),
    "spaced": lambda x: torch.linspace(0, 1, x.shape[1])[2:5].exp(),
    "identity": lambda x: torch.eye(3) @ torch.full((3, 2), 2.0),
    "drawn from a seed": lambda x: seeded(x.shape[1]).sort().values,
    "written to": lambda x: written(),
    "several": lambda x: torch.arange(6.0).chunk(3)[1] + torch.arange(6.0).reshape(3, 2).unbind(1)[0][:2],
    "numpy": lambda x: torch.from_numpy(np.arange(6.0)).to(x) * 2,
}


@pytest.mark.parametrize("name", CODE)
def test_a_constant_has_the_value_it_would_have(name: str) -> None:
    value = followed(CODE[name], X)
    assert value is not None
    assert torch.allclose(value.double(), CODE[name](X).double())


LARGE = torch.empty(1, 8, 64, 64, 64, device="meta")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (lambda x: torch.ones_like(x).sum(1), 8.0),
        (lambda x: (2 * torch.ones_like(x) + 1).mean((1, 2)), 3.0),
        (lambda x: torch.ones_like(x).permute(0, 2, 3, 4, 1).reshape(1, -1, 8).sum(-1).sqrt(), 8**0.5),
        (lambda x: torch.zeros_like(x).add(4.0)[:, :3].amax(1), 4.0),
    ],
)
def test_large_constants_of_equal_elements_take_no_memory(code: Callable[[Tensor], Tensor], expected: float) -> None:
    value = followed(code, LARGE)
    assert value is not None
    numbers = compact(value)
    assert numbers is not None
    assert numbers.size == 1
    assert numbers.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "code",
    [
        lambda x: x + 1,
        lambda x: torch.ones(2, 6, 4) * x,
        lambda x: torch.randn(3),
        lambda x: torch.ones_like(x).cumsum(1).add_(x),
        lambda x: torch.zeros(2, 6, 4).copy_(x)[0],
        lambda x: torch.rand_like(x),
    ],
    ids=["input", "product", "noise", "added to", "copied into", "noise like it"],
)
def test_what_depends_on_data_or_chance_is_no_constant(code: Callable[[Tensor], Tensor]) -> None:
    assert followed(code, X) is None


def test_a_view_of_what_was_overwritten_is_known_no_more() -> None:
    def code(x: Tensor) -> Tensor:
        made = torch.zeros(2, 6, 4)
        part = made[:, :3]
        made.add_(x)
        return part

    assert followed(code, X) is None


def test_numbers_are_told_once_for_dimensions_along_which_they_are_equal() -> None:
    assert compact(torch.ones(3, 4)).shape == (1, 1)
    assert compact(torch.arange(3.0)[:, None].expand(3, 4)).shape == (3, 1)
    assert compact(torch.arange(12.0).view(3, 4)).shape == (3, 4)
    assert compact(torch.full((2,), torch.nan)).shape == (1,)
    assert compact(torch.rand(LARGEST + 1)) is None
