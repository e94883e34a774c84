"""Copies in one piece of memory."""

import pytest
import torch

from sonde.kernels import TensorStats
from sonde.kernels.copies import Copies, places
from sonde.kernels.layouts import Layouts

TENSORS = [
    torch.randn(3, 5),
    torch.randn(0),
    torch.randn(7).bfloat16(),
    torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    torch.tensor(4.0),
]


def laid_out(tensors: list[torch.Tensor]) -> Copies:
    layouts = Layouts(tensors)
    offsets, size = places(layouts)
    copies = Copies(torch.zeros(size, dtype=torch.uint8), layouts, offsets)
    for copy, tensor in zip(copies, tensors, strict=True):
        copy.copy_(tensor)
    return copies


def test_each_copy_has_its_place_and_the_strides_of_its_tensor() -> None:
    copies = laid_out(TENSORS)
    assert len(copies) == len(TENSORS)
    for copy, tensor in zip(copies, TENSORS, strict=True):
        assert copy.stride() == tensor.stride()
        assert torch.equal(copy, tensor)
        assert copy.data_ptr() % 16 == 0


def test_copies_are_a_sequence() -> None:
    copies = laid_out(TENSORS)
    assert torch.equal(copies[-1], TENSORS[-1])
    assert [c.shape for c in copies[:2]] == [t.shape for t in TENSORS[:2]]
    with pytest.raises(IndexError):
        copies[5]


def test_copies_may_be_given_to_any_object_that_measures_such_tensors() -> None:
    stats = TensorStats(TENSORS)
    found = stats.of_difference([t + 1 for t in TENSORS], laid_out(TENSORS)).rows
    assert torch.allclose(found[[0, 3, 4], 3], torch.ones(3, dtype=torch.float64))


def test_a_copy_stays_as_it_was_when_its_tensor_changes() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 3, 2, 2).to(memory_format=torch.channels_last))
    stats = TensorStats([weight])
    before = stats.copy([weight])
    with torch.no_grad():
        weight.add_(2)
    assert torch.equal(before[0], torch.ones(4, 3, 2, 2))
    assert not before[0].requires_grad
    assert stats.of_difference([weight], before).rows[0, 5:].tolist() == [2.0, 2.0]
