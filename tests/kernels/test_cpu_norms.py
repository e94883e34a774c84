"""Norms of many small tensors at once, against float64 one by one."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sonde.kernels.cpu_norms import CpuNorms
from sonde.probes.norms import Norms


def plainly(tensor: Tensor) -> float:
    wide = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return float(wide.double().norm())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(-36, 36)), min_size=1, max_size=80),
    st.booleans(),
    st.integers(0, 2**31 - 1),
)
def test_norms_agree_with_float64_from_the_smallest_to_the_largest(
    sizes: list[tuple[int, int]], alike: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(size, 3) if alike else (3, size) for size, _ in sizes]
    tensors = [
        torch.randn(shape, generator=generator) * 10.0**exponent
        for shape, (_, exponent) in zip(shapes, sizes, strict=True)
    ]
    found = CpuNorms(tensors)(tensors).tolist()
    assert found == pytest.approx([plainly(tensor) for tensor in tensors], rel=1e-6, abs=0)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-13, 1.0, 1e15, 1e30, 1e37])
def test_values_of_any_size_beside_plain_ones_are_right(scale: float) -> None:
    tensors = [torch.randn(8, 8) for _ in range(100)] + [torch.full((8, 8), scale), torch.full((70_000,), scale)]
    found = CpuNorms(tensors)(tensors).tolist()
    assert found == pytest.approx([plainly(tensor) for tensor in tensors], rel=1e-6, abs=0)


def test_types_may_be_mixed_and_layouts_any() -> None:
    plain = torch.arange(1.0, 13.0).view(3, 4)
    complex_ones = torch.complex(plain, plain)
    tensors = [plain.double(), plain, plain.T, plain.bfloat16(), plain.half(), plain[:, :2], complex_ones, plain[:0]]
    found = CpuNorms(tensors)(tensors).tolist()
    assert found == pytest.approx([plainly(tensor) for tensor in tensors], rel=1e-6, abs=0)


def test_other_tensors_of_the_same_shapes_are_measured_and_others_refused() -> None:
    norms = CpuNorms([torch.zeros(2, 2), torch.zeros(3)])
    assert norms([torch.full((2, 2), 2.0), torch.ones(3)]).tolist() == pytest.approx([4.0, math.sqrt(3)])
    with pytest.raises(ValueError, match="prepared"):
        norms([torch.ones(3), torch.ones(2, 2)])
    with pytest.raises(ValueError, match="prepared"):
        norms([torch.ones(2, 2)])


def test_a_value_that_is_not_finite_makes_the_norm_of_its_tensor_infinite_or_nan_and_no_other() -> None:
    tensors = [torch.ones(4), torch.tensor([1.0, math.inf]), torch.tensor([math.nan]), torch.zeros(5), torch.ones(1)]
    assert CpuNorms(tensors)(tensors).tolist() == pytest.approx([2.0, math.inf, math.nan, 0.0, 1.0], nan_ok=True)


@pytest.mark.parametrize("num_tiny", [0, 3, 100])
@pytest.mark.parametrize("num_large", [0, 2])
def test_the_norms_of_few_and_many_and_large_tensors_come_in_their_order(num_tiny: int, num_large: int) -> None:
    tensors = [torch.full((5 + i,), 1.0 + i) for i in range(num_tiny)]
    for i in range(num_large):
        tensors.insert(i, torch.full((10_000 + i,), 0.5))
    if tensors:
        assert Norms(tensors)(tensors).tolist() == pytest.approx([plainly(t) for t in tensors], rel=1e-6)
