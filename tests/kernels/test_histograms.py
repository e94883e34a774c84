"""Percentiles from histograms, against those of the values, with the errors that the docstring states."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.kernels import histograms, tensor_stats


def percentiles(x: torch.Tensor, *, clipped: bool = True) -> npt.NDArray[np.float64]:
    found = tensor_stats([x], histogram=True)
    assert found.histogram is not None
    values: npt.NDArray[np.float64]
    (values,) = histograms.percentiles(found.histogram.numpy(), found.rows.numpy() if clipped else None)
    return values


def test_bins_are_ordered_and_hold_what_they_say() -> None:
    ascending, lower, upper = histograms.edges()
    assert (np.diff(lower) >= 0).all()
    gaps = np.flatnonzero(lower[1:] != upper[:-1])
    assert np.abs(upper[gaps]).max() == 2.0**-128  # around zero
    inside = ((lower + upper) / 2).astype(np.float32)
    away = np.abs(inside) > 0
    assert (inside.view(np.uint32) >> histograms.SHIFT)[away].tolist() == ascending[away].tolist()
    normal = (np.abs(lower) >= 2.0**-126) & (np.abs(upper) >= 2.0**-126)
    width = (upper - lower)[normal] / np.minimum(np.abs(lower), np.abs(upper))[normal]
    assert width.max() == 0.25


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["normal", "shifted", "lognormal", "laplace", "uniform"]),
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e15]),
    seed=st.integers(0, 1000),
)
def test_percentiles_of_smooth_distributions_are_right_to_a_few_percent(kind: str, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    draws = {
        "normal": rng.standard_normal(60_000),
        "shifted": 5 + rng.standard_normal(60_000),
        "lognormal": rng.lognormal(0, 2, 60_000),
        "laplace": rng.laplace(size=60_000),
        "uniform": rng.uniform(-1, 1, 60_000),
    }
    x = (draws[kind] * scale).astype(np.float32)
    want = np.percentile(x, histograms.PERCENTS)
    error, spread = np.abs(percentiles(torch.from_numpy(x)) - want), np.std(x, dtype=np.float64)
    away = np.abs(want) > 0.05 * spread if kind != "lognormal" else np.ones(7, np.bool_)
    assert (error[away] <= 0.04 * np.abs(want[away])).all()
    assert (error[~away] <= 0.01 * spread).all()


@settings(max_examples=60)
@given(values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False), min_size=1, max_size=60))
def test_no_percentile_is_off_by_more_than_a_bin(values: list[float]) -> None:
    x = np.array(values, np.float32)
    want = np.percentile(x, histograms.PERCENTS, method="inverted_cdf")
    found = percentiles(torch.from_numpy(x))
    assert (np.abs(found - want) <= 0.25 * np.abs(want) + 1e-37).all()


def test_a_constant_is_found_exactly_with_the_help_of_its_row() -> None:
    assert percentiles(torch.full((50,), 0.3)).tolist() == [np.float64(np.float32(0.3))] * 7
    assert percentiles(torch.zeros(50), clipped=False).tolist() == [0.0] * 7


def test_nothing_counted_gives_nan() -> None:
    assert np.isnan(percentiles(torch.empty(0))).all()
    assert np.isnan(percentiles(torch.full((5,), float("nan")))).all()


@pytest.mark.parametrize("skip", range(1, 5))
def test_one_run_of_each_period_is_counted_and_their_places_differ(skip: int) -> None:
    period = 1 << skip
    places = torch.arange(256 * period) % period  # of the runs in their periods
    x = (2.0**places).repeat_interleave(histograms.RUN)[: (65_536 << skip) - 1]
    assert histograms.skip(len(x)) == skip
    found = tensor_stats([x], histogram=True).histogram
    assert found is not None
    bins = (2.0 ** torch.arange(period, dtype=torch.float32)).view(torch.int32) >> histograms.SHIFT
    by_place = found[0, bins]
    assert int(found.sum()) == int(by_place.sum())
    assert abs(int(by_place.sum()) - len(x) // period) < histograms.RUN
    assert (by_place > 0).all()


@pytest.mark.parametrize("numel", [0, 1, 65_535, 131_071, 131_072, 1 << 20, 1 << 21, 1 << 40])
def test_at_least_as_many_values_are_counted_as_promised(numel: int) -> None:
    assert numel >> histograms.skip(numel) >= min(numel, histograms.MIN_COUNTED)


def test_the_sample_of_a_large_tensor_sees_all_columns_of_a_matrix() -> None:
    x = torch.zeros(1024, 4096)
    x[:, 3000:] = 1.0  # 26.8% of the values, always in the same columns
    found = tensor_stats([x], histogram=True).histogram
    assert found is not None
    ones = int(found[0, np.float32(1.0).view(np.uint32) >> histograms.SHIFT])
    assert ones / int(found[0].sum()) == pytest.approx(0.268, abs=0.06)


def test_sampled_percentiles_are_close() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4_000_000, generator=generator)
    want = np.percentile(x.numpy(), histograms.PERCENTS)
    assert percentiles(x) == pytest.approx(want, abs=0.04)
