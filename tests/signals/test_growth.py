import numpy as np
import pytest

from sonde.signals.growth import Growth

from .streams import run_timed


def test_the_interval_holds_the_true_arrival_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(0, 400, 10)
    series = np.exp(0.02 * steps[:, None] + 0.3 * rng.normal(size=(40, 1000)))
    out = run_timed(Growth(limit=1e6), series, steps)[-1]
    truth = np.log(1e6) / 0.02 - steps[-1]
    assert 0.92 < ((out.earliest <= truth) & (truth <= out.latest)).mean() < 0.98
    assert np.nanmedian(out.steps_left) == pytest.approx(truth, rel=0.03)
    assert ((out.earliest <= out.steps_left) & (out.steps_left <= out.latest)).all()


def test_a_series_that_does_not_grow_has_no_deadline() -> None:
    rng = np.random.default_rng(1)
    flat = np.exp(rng.normal(size=(64, 500)))
    assert np.isnan(run_timed(Growth(), flat)[-1].steps_left).mean() > 0.99
    falling = np.exp(-0.1 * np.arange(64.0))
    out = run_timed(Growth(), falling)[-1]
    assert out.rate[0] == pytest.approx(-0.1)
    assert np.isnan(out.steps_left[0])


def test_at_or_above_the_limit_no_steps_are_left() -> None:
    out = run_timed(Growth(limit=100.0), 1.5 ** np.arange(20.0))[-1]
    assert out.steps_left[0] == 0.0
    assert out.latest[0] == 0.0


def test_zeros_and_negative_values_are_left_out() -> None:
    series = np.exp(0.05 * np.arange(40.0))
    series[::4] = [0.0, -1.0] * 5
    out = run_timed(Growth(), series)[-1]
    assert out.rate[0] == pytest.approx(0.05)


def test_it_abstains_below_the_minimum_of_values() -> None:
    outs = run_timed(Growth(), 2.0 ** np.arange(10.0))
    assert np.isnan(outs[8].rate[0])
    assert outs[9].steps_left[0] == pytest.approx(128 - 9, rel=0.01)


@pytest.mark.parametrize(
    "wrong", [{"limit": 0.0}, {"limit": np.inf}, {"min_values": 5}, {"min_r_squared": 2.0}, {"confidence": 1.0}]
)
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Growth"):
        Growth(**wrong)  # type: ignore[arg-type]
