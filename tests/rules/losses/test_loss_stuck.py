"""LOS004 loss-stuck."""

import numpy as np
import pytest

from sonde.core.findings import Severity
from sonde.rules.losses.loss_stuck import LossStuck

from ..traces import alarms, falling, flat, judge, rows, worst


def test_a_loss_at_its_start_is_information_at_100_steps_and_a_warning_at_200() -> None:
    seen = judge(LossStuck(), rows(300, loss=flat(300, 1.39, noise=0.01), grad__norm=0.2))
    assert seen[0][0] == 100
    assert seen[0][1].severity is Severity.INFO
    assert 200 <= alarms(seen)[0][0] <= 205


def test_better_validation_takes_the_warning_back() -> None:
    validations = [None if i % 50 else 1.0 - i / 1000 for i in range(300)]
    seen = judge(LossStuck(), rows(300, loss=flat(300, 1.39, noise=0.01), val__loss=validations))
    assert worst(seen) is Severity.INFO


def test_falling_breaking_through_and_going_bad_later_are_silent() -> None:
    assert judge(LossStuck(), rows(300, loss=falling(300))) == []
    late = [*flat(150, 1.8, noise=0.01), *np.linspace(1.8, 0.1, 50), *flat(200, 0.1)]
    assert alarms(judge(LossStuck(), rows(400, loss=late))) == []
    returned = [*falling(100), *flat(300, 2.4, noise=0.02)]
    assert judge(LossStuck(), rows(400, loss=returned)) == []


def test_losses_about_zero_and_short_runs_are_not_judged() -> None:
    assert judge(LossStuck(), rows(300, loss=np.random.default_rng(0).normal(size=300))) == []
    assert judge(LossStuck(), rows(90, loss=flat(90))) == []


def test_noise_that_could_hide_a_fall_keeps_it_information() -> None:
    calm, wild = (rows(240, loss=flat(240, 2.3, noise=noise, seed=3), lr=0.01) for noise in (0.05, 0.5))
    assert worst(judge(LossStuck(), calm)) is Severity.WARNING
    assert worst(judge(LossStuck(), wild)) is Severity.INFO


def test_few_examples_make_no_loss_stuck() -> None:
    given = {"loss": flat(300, 1.4, noise=0.02), "grad__norm": 1.0}
    assert worst(judge(LossStuck(), rows(300, batch__size=1, **given))) is Severity.INFO
    assert worst(judge(LossStuck(), rows(300, batch__size=8, **given))) is Severity.WARNING


def _by_heart(num: int, validations: list[float]) -> list[dict[str, float]]:
    losses = np.linspace(1.41, 1.36, num) * np.array(flat(num, 1.0, noise=0.005))
    every = num // len(validations)
    at = [validations[i // every] if i % every == every - 1 else None for i in range(num)]
    return rows(num, loss=list(losses), val__loss=at)


def test_a_small_fall_that_validation_never_sees_is_a_warning_at_an_evaluation() -> None:
    seen = alarms(judge(LossStuck(), _by_heart(400, [1.40, 1.41, 1.41, 1.405])))
    assert [step for step, _ in seen] == [400]
    assert not alarms(judge(LossStuck(), _by_heart(400, [1.40, 1.39, 1.37, 1.36])))
    assert not alarms(judge(LossStuck(), _by_heart(240, [1.40, 1.41, 1.41, 1.405])))


@pytest.mark.parametrize(("level", "batch", "expected"), [(0.68, 16.0, True), (0.5, 16.0, False), (0.68, 4.0, False)])
def test_a_noisy_loss_that_is_surely_above_guessing_is_a_warning(level: float, batch: float, expected: bool) -> None:
    noisy = list(level + 0.25 * np.random.default_rng(0).normal(size=400).clip(-1.8, 3))
    run = rows(400, loss=noisy, label__entropy=0.52, label__num_distinct=2.0, batch__size=batch, lr=0.1)
    assert bool(alarms(judge(LossStuck(), run))) is expected
