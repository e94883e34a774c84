"""LOS009 noise-floor."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.losses.noise_floor import NoiseFloor

from ..traces import falling, flat, judge, rows, worst


def _run(jitter: float, **more: float) -> list[dict[str, float]]:
    losses = [*falling(100, start=1.0, end=0.05), *flat(500, 0.1, noise=0.3)]
    rng = np.random.default_rng(4)
    validations = [None if i % 40 else 0.1 * float(np.exp(jitter * rng.normal())) for i in range(600)]
    return rows(600, loss=losses, val__loss=validations, lr=0.1, grad__norm=1.0, **more)


def test_weights_that_jitter_for_half_the_run_are_a_warning() -> None:
    assert worst(judge(NoiseFloor(), _run(0.4))) is Severity.WARNING


def test_noise_of_the_targets_alone_stays_information() -> None:
    assert worst(judge(NoiseFloor(), _run(0.01))) is Severity.INFO


def test_gradients_that_agree_speak_against_it() -> None:
    assert judge(NoiseFloor(), _run(0.4, grad__cosine=0.8)) == []


def test_a_decaying_rate_and_a_quiet_plateau_are_silent() -> None:
    rate = [0.1 * (1 - i / 400) for i in range(400)]
    assert judge(NoiseFloor(), rows(400, loss=falling(400, noise=0.3), lr=rate)) == []
    quiet = [*falling(100), *flat(300, 0.4, noise=0.02)]
    assert judge(NoiseFloor(), rows(400, loss=quiet, lr=0.1)) == []


def _noisy(curve: np.ndarray) -> list[dict[str, float]]:
    """600 steps about a curve, with noise in training and in validation."""
    rng = np.random.default_rng(5)
    losses = curve * np.exp(0.3 * rng.normal(size=600))
    validations = [None if i % 40 else float(curve[i] * np.exp(0.4 * rng.normal())) for i in range(600)]
    return rows(600, loss=list(losses), val__loss=validations, lr=0.1, grad__norm=1.0)


def test_a_floor_that_sinks_slowly_is_no_warning() -> None:
    sinking = np.concatenate([np.linspace(1.0, 0.5, 100), 0.5 * 0.998 ** np.arange(500)])
    assert worst(judge(NoiseFloor(), _noisy(sinking))) is Severity.INFO
    standing = np.concatenate([np.linspace(1.0, 0.2, 100), np.full(500, 0.2)])
    assert worst(judge(NoiseFloor(), _noisy(standing))) is Severity.WARNING


def test_a_floor_of_two_percent_is_as_good_as_solved() -> None:
    low = np.concatenate([np.geomspace(1.0, 0.02, 100), np.full(500, 0.02)])
    assert worst(judge(NoiseFloor(), _noisy(low))) is Severity.INFO


def test_a_descent_that_its_noise_hides_is_no_floor() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        curve = np.concatenate([np.linspace(1.5, 0.3, 20), 0.3 * 0.994 ** np.arange(300)])
        losses = curve * np.exp(0.8 * rng.normal(size=320))
        validations = [None if (i + 1) % 32 else float(curve[i] * np.exp(0.5 * rng.normal())) for i in range(320)]
        table = rows(320, loss=list(losses), val__loss=validations, lr=0.1, grad__norm=1.0)
        assert worst(judge(NoiseFloor(), table)) in (None, Severity.INFO)
