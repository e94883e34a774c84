"""GEN003 gap-from-start."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.generalisation.gap_from_start import GapFromStart

from ..traces import Seen, falling, judge, rows, worst


def _judged(validations: list[float]) -> list[Seen]:
    losses = falling(20 * len(validations))
    given = [None if (i + 1) % 20 else validations[(i + 1) // 20 - 1] for i in range(len(losses))]
    return judge(GapFromStart(), rows(len(losses), loss=losses, val__loss=given))


def test_a_gap_at_each_of_the_first_three_evaluations_is_said_then_and_judged_after_100_losses() -> None:
    seen = [(step, sighting.severity) for step, sighting in _judged([4.0] * 8)]
    assert seen == [(60, Severity.INFO), (100, Severity.WARNING)]


def test_validation_that_jumps_about_is_information() -> None:
    validations = [1.0 * (2.0 if i % 2 else 0.7) for i in range(10)]
    losses = falling(200)
    given = [None if (i + 1) % 20 else validations[(i + 1) // 20 - 1] for i in range(200)]
    assert worst(judge(GapFromStart(), rows(200, loss=losses, val__loss=given))) is Severity.INFO


def test_a_gap_that_grows_and_validation_below_training_are_silent() -> None:
    assert _judged([1.2, 0.8, 0.6, *np.linspace(0.6, 1.2, 7)]) == []
    assert _judged([0.9, 0.5, 0.3, 0.25, 0.2, 0.2, 0.2]) == []


def test_validation_that_recovers_before_100_losses_is_no_warning() -> None:
    assert worst(_judged([4.0, 4.0, 4.0, 0.8, 0.5, 0.4])) is Severity.INFO


def test_validation_in_other_units_is_a_warning_unless_it_is_above_the_start() -> None:
    losses = [2.3, 2.3, *np.geomspace(0.5, 0.25, 118)]
    means = [float(np.mean(losses[i : i + 40])) for i in (0, 40, 80)]
    for factor, severity in ((3.5, Severity.WARNING), (2.0, Severity.INFO), (12.0, Severity.INFO)):
        given = [None if (i + 1) % 40 else factor * means[i // 40] for i in range(120)]
        assert worst(judge(GapFromStart(), rows(120, loss=losses, val__loss=given))) is severity


def _at_first(validation: float, step: int = 64, end: float = 0.2) -> Severity | None:
    losses = [*np.geomspace(1.6, end, step), *[end] * step]
    given = [validation if (i + 1) % step == 0 else None for i in range(len(losses))]
    return worst(judge(GapFromStart(), rows(len(losses), loss=losses, val__loss=given)))


def test_a_first_evaluation_far_above_a_training_that_has_learned_is_enough() -> None:
    assert _at_first(4.0) is Severity.WARNING
    assert _at_first(1.5) is Severity.WARNING


def test_a_first_evaluation_is_not_enough_early_on_or_where_much_of_the_learning_shows_in_it() -> None:
    assert _at_first(4.0, step=40) is None
    assert _at_first(0.7) is None
    assert _at_first(4.0, end=1.2) is None
