import numpy as np
import torch

from sonde.monitor.transport import Load, joined, unpacked


def packed(parts: list[torch.Tensor]) -> tuple[np.ndarray, int]:
    load = Load(parts)
    words = joined(load.stretches)
    assert words.numel() == load.num_words
    return unpacked(words.numpy(), load.manifest), load.num_words


def numbers(parts: list[torch.Tensor]) -> np.ndarray:
    return np.concatenate([part.detach().double().reshape(-1).numpy() for part in parts])


def views_of_a_page() -> list[torch.Tensor]:
    page = torch.randint(-9, 9, (64,), dtype=torch.int32)
    rows = page[4:12].view(torch.float64).view(2, 2)
    rows.copy_(torch.randn(2, 2))
    sums = page[14:17].view(torch.float32)
    sums.copy_(torch.randn(3))
    return [rows, sums, page[20:30].view(5, 2)]


def test_numbers_of_all_types_and_shapes_come_out_as_they_went_in() -> None:
    parts = [
        torch.randn(()).requires_grad_(),
        torch.randn(3, 2, dtype=torch.float64).T,
        torch.arange(5),
        torch.arange(4, dtype=torch.int32)[::2],
        torch.randn(3).to(torch.bfloat16),
        torch.tensor([True, False]),
        torch.empty(0, 7),
    ]
    with torch.no_grad():
        found, _ = packed(parts)
    np.testing.assert_array_equal(found, numbers(parts))


def test_views_of_one_page_travel_as_one_stretch_with_what_lies_between_them() -> None:
    parts = views_of_a_page()
    found, num_words = packed(parts)
    np.testing.assert_array_equal(found, numbers(parts))
    assert num_words == 26


def test_views_of_one_page_in_any_order_and_among_others_are_told_apart() -> None:
    parts = [*views_of_a_page()[::-1], torch.tensor(3.0), *views_of_a_page(), torch.tensor([1, 2])]
    found, _ = packed(parts)
    np.testing.assert_array_equal(found, numbers(parts))


def test_transposed_views_of_a_page_are_copied() -> None:
    page = torch.arange(12, dtype=torch.int32)
    parts = [page.view(3, 4).T, page[2:8:2]]
    found, _ = packed(parts)
    np.testing.assert_array_equal(found, numbers(parts))
