"""The health checklist, on series made by hand."""

import math

import numpy as np
import pytest

from sonde.core.records import Float64, Series
from sonde.diagnosis.checklist import Check, Outcome, checklist


def _series(values: Float64, *, every: int = 1) -> Series:
    steps = every * np.arange(1, len(values) + 1)
    return Series(steps, np.asarray(values, np.float32), steps.astype(np.float64))


def _asked(series: dict[str, Series], part: str, *, open_alarms: int = 0) -> Check:
    (found,) = [check for check in checklist(series, open_alarms=open_alarms) if part in check.name]
    return found


def _noise(seed: int, size: int = 400) -> Float64:
    return np.random.default_rng(seed).normal(0, 0.03, size)


def test_nothing_recorded_is_not_measured_throughout() -> None:
    checks = checklist({}, open_alarms=0)
    assert [check.standing for check in checks[:-1]] == [Outcome.NOT_MEASURED] * (len(checks) - 1)
    assert checks[-1].standing is Outcome.OK
    assert all(check.remark for check in checks[:-1])


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_falls_or_has_converged_is_in_order(seed: int) -> None:
    steps = np.arange(400)
    for losses in (2 / (1 + steps / 50), np.maximum(2 - steps / 50, 0.5), np.full(400, 0.7)):
        assert _asked({"loss": _series(losses + _noise(seed))}, "stays at its best").standing is Outcome.OK


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_climbs_or_stays_far_above_its_best_is_not_in_order(seed: int) -> None:
    steps = np.arange(400)
    climbing = 2 / (1 + steps / 50) + np.maximum(steps - 250, 0) / 50
    lost = np.where(steps < 100, 2 - steps / 80, 1.7)
    for losses in (climbing, lost):
        assert _asked({"loss": _series(losses + _noise(seed))}, "stays at its best").standing is Outcome.NOT_OK


def test_jumps_and_nonfinite_losses_are_not_smooth() -> None:
    smooth = 2 / (1 + np.arange(400) / 50) + _noise(0)
    jumpy, broken = smooth.copy(), smooth.copy()
    jumpy[[100, 200, 300]] += 3
    broken[-1] = math.nan
    assert _asked({"loss": _series(smooth)}, "smoothly").standing is Outcome.OK
    found = _asked({"loss": _series(jumpy)}, "smoothly")
    assert (found.standing, found.value) == (Outcome.NOT_OK, 3)
    assert "1 of 400 losses" in _asked({"loss": _series(broken)}, "smoothly").remark
    assert _asked({"loss": _series(np.full(5, math.nan))}, "smoothly").standing is Outcome.NOT_OK


def test_series_without_a_value_are_as_good_as_none() -> None:
    empty = dict.fromkeys(("loss", "lr", "update/ratio", "grad/rms@a.weight", "host/rss"), _series(np.empty(0)))
    assert str(checklist(empty, open_alarms=0)) == str(checklist({}, open_alarms=0))  # NaN is not equal to NaN


@pytest.mark.parametrize(("norm", "standing"), [(0.05, Outcome.NOT_OK), (1.0, Outcome.OK), (11.0, Outcome.NOT_OK)])
def test_the_gradient_norm_belongs_between_a_tenth_and_ten(norm: float, standing: Outcome) -> None:
    assert _asked({"grad/norm": _series(np.full(50, norm))}, "gradient norm").standing is standing


@pytest.mark.parametrize(("first", "standing"), [(0.1, Outcome.NOT_OK), (1.0, Outcome.OK), (6.0, Outcome.NOT_OK)])
def test_early_layers_are_held_against_the_last(first: float, standing: Outcome) -> None:
    sizes = {"a.weight": first, "b.weight": 0.9, "c.weight": 1.0, "c.bias": 100.0}
    series = {f"grad/rms@{name}": _series(np.array([size])) for name, size in sizes.items()}
    found = _asked(series, "Early layers")
    assert found.standing is standing
    assert found.value == pytest.approx(first)


def test_the_range_of_update_ratios_goes_by_step_and_learning_rate() -> None:
    ratio = {"update/ratio@a.weight": _series(np.array([3e-4]), every=400)}
    assert _asked({**ratio, "lr": _series(np.full(400, 0.1))}, "weights").standing is Outcome.NOT_OK
    decayed = _asked({**ratio, "lr": _series(np.linspace(0.1, 0.01, 400))}, "weights")
    assert decayed.standing is Outcome.OK
    assert (decayed.low, decayed.high) == pytest.approx((1e-4, 1e-3))
    later = _asked({"update/ratio@a.weight": _series(np.array([3e-4]), every=5_000)}, "weights")
    assert (later.standing, later.low, later.high) == (Outcome.OK, 1e-4, 1e-3)


