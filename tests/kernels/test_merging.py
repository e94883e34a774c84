"""Statistics of pieces, merged, against those of the whole."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.kernels import columns, histograms, tensor_stats
from sonde.kernels.columns import Column
from sonde.kernels.merging import absent_rows, all_counts, merge_rows, norm_rows


def _pieces(seed: int, lengths: list[int], *, mean: float, spread: float) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [mean + spread * torch.randn(n, dtype=torch.float64, generator=generator) for n in lengths]


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    mean=st.sampled_from([0.0, 1.0, -1e6, 1e9]),
    nonfinite=st.booleans(),
)
def test_merged_rows_are_those_of_the_concatenation(
    seed: int, lengths: list[int], mean: float, nonfinite: bool
) -> None:
    pieces = _pieces(seed, lengths, mean=mean, spread=1.0)
    if nonfinite and lengths[0] > 2:
        pieces[0][:3] = torch.tensor([torch.nan, torch.inf, 0.0], dtype=torch.float64)
    merged = merge_rows(torch.stack([tensor_stats([piece]).rows for piece in pieces]))[0].numpy()
    whole = tensor_stats([torch.cat(pieces)]).rows[0].numpy()
    exact = [Column.COUNT, Column.NONFINITE, Column.ZEROS, Column.MIN, Column.MAX]
    assert merged[exact].tolist() == whole[exact].tolist()
    np.testing.assert_allclose(merged[Column.MEAN], whole[Column.MEAN], rtol=1e-12, atol=1e-15)
    # A piece's own mean is rounded to 1e-16 of itself, and that is all that is known of it.
    np.testing.assert_allclose(merged[Column.M2], whole[Column.M2], rtol=1e-12 + 1e-15 * abs(mean), atol=1e-14)


@pytest.mark.parametrize("mean", [0.0, 1e3, -1e9])
def test_spread_between_pieces_survives_a_mean_far_above_it(mean: float) -> None:
    # Means that float64 holds exactly, so that the right answer is known to the last digit.
    shifts = torch.tensor([0.0, 3.0, -1.0, 6.0], dtype=torch.float64)
    counts = torch.tensor([5.0, 1.0, 7.0, 3.0], dtype=torch.float64)
    parts = torch.zeros(4, 1, 7, dtype=torch.float64)
    parts[:, 0, Column.COUNT], parts[:, 0, Column.MEAN] = counts, mean + shifts
    middle = (counts * shifts).sum() / counts.sum()
    (merged,) = merge_rows(parts)
    torch.testing.assert_close(merged[Column.M2], (counts * (shifts - middle) ** 2).sum(), rtol=1e-12, atol=0)
    torch.testing.assert_close(merged[Column.MEAN], mean + middle, rtol=1e-15, atol=0)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e30])
@pytest.mark.parametrize("num", [1, 3, 7])
def test_pieces_of_a_constant_have_no_spread(value: float, num: int) -> None:
    piece = tensor_stats([torch.full((num,), value, dtype=torch.float64)]).rows
    for num_pieces in range(1, 12):
        merged = merge_rows(piece.expand(num_pieces, 1, 7)).numpy()
        assert 0 <= columns.std(merged)[0] <= 1e-15 * value


def test_several_tensors_are_merged_each_by_itself() -> None:
    first = [torch.tensor([1.0, 2.0]), torch.empty(0), torch.empty(0, 3)]
    second = [torch.tensor([6.0]), torch.tensor([5.0]), torch.empty(2, 0)]
    merged = merge_rows(torch.stack([tensor_stats(first).rows, tensor_stats(second).rows]))
    assert merged[:2].tolist() == [[3, 0, 0, 3, 14, 1, 6], [1, 0, 0, 5, 0, 5, 5]]
    assert merged[2].tolist() == absent_rows(1)[0].tolist() == tensor_stats([torch.empty(0)]).rows[0].tolist()


def test_absent_piece_changes_nothing() -> None:
    rows = tensor_stats([torch.randn(50), torch.randn(2, 3)]).rows
    torch.testing.assert_close(merge_rows(torch.stack([absent_rows(2), rows])), rows, rtol=1e-15, atol=0)


def test_norms_of_pieces_merge_to_that_of_the_whole() -> None:
    pieces = torch.randn(3, 5, 20)
    norms = torch.linalg.vector_norm(pieces, dim=-1)
    merged = merge_rows(torch.stack([norm_rows(rank) for rank in norms]))
    expected = torch.linalg.vector_norm(pieces.double(), dim=(0, 2)).numpy()
    np.testing.assert_allclose(columns.norm(merged.numpy()), expected, rtol=1e-6)
    assert np.isnan(columns.norm(norm_rows(torch.tensor([torch.nan])).numpy())[0])


@pytest.mark.parametrize("sizes", [(70_000, 30_000), (200_000, 200_000, 100), (1000, 0)])
def test_histograms_of_uneven_pieces_add_up_to_one_of_the_whole(sizes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    # Of different kinds, so that a wrong weight would move the percentiles.
    pieces = [torch.randn(n, generator=generator) + 4 * i for i, n in enumerate(sizes)]
    found = [tensor_stats([piece], histogram=True).histogram for piece in pieces]
    counts = [all_counts(h, [len(piece)]) for h, piece in zip(found, pieces, strict=True) if h is not None]
    added = torch.stack(counts).sum(0)
    assert abs(int(added.sum()) - sum(sizes)) <= 0.02 * sum(sizes)
    whole = np.percentile(torch.cat(pieces).numpy(), [5, 25, 50, 75, 95])
    middle = histograms.percentiles(added.numpy())[0, 1:-1]
    np.testing.assert_allclose(middle, whole, rtol=0.1, atol=0.05)


def test_every_histogram_of_a_list_is_weighed_by_its_own_size() -> None:
    tensors = [torch.zeros(100), torch.ones(70_000)]
    histogram = tensor_stats(tensors, histogram=True).histogram
    assert histogram is not None
    before = histogram.clone()
    counts = all_counts(histogram, [100, 70_000])
    assert counts[0].sum() == 100
    assert counts[1].sum() == 2 * before[1].sum()
    assert torch.equal(histogram, before)
