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


def test_what_lies_at_the_same_address_is_looked_at_again() -> None:
    x = torch.randn(6, 6)
    layouts = Layouts([x])
    for _ in range(3):
        assert layouts.arrange([x])[0] is x
    assert flat(layouts.arrange([x.T])[0]).tolist() == x.T.reshape(-1).tolist()
    assert flat(layouts.arrange([x[:1].expand(6, 6)])[0]).tolist() == x[0].tolist() * 6
    for other in (x[:5], x.view(torch.int32), x.view(torch.bfloat16)):
        with pytest.raises(ValueError, match="prepare"):
            layouts.arrange([other])
    assert layouts.arrange([x])[0] is x


def test_a_parameter_whose_data_was_replaced_is_looked_at_again() -> None:
    parameter = torch.nn.Parameter(torch.randn(4, 6))
    layouts = Layouts([parameter])
    for _ in range(2):
        layouts.arrange([parameter])
    parameter.data = parameter.data.view(6, 4).T
    (arranged,) = layouts.arrange([parameter])
    assert flat(arranged).tolist() == parameter.reshape(-1).tolist()
    parameter.data = parameter.data[:2]
    with pytest.raises(ValueError, match="prepare"):
        layouts.arrange([parameter])


def test_a_tensor_that_is_twice_in_the_list_is_arranged() -> None:
    x = torch.randn(3)
    layouts = Layouts([x, x])
    for _ in range(20):
        assert [a is x for a in layouts.arrange([x, x])] == [True, True]


def test_dimensions_of_one_value_do_not_make_a_tensor_another() -> None:
    x = torch.randn(8, 4, 1, 1).to(memory_format=torch.channels_last)
    layouts = Layouts([x])
    for other in (x, x.contiguous(), x):
        assert flat(layouts.arrange([other])[0]).tolist() == x.reshape(-1).tolist()


def test_tensors_on_several_devices_are_refused() -> None:
    tensors = [torch.zeros(1), torch.zeros(1, device="cuda")] if torch.cuda.is_available() else None
    if tensors is None:
        pytest.skip("there is no second device")
    with pytest.raises(ValueError, match="one `TensorStats` a device"):
        Layouts(tensors)


def test_tensors_that_lie_exactly_as_prepared_are_learned_and_then_confirmed() -> None:
    x = torch.randn(4, 6)
    layouts = Layouts([x])
    assert not layouts.confirms([x])
    for other in (x.T.contiguous().T, x[:3], x.bfloat16(), torch.empty(4, 6, device="meta")):
        assert not layouts.learns([other])
    assert not layouts.learns([x, x])
    assert layouts.learns([torch.randn(4, 6)])
    assert layouts.confirms([x])
    assert not layouts.confirms([x.T.contiguous().T])