def test_gradients_with_heavy_tails_or_off_centre_are_not_bells() -> None:
    def percentiles(name: str, values: Float64) -> dict[str, Series]:
        return {
            f"grad/p{q}@{name}": _series(np.array([value]))
            for q, value in zip((1, 25, 50, 75, 99), np.percentile(values, (1, 25, 50, 75, 99)), strict=True)
        }

    random = np.random.default_rng(0)
    bell = percentiles("a.weight", random.normal(0, 1, 10_000))
    tails = percentiles("b.weight", random.standard_cauchy(10_000))
    shifted = percentiles("c.weight", random.normal(5, 1, 10_000))
    assert _asked(bell, "bell").standing is Outcome.OK
    assert _asked({**bell, **tails}, "bell").value == 0.5
    assert _asked({**bell, **shifted}, "bell").standing is Outcome.NOT_OK


@pytest.mark.parametrize("seed", range(5))
def test_a_slowdown_is_seen_and_noise_is_not(seed: int) -> None:
    noisy = 100 * np.exp(np.random.default_rng(seed).normal(0, 0.3, 400))
    slower = np.where(np.arange(400) < 320, 100.0, 80.0) + _noise(seed)
    assert _asked({"throughput/samples_per_s": _series(noisy)}, "Throughput").standing is Outcome.OK
    found = _asked({"throughput/samples_per_s": _series(slower)}, "Throughput")
    assert found.standing is Outcome.NOT_OK
    assert found.value == pytest.approx(-0.2, abs=0.01)


def test_a_gpu_that_is_always_busy_is_in_order_and_an_idle_one_is_not() -> None:
    for share, standing in ((1.0, Outcome.OK), (0.85, Outcome.OK), (0.4, Outcome.NOT_OK)):
        assert _asked({"device/utilisation": _series(np.full(20, share))}, "busy").standing is standing


def test_memory_is_held_against_its_size_and_its_past() -> None:
    total = _series(np.full(20, 80e9))
    assert _asked({"memory/total": total, "memory/peak": _series(np.full(20, 64e9))}, "well used").value == 0.8
    empty = _asked({"memory/total": total, "memory/peak": _series(np.full(20, 8e9))}, "well used")
    assert (empty.standing, "larger batch" in empty.remark) == (Outcome.NOT_OK, True)
    leaking = {"host/rss": _series(1e9 * (1 + np.arange(20) / 40))}
    assert _asked(leaking, "does not grow").standing is Outcome.NOT_OK
    assert _asked({"host/rss": _series(np.full(20, 1e9))}, "does not grow").standing is Outcome.OK


def test_open_alarms_are_counted() -> None:
    assert _asked({}, "No alarm", open_alarms=2).standing is Outcome.NOT_OK


def _any_series(seed: int) -> dict[str, Series]:
    """Every series that is asked for, of random size, trend and noise."""
    random = np.random.default_rng(seed)
    found = {}
    for tag in (
        *("loss", "lr", "grad/norm", "throughput/samples_per_s", "time/step", "device/utilisation", "memory/total"),
        *("memory/peak", "memory/allocated", "host/rss"),
    ):
        size = int(random.integers(1, 300))
        trend = np.linspace(0, random.normal(0, 1), size)
        values = np.exp(random.normal(0, 1) + trend + random.choice([0.01, 0.3, 1.0]) * random.normal(0, 1, size))
        if tag == "loss" and random.random() < 0.2:
            values[random.integers(size)] = math.nan
        found[tag] = _series(values)
    if random.random() < 0.5:  # a loss that falls, gives some of that back, and stays there
        fallen = np.where(np.arange(400) < 100, 2 - np.arange(400) / 80, random.uniform(0.75, 1.5))
        found["loss"] = _series(fallen + 0.02 * random.normal(0, 1, 400))
    for layer in "abc":
        for path in ("grad/rms", "update/ratio", "weight/mean", "weight/std"):
            found[f"{path}@{layer}.weight"] = _series(10 ** random.uniform(-5, 1, 1))
        quantiles = np.sort(random.normal(random.normal(0, 1), random.choice([0.1, 1.0, 30.0]), 5))
        for q, value in zip((1, 25, 50, 75, 99), quantiles, strict=True):
            found[f"grad/p{q}@{layer}.weight"] = _series(np.array([value]))
    return found


def test_whatever_has_a_number_is_in_order_exactly_if_that_is_in_its_range() -> None:
    seen = set()
    for seed in range(300):
        for check in checklist(_any_series(seed), open_alarms=seed % 2):
            if math.isfinite(check.value):
                is_in_range = check.low <= check.value <= check.high
                assert check.standing is (Outcome.OK if is_in_range else Outcome.NOT_OK), (seed, check)
                seen.add((check.name, is_in_range))
            else:
                assert check.remark, (seed, check)
    names = {check.name for check in checklist({}, open_alarms=0)}
    assert seen == {(name, is_in_range) for name in names for is_in_range in (True, False)}


def test_the_range_of_a_time_that_scatters_is_as_wide_as_its_noise() -> None:
    times = np.exp(np.random.default_rng(3).normal(0, 1.0, 100))
    found = _asked({"time/step": _series(times)}, "time a step")
    assert found.high > 0.10
    assert "own noise" in found.remark
    steady = _asked({"time/step": _series(np.full(100, 0.1))}, "time a step")
    assert (steady.low, steady.high) == (-0.10, 0.10)
