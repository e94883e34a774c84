"""Condensed histograms against whole ones."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonde.kernels import tensor_stats
from sonde.kernels.histograms import NUM_BINS, coarse, percentiles
from sonde.probes.quantiles import SIZE, Shapes, coarsened, condense

_numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(st.lists(st.lists(_numbers, min_size=1, max_size=40), min_size=1, max_size=4))
def test_percentiles_are_exactly_those_of_the_whole_histogram(lists: list[list[float]]) -> None:
    stats = tensor_stats([torch.tensor(values) for values in lists], histogram=True)
    assert stats.histogram is not None
    condensed = condense(stats.histogram)
    assert condensed.shape == (len(lists), SIZE)
    rows = stats.rows.numpy()
    found = Shapes(condensed.double().numpy()).percentiles(rows)
    assert np.array_equal(found, percentiles(stats.histogram.numpy(), rows), equal_nan=True)


@given(st.lists(_numbers.filter(lambda x: x == 0 or abs(x) > 2.0**-127), min_size=1, max_size=40))
def test_shares_are_counted(values: list[float]) -> None:
    x = np.array(values, np.float64)
    x = x[np.isfinite(x)]
    stats = tensor_stats([torch.tensor(values)], histogram=True)
    assert stats.histogram is not None
    shapes = Shapes(condense(stats.histogram).double().numpy())
    for dtype, smallest in [(torch.float16, 2.0**-14), (torch.bfloat16, 2.0**-126), (torch.float32, 2.0**-126)]:
        nonzero = np.abs(x[x != 0])
        wanted = np.mean(nonzero < smallest) if len(nonzero) else np.nan
        np.testing.assert_allclose(shapes.underflow([dtype]), wanted)
    np.testing.assert_allclose(shapes.positive(), np.mean(x > 0) if len(x) else np.nan)
    assert np.isnan(shapes.underflow([torch.float64])).all()


def test_histograms_are_made_coarse_on_their_device_as_they_are_kept() -> None:
    counts = np.random.default_rng(0).integers(0, 1000, (3, NUM_BINS)).astype(np.int32)
    np.testing.assert_array_equal(coarsened(torch.from_numpy(counts)).numpy(), coarse(counts))
