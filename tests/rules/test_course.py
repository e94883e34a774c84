"""The course of a series over a whole run."""

import numpy as np
import pytest

from sonde.rules.course import Course


def _course(values: list[float]) -> Course:
    course = Course()
    for value in values:
        course = course.extended(value)
    return course


def test_memory_stays_bounded_and_no_value_is_lost() -> None:
    values = np.random.default_rng(1).normal(size=5000)
    course = _course(values.tolist())
    assert len(course.means) < 64
    assert course.num_values == 5000
    whole = np.sum(np.array(course.means) * course.width) + course.total
    assert whole == pytest.approx(values.sum())


def test_nan_is_left_out() -> None:
    assert _course([1.0, float("nan"), 2.0])[2:] == (3.0, 2)


def test_a_line_falls_evenly_and_a_learning_curve_early() -> None:
    line = _course(list(np.linspace(2, 1, 400))).descent()
    curve = _course(list(1 + np.exp(-np.arange(400) / 30))).descent()
    assert line is not None
    assert curve is not None
    assert line.early_share == pytest.approx(0.5, abs=0.03)
    assert line.slope == pytest.approx(-1 / 399, rel=1e-3)
    assert curve.early_share > 0.9


def test_noise_alone_has_no_slope() -> None:
    large = 0
    for seed in range(40):
        descent = _course(list(np.random.default_rng(seed).normal(1, 0.1, size=300))).descent()
        assert descent is not None
        large += abs(descent.t) > 4
    assert large <= 1
