"""The products that compare sketches of two steps. The kernel by itself is interpreted in test_paths.py."""

import numpy as np
import pytest
import torch

from sonde.kernels import tensor_stats
from sonde.kernels.sketch_products import sketch_products


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return str(request.param)


def sketches_of(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    now = [torch.randn(n, device=device) for n in (300, 70_000, 0, 5)]
    before = [tensor + torch.randn_like(tensor) for tensor in now]
    a, b = tensor_stats(now, sketch=True).sketch, tensor_stats(before, sketch=True).sketch
    assert a is not None
    assert b is not None
    return a, b


def test_they_are_the_inner_products_of_the_sketches(device: str) -> None:
    a, b = sketches_of(device)
    x, y = a.cpu().double().numpy(), b.cpu().double().numpy()
    want = np.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)], axis=1)
    for _ in range(3):  # on a GPU the first is launched by Triton, others are not
        found = sketch_products(a, b)
        assert (found.dtype, found.shape, found.device.type) == (torch.float64, (4, 3), device)
        assert np.allclose(found.cpu().numpy(), want, rtol=1e-12)


def test_sketches_that_lie_otherwise_are_multiplied_as_well(device: str) -> None:
    a, b = sketches_of(device)
    apart, want = torch.stack([a, b], dim=1), sketch_products(a, b)
    assert torch.allclose(sketch_products(apart[:, 0], apart[:, 1]), want, rtol=1e-12)
    assert torch.allclose(sketch_products(a.double(), b.double()), want, rtol=1e-12)


def test_no_sketches_give_no_products(device: str) -> None:
    nothing = torch.empty(0, 256, device=device)
    assert sketch_products(nothing, nothing).shape == (0, 3)


def test_a_sketch_that_overflowed_gives_products_that_are_not_finite(device: str) -> None:
    a, b = sketches_of(device)
    a[1, 3] = torch.inf
    finite = sketch_products(a, b).isfinite()
    assert finite.tolist() == [[True] * 3, [False, False, True], [True] * 3, [True] * 3]


@pytest.mark.parametrize("other", [torch.zeros(2, 256), torch.zeros(1, 255), torch.zeros(256)])
def test_what_is_no_pair_of_sketches_is_refused(other: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="sketches"):
        sketch_products(torch.zeros(1, 256), other)
    with pytest.raises(ValueError, match="sketches"):
        sketch_products(other[..., :200], other[..., :200])
