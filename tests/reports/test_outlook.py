"""The forecast of the loss, and when there is none."""

import numpy as np
import pytest

from sonde.core.records import Float64
from sonde.reports.outlook import Outlook, outlook
from sonde.signals.learning_curve import NoCurve

STEPS = np.arange(1.0, 3001.0)


def _losses(seed: int) -> Float64:
    return 1.5 + 4.0 * STEPS**-0.5 + np.random.default_rng(seed).normal(0, 0.03, len(STEPS))


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_of_a_constant_rate_is_forecast(seed: int) -> None:
    ahead = outlook(STEPS, _losses(seed), STEPS, np.full(len(STEPS), 0.1))
    assert isinstance(ahead, Outlook)
    assert ahead.doubled.low <= 1.5 + 4.0 * 6000**-0.5 <= ahead.doubled.high
    assert ahead.limit.low <= 1.5 <= ahead.limit.high
    assert ahead.since == 1


def test_only_losses_since_the_last_change_of_the_rate_count() -> None:
    losses = _losses(0)
    losses[:500] += 3.0
    ahead = outlook(STEPS, losses, STEPS, np.where(STEPS <= 500, 0.1, 0.05))
    assert isinstance(ahead, Outlook)
    assert ahead.since == 501
    assert ahead.limit.low <= 1.5 <= ahead.limit.high


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        (np.linspace(0.0, 0.1, 3000), "warmup"),
        (np.linspace(0.1, 0.01, 3000), "falling"),
        (np.empty(0), "not recorded"),
        (np.full(1, 0.1), "too few"),
    ],
)
def test_without_a_constant_rate_there_is_a_reason_instead(rates: Float64, reason: str) -> None:
    ahead = outlook(STEPS, _losses(0), STEPS[: len(rates)], rates)
    assert isinstance(ahead, NoCurve)
    assert reason in ahead.reason


def test_losses_that_are_not_finite_are_not_forecast() -> None:
    losses = _losses(0)
    losses[2900] = np.nan
    ahead = outlook(STEPS, losses, STEPS, np.full(len(STEPS), 0.1))
    assert isinstance(ahead, NoCurve)
    assert isinstance(outlook(np.empty(0), np.empty(0), STEPS, np.full(len(STEPS), 0.1)), NoCurve)


def test_going_on_is_advised_where_it_pays() -> None:
    rates = np.full(len(STEPS), 0.1)
    steep = outlook(STEPS, 4.0 * STEPS**-0.3, STEPS, rates)
    flat = outlook(STEPS, 1.5 + STEPS**-0.7, STEPS, rates)
    assert isinstance(steep, Outlook)
    assert isinstance(flat, Outlook)
    assert steep.advice.startswith("Going on is worthwhile")
    assert "hardly worthwhile" in flat.advice
