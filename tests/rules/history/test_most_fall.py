"""How far a series may have fallen."""

import math

import numpy as np
import pytest

from sonde.rules.history.block_means import BlockMeans
from sonde.rules.history.most_fall import most_fall


def _blocks(values: np.ndarray) -> BlockMeans:
    blocks = BlockMeans()
    for value in values:
        blocks = blocks.extended(float(value))
    return blocks


def test_the_true_fall_is_nearly_always_within_it() -> None:
    rng = np.random.default_rng(0)
    falls = rng.uniform(0, 1, size=100)
    bounds = [most_fall(_blocks(-fall * np.arange(200) / 200 + 0.5 * rng.normal(size=200))) for fall in falls]
    assert np.mean(np.array(bounds) > falls) > 0.93
    assert np.median(np.array(bounds) - falls) < 0.5  # 2 · 0.5 · √(12/200) = 0.24, and what autocorrelation adds


def test_only_the_last_values_count_where_it_is_said() -> None:
    blocks = _blocks(np.concatenate([np.linspace(2, 1, 100), np.ones(100)]))
    assert most_fall(blocks) > 0.5
    assert most_fall(blocks, 96) == pytest.approx(0.0, abs=1e-3)


def test_too_few_values_say_nothing() -> None:
    assert math.isnan(most_fall(_blocks(np.ones(30))))
    assert math.isnan(most_fall(_blocks(np.ones(200)), 20))
