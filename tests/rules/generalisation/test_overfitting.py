"""GEN001 overfitting."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.generalisation.overfitting import Overfitting

from ..traces import alarms, falling, judge, rows, worst


def _rows(validations: list[float], losses: list[float]) -> list[dict[str, float]]:
    every = len(losses) // len(validations)
    given = [validations[(i + 1) // every - 1] if (i + 1) % every == 0 else None for i in range(len(losses))]
    return rows(len(losses), loss=losses, val__loss=given)


def test_validation_that_turns_up_is_told_from_its_best_on() -> None:
    validations = [2.0, 1.5, 1.2, 1.0, 0.95, 1.0, 1.1, 1.2, 1.3, 1.4]
    seen = judge(Overfitting(), _rows(validations, falling(200, end=0.0)))
    assert worst(seen) is Severity.WARNING
    assert 140 <= seen[0][0] <= 180
    assert seen[0][1].since in (80, 100, 120)


def test_validation_that_follows_training_or_rises_with_it_is_silent() -> None:
    assert judge(Overfitting(), _rows([2.0, 1.5, 1.2, 1.1, 1.05, 1.02, 1.0, 0.99, 0.98, 0.98], falling(200))) == []
    rising = list(np.linspace(1.0, 2.0, 200))
    assert judge(Overfitting(), _rows([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2.0], rising)) == []


def test_noise_of_frequent_evaluations_is_silent() -> None:
    for seed in range(5):
        noise = np.exp(0.2 * np.random.default_rng(seed).normal(size=60))
        assert alarms(judge(Overfitting(), _rows(list(0.3 * noise), falling(300)))) == []


def test_a_solved_task_cannot_overfit() -> None:
    validations = [0.5, 0.05, 0.01, 0.005, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009]
    assert judge(Overfitting(), _rows(validations, falling(200, end=0.0))) == []


def test_the_bend_of_the_first_descent_does_not_count_as_noise() -> None:
    validations = [1.02, 0.7, 0.6, 0.56, 0.57, 0.59, 0.58, 0.6, 0.62, 0.62, 0.64, 0.67]
    losses = np.repeat([1.24, 0.79, 0.53, 0.48, 0.39, 0.34, 0.31, 0.27, 0.23, 0.2, 0.17, 0.15], 10).tolist()
    assert alarms(judge(Overfitting(), _rows(validations, losses)))[0][0] == 100


def test_a_wide_gap_makes_half_the_rise_enough() -> None:
    validations = [1.24, 0.9, 0.65, 0.57, 0.52, 0.5, 0.48, 0.49, 0.5, 0.51, 0.515, 0.52, 0.525, 0.53]
    losses = np.geomspace(1.4, 0.05, len(validations))
    seen = alarms(judge(Overfitting(), _rows(validations, np.repeat(losses, 8).tolist())))
    assert seen[0][0] == 80  # the gap alone, before the rise is beyond noise
    shallow = np.geomspace(1.4, 0.25, len(validations))
    assert alarms(judge(Overfitting(), _rows(validations, np.repeat(shallow, 8).tolist()))) == []


def test_a_slow_rise_under_a_gap_that_dropout_keeps_narrow_is_information() -> None:
    falls = [1.63, 1.43, 1.2, 1.05, 0.95, 0.9, 0.87, 0.84, 0.83, 0.82, 0.81, 0.8, 0.79, 0.79, 0.78, 0.78, 0.78]
    rises = [0.77, 0.78, 0.8, 0.82, 0.83, 0.84, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85]
    losses = np.geomspace(1.76, 0.36, len(falls) + len(rises))
    seen = judge(Overfitting(), _rows(falls + rises, np.repeat(losses, 10).tolist()))
    assert worst(seen) is Severity.INFO


def test_a_rise_of_what_validation_never_learned_is_information() -> None:
    validations = [2.2, 2.1, 2.05, 2.1, 2.3, 2.6, 2.9, 3.2, 3.4, 3.6]
    elsewhere = [2 * validation for validation in validations]  # in other units, or of other tasks
    assert worst(judge(Overfitting(), _rows(elsewhere, falling(200, end=0.0)))) is Severity.INFO
    lower = [validation - 0.4 for validation in validations]
    assert worst(judge(Overfitting(), _rows(lower, falling(200, end=0.0)))) is Severity.WARNING


def test_two_losses_far_apart_need_three_evaluations_only() -> None:
    losses = np.geomspace(0.9, 0.002, 300).tolist()
    assert alarms(judge(Overfitting(), _rows([0.5, 0.51, 0.53], losses)))
    assert alarms(judge(Overfitting(), _rows([0.5, 0.48, 0.46], losses))) == []  # it still gets better
    assert alarms(judge(Overfitting(), _rows([0.05, 0.052, 0.054], losses))) == []  # little is left to learn


def test_validation_that_stands_far_above_a_training_loss_that_is_nearly_gone_is_an_alarm() -> None:
    losses = np.geomspace(0.9, 0.002, 300).tolist()
    ((_, seen),) = alarms(judge(Overfitting(), _rows([0.2, 0.195, 0.194], losses)))
    assert "has stood at 0.194 since step 100" in seen.message
    assert (
        alarms(judge(Overfitting(), _rows([0.02, 0.0195, 0.0194], losses))) == []
    )  # next to nothing is left there too
    assert alarms(judge(Overfitting(), _rows([2.0, 1.95, 1.94], losses))) == []  # other data from the start
