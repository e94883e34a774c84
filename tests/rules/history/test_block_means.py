"""The course of a series over a whole run."""

import numpy as np
import pytest

from sonde.rules.history.block_means import BlockMeans


def _blocks(values: list[float]) -> BlockMeans:
    blocks = BlockMeans()
    for value in values:
        blocks = blocks.extended(value)
    return blocks


def test_memory_stays_bounded_and_no_value_is_lost() -> None:
    values = np.random.default_rng(1).normal(size=5000)
    blocks = _blocks(values.tolist())
    assert len(blocks.means) < 64
    assert blocks.num_values == 5000
    whole = np.sum(np.array(blocks.means) * blocks.width) + blocks.total
    assert whole == pytest.approx(values.sum())


def test_nan_is_left_out() -> None:
    assert _blocks([1.0, float("nan"), 2.0])[2:] == (3.0, 2)


def test_a_line_falls_evenly_and_a_learning_curve_early() -> None:
    line = _blocks(list(np.linspace(2, 1, 400))).trend()
    curve = _blocks(list(1 + np.exp(-np.arange(400) / 30))).trend()
    assert line is not None
    assert curve is not None
    assert line.early_share == pytest.approx(0.5, abs=0.03)
    assert line.slope == pytest.approx(-1 / 399, rel=1e-3)
    assert curve.early_share > 0.9


def test_noise_alone_has_no_slope() -> None:
    large = 0
    for seed in range(40):
        trend = _blocks(list(np.random.default_rng(seed).normal(1, 0.1, size=300))).trend()
        assert trend is not None
        large += abs(trend.t) > 4
    assert large <= 1
