"""What numbers of an optimiser are measured against, against plain NumPy."""

import math

import numpy as np
import pytest

from sonde.probes.optimizer_history import OptimizerHistory


def test_growth_is_that_of_each_parameter_since_it_was_first_seen() -> None:
    history = OptimizerHistory()
    history.growth(("a", "b"), np.array([3.0, 0.0]))
    each, whole = history.growth(("a", "b"), np.array([6.0, 4.0]))
    assert each.tolist() == [2.0, 1.0], "what begins at zero begins later"
    assert whole == pytest.approx(math.hypot(6, 4) / math.hypot(3, 4))
    each, whole = history.growth(("c", "b"), np.array([12.0, 8.0]))
    assert each.tolist() == [1.0, 2.0]
    assert whole == pytest.approx(math.hypot(12, 8) / math.hypot(12, 4)), "a parameter that comes later changes nothing"
    each, whole = history.growth(("a",), np.array([math.nan]))
    assert math.isnan(each[0])
    assert math.isnan(whole)
    assert history.growth(("a",), np.array([9.0]))[1] == 3.0


def test_the_norm_is_told_over_its_average_before_it() -> None:
    history = OptimizerHistory()
    norms = [2.0, 4.0, math.inf, 3.0, 600.0]
    rows = [history.gradient_norm(norm) for norm in norms]
    assert "grad/norm_ratio" not in rows[0]
    earlier = np.array([2.0, 4.0, 3.0])
    weights = 0.99 ** np.arange(3)[::-1]
    assert rows[4]["grad/norm_ratio"] == pytest.approx(600 / float(weights @ earlier / weights.sum()))
    assert rows[2]["grad/norm_ratio"] == math.inf
    assert rows[2]["grad/norm_ema"] == rows[1]["grad/norm_ema"]


def test_nothing_is_said_of_clips_until_there_is_one() -> None:
    history = OptimizerHistory()
    assert [history.clip(None) for _ in range(3)] == [{}, {}, {}]
    assert history.clip(1.0) == {"clip/rate": 0.0}
    assert history.clip(0.25) == {"clip/rate": 0.5, "clip/strength": 0.75}
    assert history.clip(math.nan) == {"clip/rate": 0.5, "clip/strength": 0.75}
    assert history.clip(None)["clip/rate"] == pytest.approx(1 / 3), "a step without a clip counts"
