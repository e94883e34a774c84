"""The learning rate that an update by hand was made with."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sonde.integrations.rates import Change, fits, infer


def change(before: Tensor, after: Tensor, gradient: Tensor) -> Change:
    one, two, three = (t.double().numpy() for t in (before, after, gradient))
    return Change(one, two, three, torch.finfo(before.dtype).eps)


def drawn(seed: int, *, scale: float, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = 0.1 * torch.randn(200, generator=generator)
    return weights.to(dtype), (scale * torch.randn(200, generator=generator)).to(dtype)


@given(st.integers(0, 1000), st.floats(1e-4, 50.0), st.sampled_from(["alpha", "product", "assigned"]))
def test_the_rate_of_plain_descent_is_found_to_rounding(seed: int, rate: float, style: str) -> None:
    before, gradient = drawn(seed, scale=1.0)
    after = {
        "alpha": torch.add(before, gradient, alpha=-rate),
        "product": before - rate * gradient,
        "assigned": before - (rate / 2) * (2 * gradient),
    }[style]
    assert infer(change(before, after, gradient)) == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("rate", [20.0, 5.0, 0.1, 0.05, 3e-4, 0.3125])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rate_that_somebody_chose_is_told_as_it_was_written(rate: float, dtype: torch.dtype) -> None:
    before, gradient = drawn(1, scale=1.0, dtype=dtype)
    assert infer(change(before, before - rate * gradient, gradient)) == rate


def test_a_rate_uphill_is_the_same_number() -> None:
    before, gradient = drawn(2, scale=1.0)
    assert infer(change(before, before + 0.1 * gradient, gradient)) == 0.1
    assert infer(change(before, before + 0.1 * gradient, gradient), last=0.1) == 0.1


def test_a_last_rate_is_kept_while_it_fits_and_given_up_when_it_does_not() -> None:
    before, gradient = drawn(3, scale=1.0)
    third = 0.1 / 3
    assert infer(change(before, before - third * gradient, gradient), last=third) == third
    assert infer(change(before, before - 0.025 * gradient, gradient), last=0.1) == 0.025


@pytest.mark.parametrize("kind", ["momentum", "decay", "rates by layer", "another gradient", "lost in rounding", "NaN"])
def test_updates_of_other_kinds_have_no_rate(kind: str) -> None:
    before, gradient = drawn(4, scale=1.0)
    other = drawn(5, scale=1.0)[1]
    rates = torch.cat([torch.full((100,), 0.1), torch.full((100,), 0.2)])
    after = {
        "momentum": before - 0.1 * (gradient + 0.9 * other),
        "decay": before - 0.1 * (gradient + 1e-4 * before),
        "rates by layer": before - rates * gradient,
        "another gradient": before - 0.1 * other,
        "lost in rounding": before - 1e-11 * gradient,
        "NaN": before - 0.1 * gradient * torch.tensor([1.0] * 199 + [torch.nan]),
    }[kind]
    assert infer(change(before, after, gradient)) is None


def test_nothing_fits_numbers_that_are_not_finite() -> None:
    nothing = np.full(3, np.nan)
    assert not fits(Change(nothing, nothing, nothing, 2**-23), 0.1)
    assert infer(Change(nothing, nothing, nothing, 2**-23), last=0.1) is None
    assert infer(Change(np.zeros(3), np.zeros(3), np.zeros(3), 2**-23)) is None
