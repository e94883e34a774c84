"""The one door: what it takes, what it refuses, and what it leaves alone."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from sonde.kernels import Column, TensorStats, columns, reference, tensor_stats
from sonde.kernels.dispatch import PlainStats
from sonde.kernels.layouts import Layouts


def test_one_call_measures_tensors_of_mixed_dtypes_in_their_order() -> None:
    tensors = [torch.full((5,), float(i)).to(dtype) for i, dtype in enumerate((torch.float64, torch.half, torch.float))]
    assert tensor_stats(tensors).rows[:, Column.MEAN].tolist() == [0.0, 1.0, 2.0]


def test_a_prepared_object_measures_fresh_tensors() -> None:
    stats = TensorStats([torch.zeros(3, 4)])
    assert (stats.path, stats.reason) == ("native", None)
    for value in (1.0, 2.0):
        rows = stats([torch.full((3, 4), value)]).rows.numpy()
        assert columns.norm(rows).tolist() == pytest.approx([value * 12**0.5])


def test_only_what_is_asked_for_is_made() -> None:
    found = tensor_stats([torch.ones(3)])
    assert found.histogram is None
    assert found.sketch is None
    found = tensor_stats([torch.ones(3)], histogram=True, sketch=True)
    assert found.histogram is not None
    assert (found.histogram.dtype, found.histogram.shape) == (torch.int32, (1, 2048))
    assert found.sketch is not None
    assert (found.sketch.dtype, found.sketch.shape) == (torch.float32, (1, 256))


def test_no_tensors_give_no_rows() -> None:
    found = tensor_stats([], histogram=True, sketch=True)
    assert found.rows.shape == (0, 7)
    assert found.histogram is not None
    assert found.histogram.shape == (0, 2048)


def test_ids_pick_the_signs_of_a_sketch() -> None:
    x = torch.randn(5000)
    sketches = tensor_stats([x, x, x], ids=[4, 9, 4], sketch=True).sketch
    assert sketches is not None
    assert torch.equal(sketches[0], sketches[2])
    assert not torch.equal(sketches[0], sketches[1])


@pytest.mark.parametrize("given", [[], [torch.zeros(3)], [torch.zeros(2, dtype=torch.half)], [torch.zeros(2)] * 2])
def test_tensors_that_were_not_prepared_for_are_refused(given: list[torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="prepare"):
        TensorStats([torch.zeros(2)])(given)


def test_integers_sparse_and_meta_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        TensorStats([torch.tensor([1])])
    with pytest.raises(TypeError, match="coalesce"):
        TensorStats([torch.eye(2).to_sparse()])
    with pytest.raises(TypeError, match="meta"):
        TensorStats([torch.zeros(2, device="meta")])


def test_ids_must_be_as_many_as_tensors() -> None:
    with pytest.raises(ValueError, match="ids"):
        TensorStats([torch.zeros(2)], ids=[1, 2])


def test_unusual_floating_point_types_are_measured_by_a_copy() -> None:
    x = torch.tensor([1.0, -2.0, 0.0]).to(torch.float8_e4m3fn)
    assert tensor_stats([x]).rows[0].tolist() == tensor_stats([x.float()]).rows[0].tolist()


def test_a_tensor_that_comes_with_other_strides_is_numbered_as_before() -> None:
    x = torch.randn(30, 40)
    stats = TensorStats([x])
    by_columns = x.T.contiguous().T
    first, second = stats([x], sketch=True).sketch, stats([by_columns], sketch=True).sketch
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


def test_the_fallback_without_triton_agrees_with_the_native_path() -> None:
    tensors = [torch.randn(500), torch.empty(0), torch.randn(3, 4).T, torch.randn(9, dtype=torch.complex64)]
    old = [tensor + 1 for tensor in tensors]
    plain, fast = PlainStats(Layouts(tensors), range(4)), TensorStats(tensors)
    for want, got in (
        (plain(tensors, None, histogram=True, sketch=True), fast(tensors, histogram=True, sketch=True)),
        (
            plain(tensors, old, histogram=True, sketch=True),
            fast.of_difference(tensors, old, histogram=True, sketch=True),
        ),
    ):
        assert torch.allclose(want.rows, got.rows, rtol=1e-5, atol=1e-5)
        assert want.histogram is not None
        assert got.histogram is not None
        assert torch.equal(want.histogram, got.histogram)


def test_measuring_leaves_everything_as_it_was() -> None:
    model = nn.Linear(300, 200)
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    before = [(parameter.detach().clone(), parameter.grad) for parameter in parameters]
    states = torch.get_rng_state(), str(np.random.get_state()), threading.active_count()  # noqa: NPY002
    stats = TensorStats(parameters)
    found = stats(parameters, histogram=True, sketch=True)
    stats.of_difference(parameters, [p.detach() + 1 for p in parameters], histogram=True, sketch=True)
    reference.tensor_stats(parameters, with_histogram=True, with_sketch=True)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (str(np.random.get_state()), threading.active_count())  # noqa: NPY002
    assert not found.rows.requires_grad
    assert torch.is_grad_enabled()
    for parameter, (value, grad) in zip(parameters, before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.grad is grad
        assert parameter.is_leaf
