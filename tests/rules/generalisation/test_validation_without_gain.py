"""GEN007 validation-without-gain."""

from collections.abc import Sequence

import numpy as np
import pytest

from sonde.core.findings import Severity
from sonde.rules.generalisation.validation_without_gain import ValidationWithoutGain

from ..traces import falling, judge, rows, worst

SOON = ValidationWithoutGain(patience_steps=200)
"""The same with less patience, for shorter runs."""


def _rows(
    validations: Sequence[float], *, every: int = 20, losses: Sequence[float] | None = None
) -> list[dict[str, float]]:
    num = every * len(validations)
    given = [validations[i // every] if (i + 1) % every == 0 else None for i in range(num)]
    return rows(num, loss=list(losses or falling(num, end=1.0)), val__loss=given)


def _bent(num: int, *, turn: int, noise: float = 0.0, seed: int = 0) -> list[float]:
    """Falls to its best at an evaluation and is level from there on."""
    rng = np.random.default_rng(seed)
    curve = 1.0 + np.maximum(turn - np.arange(num), 0) * 0.05
    return list(curve + noise * np.abs(rng.normal(size=num)) * (np.arange(num) > turn))


def test_ten_thousand_steps_without_a_better_validation_are_information() -> None:
    seen = judge(ValidationWithoutGain(), _rows(_bent(14, turn=2, noise=0.01), every=1_000))
    assert seen[0][0] == 13_000
    assert worst(seen) is Severity.INFO
    assert seen[0][1].since == 3_000
    assert "not been better than 1 (step 3,000) for 10,000 steps and 10 evaluations" in seen[0][1].message


def test_rare_evaluations_are_waited_for() -> None:
    rule = ValidationWithoutGain(patience_steps=20)
    assert judge(rule, _rows(_bent(10, turn=4, noise=0.01)))[0][0] == 200  # the fifth since the best


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_descent_through_noise_is_silent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slow = list(2.0 - 0.01 * np.arange(60) + 0.03 * rng.normal(size=60))
    assert judge(SOON, _rows(slow)) == []


def test_after_a_lucky_evaluation_a_descent_is_still_seen() -> None:
    validations = [2.0, 1.0] + [1.9 - 0.02 * i + 0.004 * (-1) ** i for i in range(30)]
    assert judge(SOON, _rows(validations)) == []


def test_a_better_validation_starts_it_anew_but_not_one_within_rounding() -> None:
    better = _bent(30, turn=5, noise=0.01)
    better[13] = 0.99
    assert judge(SOON, _rows(better))[0][0] == 20 * (14 + 10)
    better[13] = 0.9995
    assert judge(SOON, _rows(better))[0][0] == 20 * (6 + 10)


def test_a_loss_that_is_gone_in_validation_too_and_short_runs_are_silent() -> None:
    solved, level = [2.0] * 10 + [1e-3] * 590, _bent(30, turn=5, noise=0.01)
    assert judge(SOON, _rows([1e-3 * value for value in level], losses=solved)) == []
    assert judge(ValidationWithoutGain(), _rows(level)) == []
    assert judge(SOON, rows(600, loss=falling(600))) == []


def test_examples_learned_by_heart_are_no_success_of_validation() -> None:
    by_heart = [2.0] * 10 + [1e-3] * 590
    assert "converged" in judge(SOON, _rows(_bent(30, turn=5, noise=0.01), losses=by_heart))[0][1].message
