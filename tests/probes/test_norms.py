"""Norms of gradients, one a tensor."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonde.probes.norms import tensor_norms


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(-36, 36)), min_size=1, max_size=6), st.integers(0, 2**31 - 1))
def test_norms_of_any_size_agree_with_float64(sizes: list[tuple[int, int]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, generator=generator) * 10.0**exponent for size, exponent in sizes]
    for found, tensor in zip(tensor_norms(tensors).tolist(), tensors, strict=True):
        assert found == pytest.approx(float(tensor.double().norm()), rel=1e-5, abs=0)


def test_types_may_be_mixed_and_complex_values_are_pairs() -> None:
    plain = torch.arange(1.0, 5.0)
    tensors = [plain.bfloat16(), plain, plain.double(), plain.half() * 1000, torch.complex(plain, plain), plain[:0]]
    wanted = [math.sqrt(30)] * 3 + [1000 * math.sqrt(30), math.sqrt(60), 0.0]
    assert tensor_norms(tensors).tolist() == pytest.approx(wanted, rel=1e-6)
    assert tensor_norms([torch.complex(plain, plain).conj()]).tolist() == pytest.approx([math.sqrt(60)])


def test_non_finite_values_make_a_norm_that_is_not_finite() -> None:
    norms = tensor_norms([torch.tensor([1.0, math.nan]), torch.tensor([1.0, -math.inf]), torch.ones(4)]).tolist()
    assert [math.isfinite(norm) for norm in norms] == [False, False, True]
