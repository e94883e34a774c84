"""The three courses of the evaluation after each epoch, through all rules and the ranking of causes."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from sonde.core.causes import Cause
from sonde.core.frames import Columns, Frame
from sonde.diagnosis.doctor import Doctor

SLOWING = ((3.5, 2.8, 2.7, 2.68), (3.2, 2.1, 2.0, 1.98))
UNDERFITTING = ((4.6, 4.4, 4.2, 4.1), (4.5, 4.2, 4.0, 3.9))
OVERFITTING = ((3.6, 2.8, 2.6, 2.7), (3.5, 2.1, 1.2, 0.8))


def _an_epoch_a_row(validations: Sequence[float], trainings: Sequence[float]) -> Iterator[Frame]:
    columns = Columns("step", ("loss", "val/loss"))
    for epoch, values in enumerate(zip(trainings, validations, strict=True), 1):
        yield Frame(columns, epoch, 0.0, np.array(values, np.float32))


def _live(validations: Sequence[float], trainings: Sequence[float]) -> Iterator[Frame]:
    rng, num = np.random.default_rng(0), 100
    step_columns, evaluation = Columns("step", ("loss", "lr", "grad/norm")), Columns("evaluation", ("val/loss",))
    ends = num * np.arange(1, len(trainings) + 1) - 25
    for step in range(1, num * len(trainings) + 1):
        loss = float(np.interp(step, [0, *ends], [1.1 * validations[0], *trainings])) * np.exp(0.05 * rng.normal())
        yield Frame(step_columns, step, 0.0, np.array([loss, 1e-3, np.exp(0.1 * rng.normal())], np.float32))
        if step % num == 0:
            yield Frame(evaluation, step, 0.0, np.array([validations[step // num - 1]], np.float32))
            yield Frame(Columns("epoch", ("epoch",)), step, 0.0, np.array([step / num], np.float32))


@pytest.mark.parametrize("recorded", [_an_epoch_a_row, _live])
@pytest.mark.parametrize(
    ("losses", "code", "cause", "has_alarm"),
    [
        (SLOWING, "GEN005", Cause.PLATEAU, False),
        (UNDERFITTING, "GEN002", Cause.UNDERFITTING, False),
        (OVERFITTING, "GEN001", Cause.OVERFITTING, True),
    ],
)
def test_the_course_has_its_finding_and_its_cause_first(
    recorded: object, losses: tuple[Sequence[float], Sequence[float]], code: str, cause: Cause, has_alarm: bool
) -> None:
    assert callable(recorded)
    doctor = Doctor()
    for frame in recorded(*losses):
        doctor.frame(frame)
    findings = doctor.diagnosis("run").findings
    (finding,) = [finding for finding in findings if finding.code == code]
    assert finding.causes[0].cause is cause
    assert findings[0].causes[0].cause is cause
    assert [found.code for found in findings if found.severity.is_alarm] == [code] * has_alarm
