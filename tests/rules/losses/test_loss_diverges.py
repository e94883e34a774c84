"""LOS003 loss-diverges."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.losses.loss_diverges import LossDiverges

from ..traces import alarms, falling, flat, judge, rows, worst


def test_exponential_growth_is_told_twenty_steps_before_overflow() -> None:
    growth = [2.3 * np.exp(0.7 * i) for i in range(120)]  # float32 ends after about 125 steps
    seen = alarms(judge(LossDiverges(), rows(120, loss=growth, grad__norm=growth)))
    assert seen[0][0] <= 15
    assert "overflows in about" in seen[0][1].message
    assert worst(seen) is Severity.CRITICAL


def test_a_gradient_that_explodes_under_a_loss_that_does_not_fall_counts() -> None:
    norms = [*flat(40), *[float(np.exp(0.3 * i)) for i in range(40)]]
    assert alarms(judge(LossDiverges(), rows(80, loss=flat(80, 2.4, noise=0.01), grad__norm=norms)))


def test_a_climb_above_the_start_is_told_after_its_patience() -> None:
    losses = [*flat(60, 1.0, noise=0.02), *np.linspace(1, 3, 60)]
    seen = alarms(judge(LossDiverges(), rows(120, loss=losses, grad__norm=1.0)))
    assert 70 < seen[0][0] < 100


def test_half_of_the_gain_lost_again_is_told() -> None:
    losses = [*falling(200, noise=0.02), *np.linspace(0.35, 1.9, 150)]
    assert alarms(judge(LossDiverges(), rows(350, loss=losses, grad__norm=1.0)))


def test_healthy_curves_restarts_and_noise_are_silent() -> None:
    rng = np.random.default_rng(3)
    for seed in range(3):
        assert judge(LossDiverges(), rows(400, loss=falling(400, noise=0.2, seed=seed), grad__norm=1.0)) == []
    bump = [*falling(200), *np.linspace(0.6, 0.25, 60), *flat(100, 0.25)]
    assert judge(LossDiverges(), rows(360, loss=bump, grad__norm=1.0)) == []
    about_zero = rng.normal(0, 1, 300).tolist()
    assert alarms(judge(LossDiverges(), rows(300, loss=about_zero, grad__norm=1.0))) == []


def test_a_warmup_of_growing_gradients_under_a_falling_loss_is_silent() -> None:
    norms = [float(np.exp(0.1 * i)) for i in range(60)]
    assert judge(LossDiverges(), rows(60, loss=falling(60), grad__norm=norms)) == []


def test_players_of_a_game_are_not_judged() -> None:
    growth = [2.3 * 1.3**i for i in range(60)]
    given = rows(60, loss=growth, grad__norm_applied_at_G=1.0, grad__norm_applied_at_D=1.0)
    assert judge(LossDiverges(), given) == []


def test_gradients_that_grow_on_the_way_out_of_a_flat_start_are_no_divergence() -> None:
    losses = [*flat(40, 4000.0, noise=0.2), *falling(160, start=4000.0, end=10.0)]
    norms = [*[40 * float(np.exp(0.08 * i)) for i in range(40)], *flat(160, 500.0)]
    assert judge(LossDiverges(), rows(200, loss=losses, grad__norm=norms)) == []


def test_one_huge_loss_in_the_beginning_is_no_divergence() -> None:
    losses = [1.0, 0.9, 0.8, 0.7, 0.6, 60.0, *[0.5 - 0.005 * i for i in range(60)]]
    assert judge(LossDiverges(), rows(66, loss=losses, grad__norm=1.0)) == []


def test_two_leaps_of_loss_and_gradient_are_critical_at_the_second_step() -> None:
    losses, norms = [2.3e4, 4.3e8, 9.0e19], [3.1e3, 6.6e7, 5.2e21]
    seen = judge(LossDiverges(), rows(3, loss=losses, grad__norm=norms))
    assert [(step, sighting.severity, sighting.since) for step, sighting in seen] == [(3, Severity.CRITICAL, 2)]
    assert judge(LossDiverges(), rows(3, loss=losses, grad__norm=1.0)) == []
    assert judge(LossDiverges(), rows(4, loss=[1.0, 500.0, 2.0, 900.0], grad__norm=[1.0, 5e3, 1.0, 9e3])) == []
