import numpy as np
import pytest

from sonde.signals.cusum import Cusum, threshold_for
from sonde.signals.forecast import Forecast

from .streams import correlated, run


def slow_forecast(series: list[float], warmup: int) -> list[tuple[float, float]]:
    """Expected value and scale before each value, by the formulas of the docstring, a number at a time."""
    alpha, beta, rate = 0.1, 0.05, 0.02
    start: list[float] = []
    out: list[tuple[float, float]] = []
    level = trend = sigma = last = square = product = np.nan
    for x in series:
        if len(start) < warmup:
            out.append((np.nan, np.nan))
            if np.isfinite(x):
                start.append(x)
            if len(start) == warmup:
                half = warmup // 2
                early, late = float(np.median(start[:half])), float(np.median(start[-half:]))
                trend = (late - early) / (warmup - half)
                line = [early + trend * (i - (half - 1) / 2) for i in range(warmup)]
                rests = np.array(start) - line
                square, product = float(np.mean(rests**2)), float(np.mean(rests[1:] * rests[:-1]))
                phi = min(max(product / square, 0.0), 0.95)
                sigma = 1.4826 * np.median(np.abs(rests[1:] - phi * rests[:-1]))
                level, last = line[-1], rests[-1]
            continue
        phi = min(max(product / square, 0.0), 0.95)
        expected = level + trend + phi * last
        out.append((expected, sigma))
        if not np.isfinite(x):
            continue
        r = min(max((x - expected) / sigma, -2.0), 2.0)
        e = expected + sigma * r - (level + trend)
        square, product = square + rate * (e * e - square), product + rate * (e * last - product)
        level, trend = level + trend + alpha * e, trend + alpha * beta * e
        sigma *= np.sqrt(rate * 2.52 * (1 - (1 - (r / 2) ** 2) ** 3) + 1 - rate)
        last = e
    return out


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_slow_recursion(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = 5.0 - 0.01 * np.arange(150) + correlated(rng, (150, 1), 0.6)[:, 0]
    series[rng.random(150) < 0.1] = np.nan
    series[rng.random(150) < 0.05] += 100.0
    outs = run(Forecast(warmup=12, floor=0.0), series)
    for out, (expected, scale) in zip(outs, slow_forecast(series.tolist(), 12), strict=True):
        assert (out.expected[0], out.scale[0]) == pytest.approx((expected, scale), nan_ok=True)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_residuals_of_noise_are_standard_and_nearly_independent(phi: float) -> None:
    noise = correlated(np.random.default_rng(0), (500, 300), phi)
    z = np.array([out.z for out in run(Forecast(), noise)[150:]])
    assert z.std() == pytest.approx(1.0, abs=0.05)
    assert abs((z[1:] * z[:-1]).mean()) < 0.12


def test_a_falling_loss_is_followed() -> None:
    rng = np.random.default_rng(1)
    series = 2.0 + 3.0 * np.exp(-np.arange(400) / 150) + 0.05 * rng.normal(size=400)
    z = np.array([out.z[0] for out in run(Forecast(), series)[100:]])
    assert abs(z.mean()) < 0.5  # the slack of a CUSUM: a smooth bend does not add up to an alarm
    assert np.abs(z).max() < 6


def test_one_outlier_hardly_moves_the_forecast() -> None:
    series = 1.0 + 0.1 * np.random.default_rng(2).normal(size=200)
    hit = series.copy()
    hit[150] = 1000.0
    clean, dirty = run(Forecast(), series), run(Forecast(), hit)
    assert dirty[150].z[0] > 1000
    assert dirty[151].expected[0] == pytest.approx(clean[151].expected[0], abs=0.1)
    assert dirty[151].scale[0] == pytest.approx(clean[151].scale[0], rel=0.05)


def test_with_a_cusum_it_finds_a_lasting_change_and_keeps_quiet_before() -> None:
    noise = correlated(np.random.default_rng(3), (1000, 100), 0.5)
    noise[800:] += 6.0
    cusum = Cusum(threshold=threshold_for(1, 100_000), clip=4.0)
    state, alarms = cusum.init(100), []
    for out in run(Forecast(), noise):
        state, judged = cusum.step(state, out.z)
        alarms.append(judged.rose | judged.fell)
    fired = np.array(alarms)
    assert fired[:800].sum() <= 3
    assert fired[800:840].any(axis=0).mean() > 0.9


def test_a_constant_series_is_as_expected_and_all_zeros_say_nothing() -> None:
    assert run(Forecast(), [2.0] * 70)[-1].z[0] == pytest.approx(0.0, abs=1e-6)
    assert run(Forecast(), [2.0] * 70 + [3.0])[-1].z[0] > 1000
    assert np.isnan(run(Forecast(), [0.0] * 70 + [3.0])[-1].z[0])


@pytest.mark.parametrize(
    "wrong", [{"level_rate": 0.0}, {"trend_rate": 1.0}, {"scale_rate": 0.0}, {"warmup": 7}, {"floor": -1.0}]
)
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Forecast"):
        Forecast(**wrong)  # type: ignore[arg-type]
