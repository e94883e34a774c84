"""What a few epochs say."""

import math

import pytest

from sonde.rules.history.assessment import assess


def test_the_three_cases_of_the_specification() -> None:
    slowing = assess((3.5, 2.8, 2.7, 2.68), (3.2, 2.1, 2.0, 1.98))
    assert slowing.verdict == "slowing"
    assert slowing.improvement_rate == pytest.approx(0.02 / 2.7)
    assert slowing.gap == pytest.approx(0.7 / 1.98)
    assert assess((4.6, 4.4, 4.2, 4.1), (4.5, 4.2, 4.0, 3.9)).verdict == "underfitting"
    assert assess((3.6, 2.8, 2.6, 2.7), (3.5, 2.1, 1.2, 0.8)).verdict == "overfitting"


def test_three_still_epochs_are_a_plateau() -> None:
    found = assess((3.0, 1.0, 0.999, 0.998, 0.9975), (3.0, 1.0, 0.99, 0.98, 0.98))
    assert (found.plateau, found.verdict) == (True, "plateau")


def test_the_gap_means_nothing_where_training_is_nearly_nothing() -> None:
    assert assess((2.0, 0.01), (2.0, 1e-6)).gap < 0.1


def test_the_learning_rate_is_judged_by_how_far_losses_moved() -> None:
    assert assess((2.0, 1.999), (2.0, 1.995)).learning_rate == "too-low"
    assert assess((2.0, 3.0), (2.0, 2.5)).learning_rate == "too-high"
    assert assess((2.0, 3.0), (2.0, 2.5)).verdict == "diverging"
    assert assess((2.0, 1.0), (2.0, 1.0)) == assess((2.0, 1.0), (2.0, 1.0))._replace(verdict="healthy")


def test_one_epoch_says_little_and_none_is_an_error() -> None:
    assert math.isnan(assess((2.0,), (1.0,)).improvement_rate)
    with pytest.raises(ValueError, match="as many"):
        assess((1.0, 2.0), (1.0,))


@pytest.mark.parametrize(
    ("now", "band"), [(2.1, "poor"), (1.985, "poor"), (1.975, "acceptable"), (1.905, "acceptable"), (1.89, "good")]
)
def test_the_progress_of_an_epoch_has_three_bands(now: float, band: str) -> None:
    assert assess((2.0, now), (2.0, 1.9)).progress == band
    assert assess((now,), (1.9,)).progress == "unknown"
