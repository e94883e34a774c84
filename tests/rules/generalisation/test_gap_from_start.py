"""GEN003 gap-from-start."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.generalisation.gap_from_start import GapFromStart

from ..traces import falling, judge, rows, worst


def _judged(validations: list[float]) -> list[tuple[int, object]]:
    losses = falling(20 * len(validations))
    given = [None if (i + 1) % 20 else validations[(i + 1) // 20 - 1] for i in range(len(losses))]
    return list(judge(GapFromStart(), rows(len(losses), loss=losses, val__loss=given)))


def test_a_gap_at_each_of_the_first_three_evaluations_is_said_once() -> None:
    assert [step for step, _ in _judged([4.0] * 8)] == [60]


def test_validation_that_jumps_about_is_information() -> None:
    validations = [1.0 * (2.0 if i % 2 else 0.7) for i in range(10)]
    losses = falling(200)
    given = [None if (i + 1) % 20 else validations[(i + 1) // 20 - 1] for i in range(200)]
    assert worst(judge(GapFromStart(), rows(200, loss=losses, val__loss=given))) is Severity.INFO


def test_a_gap_that_grows_and_validation_below_training_are_silent() -> None:
    assert _judged([1.2, 0.8, 0.6, *np.linspace(0.6, 1.2, 7)]) == []
    assert _judged([0.9, 0.5, 0.3, 0.25, 0.2, 0.2, 0.2]) == []
