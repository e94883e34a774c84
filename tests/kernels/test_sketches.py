"""Estimates from sketches, against the tensors, with the errors that the docstring states."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sonde.core.records import Float64
from sonde.kernels import tensor_stats
from sonde.kernels.sketch_products import sketch_products

TRIES = 60


def sketch(x: torch.Tensor, ids: list[int]) -> npt.NDArray[np.float32]:
    """Sketches of one tensor under many signs."""
    found = tensor_stats([x] * len(ids), ids=ids, sketch=True).sketch
    assert found is not None
    array: npt.NDArray[np.float32] = found.numpy()
    return array


def estimated(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> tuple[Float64, Float64, Float64]:
    """Inner products, norms of the first, and cosines."""
    inner, first, second = sketch_products(torch.from_numpy(left), torch.from_numpy(right)).numpy().T
    return inner, np.sqrt(first), inner / np.sqrt(first * second)


def pair(cosine: float, columns: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Two 256 × 768 matrices at about an angle, their columns weighted."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(256, 768, generator=generator) for _ in range(2))
    b = cosine * a + (1 - cosine**2) ** 0.5 * b
    return (a, b) if columns is None else (a * columns, b * columns)


@pytest.mark.parametrize("cosine", [0.0, 0.5, -0.9, 0.999])
def test_errors_are_as_small_as_stated(cosine: float) -> None:
    a, b = pair(cosine)
    ids = list(range(TRIES))
    left, right = sketch(a, ids), sketch(b, ids)
    inner, norm = float(torch.sum(a.double() * b.double())), float(torch.linalg.norm(a.double()))
    true = inner / norm / float(torch.linalg.norm(b.double()))
    # A standard deviation from 60 tries is known to 10%; the mean of 60 to an eighth of a deviation.
    size = norm * float(torch.linalg.norm(b.double()))
    inners, norms, cosines = estimated(left, right)
    error = (inners - inner) / size
    assert np.std(error) == pytest.approx(((1 + true**2) / 256) ** 0.5, rel=0.4)
    assert abs(np.mean(error)) < 4 * np.std(error) / TRIES**0.5
    assert np.std(norms / norm - 1) < 1.5 / 512**0.5
    assert np.std(cosines - true) < 1.5 * (1 - true**2) / 16


def test_a_column_that_outweighs_all_others_is_spread_over_the_sums() -> None:
    weights = torch.ones(768)
    weights[5] = 100.0  # 93% of the energy, at places that are equal modulo 256
    a, b = pair(0.3, weights)
    ids = list(range(TRIES))
    true = float(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0))
    error = estimated(sketch(a, ids), sketch(b, ids))[2] - true
    assert np.std(error) < 2 / 96**0.5  # 32 sums in each of 3 stretches of 65,536 values; 0.9 if rows were not turned


def test_sketches_are_linear() -> None:
    a, b = pair(0.2)
    difference = sketch(a, [7]) - sketch(b, [7])
    assert sketch(a - b, [7]) == pytest.approx(difference, abs=1e-3)


def test_several_tensors_compare_as_one_vector_by_the_sums_of_their_products() -> None:
    a = torch.stack([torch.full((256,), 3.0), torch.zeros(256)])
    b = torch.stack([torch.full((256,), 3.0), torch.full((256,), 4.0)])
    inner, first, second = sketch_products(a, b).sum(0).tolist()
    assert inner / (first * second) ** 0.5 == pytest.approx(0.6)
    assert second**0.5 == pytest.approx(80.0)
