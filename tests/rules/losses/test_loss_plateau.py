"""LOS005 loss-plateau."""

import numpy as np
import pytest

from sonde.core.findings import Severity
from sonde.rules.losses.loss_plateau import LossPlateau

from ..traces import alarms, falling, flat, judge, rows, worst


def _stalled(level: float) -> list[float]:
    return [*falling(60, start=2.0, end=level, noise=0.01), *flat(340, level + 0.02, noise=0.01, seed=1)]


def test_a_stall_high_above_solved_with_large_gradients_bounces() -> None:
    seen = judge(LossPlateau(), rows(400, loss=_stalled(1.4), grad__norm=1.0, grad__cosine=-0.7, lr=0.1))
    assert worst(seen) is Severity.WARNING
    assert "bouncing" in alarms(seen)[0][1].message
    assert 150 < alarms(seen)[0][0] < 330


def test_small_gradients_that_agree_are_a_flat_region() -> None:
    norms = [*[1.0] * 30, *[0.05] * 370]
    seen = judge(LossPlateau(), rows(400, loss=_stalled(1.4), grad__norm=norms, grad__cosine=0.9, lr=0.1))
    assert "flat region" in seen[-1][1].message


def test_an_end_near_zero_is_converged_and_information() -> None:
    seen = judge(LossPlateau(), rows(400, loss=_stalled(0.05), grad__norm=1.0))
    assert worst(seen) is Severity.INFO
    assert "converged" in seen[-1][1].message


def test_it_is_information_while_the_rate_decays() -> None:
    rate = [0.1 * (1 - i / 400) for i in range(400)]
    assert alarms(judge(LossPlateau(), rows(400, loss=_stalled(1.4), grad__norm=1.0, lr=rate))) == []


def test_a_falling_loss_and_one_that_never_fell_are_silent() -> None:
    assert judge(LossPlateau(), rows(300, loss=[3 * 0.99**i for i in range(300)], grad__norm=1.0)) == []
    assert judge(LossPlateau(), rows(300, loss=flat(300, noise=0.01), grad__norm=1.0)) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_descent_under_noise_is_neither_a_plateau_nor_an_alarm(seed: int) -> None:
    line = np.linspace(2.3, 1.6, 600)
    quiet, noisy = (list(line * np.array(flat(600, noise=noise, seed=seed))) for noise in (0.05, 0.3))
    late = [(step, sighting) for step, sighting in judge(LossPlateau(), rows(600, loss=quiet, lr=0.01)) if step > 300]
    assert late == []
    assert alarms(judge(LossPlateau(), rows(600, loss=noisy, lr=0.01))) == []


def test_gradients_that_are_noise_may_be_the_best_there_is() -> None:
    given = {"loss": _stalled(1.4), "grad__norm": 1.0, "lr": 0.1}
    assert worst(judge(LossPlateau(), rows(400, grad__cosine=0.0, **given))) is Severity.INFO
