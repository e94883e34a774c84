import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.signals.learning_curve import LearningCurve, NoCurve, fit_learning_curve


def fitted(steps: np.ndarray, losses: np.ndarray, floor: float = 0.0) -> LearningCurve:
    curve = fit_learning_curve(steps, losses, floor=floor)
    assert isinstance(curve, LearningCurve), str(curve)
    return curve


@settings(max_examples=30)
@given(st.floats(0.2, 3.0), st.floats(1.0, 10.0), st.floats(0.2, 1.5))
def test_an_exact_law_is_recovered(a: float, b: float, c: float) -> None:
    steps = np.arange(1.0, 101.0)
    curve = fitted(steps, a + b * steps**-c)
    assert (curve.a, curve.b, curve.c) == pytest.approx((a, b, c), rel=0.01, abs=1e-3)
    best, low, high = curve.loss_at(1000)
    assert low <= best <= high
    assert best == pytest.approx(a + b * 1000**-c, rel=1e-3)


def test_the_intervals_hold_the_truth_about_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(10.0, 3001.0, 10.0)
    inside = np.zeros(3)
    for _ in range(60):
        a, b, c = rng.uniform(0.5, 2), rng.uniform(2, 6), rng.uniform(0.3, 0.8)
        curve = fitted(steps, a + b * steps**-c + 0.1 * rng.normal(size=len(steps)))
        later, limit = curve.loss_at(12_000), curve.limit()
        arrival = curve.steps_to(a + b * 6000**-c)
        inside += [
            later.low <= a + b * 12_000**-c <= later.high,
            limit.low <= a <= limit.high,
            arrival.low <= 3000 <= arrival.high,
        ]
    assert (inside >= 52).all()


def test_a_short_look_is_less_certain_than_a_long_one() -> None:
    rng = np.random.default_rng(1)
    steps = np.arange(1.0, 5001.0)
    losses = 1.0 + 3.0 * steps**-0.4 + 0.05 * rng.normal(size=5000)
    short, long = (fitted(steps[:n], losses[:n]).loss_at(20_000) for n in (300, 5000))
    assert short.high - short.low > 2 * (long.high - long.low)


def test_steps_to_a_target_count_from_the_last_step() -> None:
    steps = np.arange(1.0, 1001.0)
    curve = fitted(steps, 1.0 + 2.0 * steps**-0.5)
    assert curve.steps_to(1.0 + 2.0 * 4000**-0.5).best == pytest.approx(3000, rel=0.01)
    assert curve.steps_to(2.0).best == 0.0
    assert curve.steps_to(0.5).best == np.inf


def test_loss_spikes_hardly_move_the_curve() -> None:
    rng = np.random.default_rng(2)
    steps = np.arange(1.0, 3001.0)
    losses = 1.5 + 4.0 * steps**-0.5 + 0.02 * rng.normal(size=3000)
    losses[rng.choice(3000, 60, replace=False)] += 50.0
    assert fitted(steps, losses).a == pytest.approx(1.5, abs=0.05)


def test_the_limit_stays_above_the_floor() -> None:
    steps = np.arange(1.0, 200.0)
    losses = -1.0 + 3.0 * steps**-0.2
    assert fitted(steps, losses, floor=-np.inf).a == pytest.approx(-1.0, abs=0.01)
    assert fitted(steps, losses + 1.0, floor=0.3).a >= 0.3


def test_what_cannot_be_used_is_left_out() -> None:
    steps = np.arange(-5.0, 200.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = 1.0 + 2.0 * steps**-0.5
    losses[50], losses[60] = np.nan, np.inf
    assert fitted(steps, losses).a == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        (np.full(19, 1.0), "19 points, of 20"),
        (np.full(300, 1.0), "does not fall"),
        (1.0 + 0.1 * np.random.default_rng(3).normal(size=300), "does not fall"),
        (1.0 + 0.01 * np.arange(300), "does not fall"),
        (5.0 - 0.01 * np.arange(300) + 0.05 * np.random.default_rng(4).normal(size=300), "straight line"),
    ],
)
def test_it_abstains_and_says_why(losses: np.ndarray, reason: str) -> None:
    found = fit_learning_curve(np.arange(1.0, len(losses) + 1), losses)
    assert isinstance(found, NoCurve)
    assert reason in str(found)


def test_points_of_one_step_have_no_curve() -> None:
    assert "one step" in str(fit_learning_curve(np.full(30, 5.0), np.arange(30.0)))


def test_a_curve_prints_its_law_and_its_end() -> None:
    steps = np.arange(1.0, 101.0)
    assert str(fitted(steps, 1.5 + 4.0 * steps**-0.5)).startswith("L(t) = 1.5 + 4·t^(−0.5), going to 1.5")


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"min_points": 5}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="fit_learning_curve"):
        fit_learning_curve(np.arange(30.0), np.arange(30.0), **wrong)  # type: ignore[arg-type]
