"""How tensors lie in memory."""

import pytest
import torch

from sonde.kernels.layouts import Layouts, flat, memory_order


def test_dense_tensors_are_read_in_the_order_of_memory_without_a_copy() -> None:
    for x in (torch.randn(2, 3, 4), torch.randn(2, 3, 4).permute(2, 0, 1), torch.randn(5, 3, 2, 2)):
        (arranged,) = Layouts([x]).arrange([x])
        assert flat(arranged).data_ptr() == x.data_ptr()
        assert flat(arranged).tolist() == x.permute(memory_order(x) or []).reshape(-1).tolist()


@pytest.mark.parametrize("x", [torch.randn(4, 6)[:, :3], torch.randn(4, 1).expand(4, 3), torch.randn(9)[::2]])
def test_other_tensors_are_copied_row_by_row(x: torch.Tensor) -> None:
    assert memory_order(x) is None
    (arranged,) = Layouts([x]).arrange([x])
    assert flat(arranged).tolist() == x.reshape(-1).tolist()


def test_strides_of_single_values_do_not_matter() -> None:
    x = torch.randn(1, 6)
    other = x.as_strided((1, 6), (100, 1))
    (arranged,) = Layouts([x]).arrange([other])
    assert arranged.data_ptr() == x.data_ptr()


def test_complex_tensors_are_read_as_pairs() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    layouts = Layouts([x])
    assert layouts.numels == [4]
    assert flat(layouts.arrange([x])[0]).tolist() == [1, 2, 3, -4]
    assert flat(layouts.arrange([x.conj()])[0]).tolist() == [1, -2, 3, 4]


def test_tensors_on_several_devices_are_refused() -> None:
    tensors = [torch.zeros(1), torch.zeros(1, device="cuda")] if torch.cuda.is_available() else None
    if tensors is None:
        pytest.skip("there is no second device")
    with pytest.raises(ValueError, match="one `TensorStats` a device"):
        Layouts(tensors)
