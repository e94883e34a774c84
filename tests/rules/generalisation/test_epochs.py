"""The three courses that the evaluation after each epoch must tell apart, by the rules that name the causes."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from sonde.core.causes import Cause
from sonde.core.findings import Severity
from sonde.rules.generalisation.epoch_assessment import EpochAssessment
from sonde.rules.generalisation.gap_from_start import GapFromStart
from sonde.rules.generalisation.overfitting import Overfitting
from sonde.rules.generalisation.underfitting import Underfitting
from sonde.rules.generalisation.validation_stalls import ValidationStalls
from sonde.rules.history.epochs import Epochs
from sonde.rules.rule import Rule, causes_of
from sonde.rules.step_view import StepView

from ..traces import alarms, judge, worst

Losses = tuple[Sequence[float], Sequence[float]]

SLOWING: Losses = ((3.5, 2.8, 2.7, 2.68), (3.2, 2.1, 2.0, 1.98))
UNDERFITTING: Losses = ((4.6, 4.4, 4.2, 4.1), (4.5, 4.2, 4.0, 3.9))
OVERFITTING: Losses = ((3.6, 2.8, 2.6, 2.7), (3.5, 2.1, 1.2, 0.8))

RULES: tuple[Rule, ...] = (Overfitting(), Underfitting(), GapFromStart(), ValidationStalls())


def _rows(losses: Losses, steps: int, *, seed: int = 0, marked: bool = True) -> Iterator[dict[str, float]]:
    """A row an epoch, or a noisy descent of many steps that passes the training loss of each epoch at its end."""
    rng = np.random.default_rng(seed)
    validations, trainings = losses
    ends = steps * np.arange(1, len(trainings) + 1) - min(25, steps // 2)
    curve = np.interp(np.arange(1, steps * len(trainings) + 1), [0, *ends], [1.1 * validations[0], *trainings])
    for step, loss in enumerate(trainings if steps == 1 else curve * np.exp(0.05 * rng.normal(size=len(curve))), 1):
        row = {"loss": float(loss)}
        if step % steps == 0:
            row["val/loss"] = validations[step // steps - 1]
            row |= {"epoch": step / steps} if marked else {}
        yield row


@pytest.mark.parametrize("marked", [True, False], ids=["epochs", "evaluations"])
@pytest.mark.parametrize("steps", [1, 20, 60])
@pytest.mark.parametrize(
    ("losses", "code", "cause", "severity"),
    [
        (SLOWING, "GEN005", Cause.PLATEAU, Severity.INFO),
        (UNDERFITTING, "GEN002", Cause.UNDERFITTING, Severity.INFO),
        (OVERFITTING, "GEN001", Cause.OVERFITTING, Severity.WARNING),
    ],
)
def test_each_course_is_named_at_its_fourth_epoch_by_one_rule_alone(
    losses: Losses, code: str, cause: Cause, severity: Severity, steps: int, marked: bool
) -> None:
    rows = list(_rows(losses, steps, marked=marked))
    seen = {rule.code: found for rule in RULES if (found := judge(rule, rows))}
    assert list(seen) == [code]
    assert [(step, sighting.severity) for step, sighting in seen[code]] == [(4 * steps, severity)]
    assert cause in causes_of(next(rule for rule in RULES if rule.code == code))
    (_, told) = judge(EpochAssessment(), rows)[-1]
    assert told.message.split(":")[0] == {"GEN005": "slowing", "GEN002": "underfitting", "GEN001": "overfitting"}[code]


@pytest.mark.parametrize(
    "losses",
    [
        ((2.3, 1.5, 1.1, 0.9, 0.8), (2.3, 1.4, 1.0, 0.75, 0.6)),  # a gap that widens while both improve
        ((2.3, 1.0, 0.4, 0.1, 0.11), (2.3, 0.9, 0.3, 0.05, 0.02)),  # solved
        ((1.2, 0.8, 0.6, 0.58, 0.585), (1.6, 1.3, 1.1, 1.0, 0.95)),  # dropout: training above validation
        ((0.52, 0.50, 0.49, 0.488), (0.50, 0.46, 0.44, 0.43)),  # fine-tuning at a tiny rate
        ((2.0, 1.2, 0.9, 0.92, 0.8), (2.0, 1.2, 0.8, 0.7, 0.6)),  # one unlucky evaluation
        ((-1.0, -1.5, 0.2, -0.5), (-1.0, -1.2, 0.1, -0.4)),  # losses about zero
    ],
)
@pytest.mark.parametrize("steps", [1, 100])
def test_healthy_courses_raise_no_alarm(losses: Losses, steps: int) -> None:
    for rule in RULES:
        assert alarms(judge(rule, _rows(losses, steps))) == [], rule


def test_a_plateau_at_the_optimum_is_information() -> None:
    losses = ((2.3, 0.9, 0.6, 0.55, 0.548, 0.549, 0.547, 0.548), (2.3, 0.9, 0.6, 0.54, 0.539, 0.538, 0.538, 0.538))
    seen = judge(ValidationStalls(), _rows(losses, 1))
    assert worst(seen) is Severity.INFO
    assert "plateau" in seen[-1][1].message


def test_validation_that_stalls_while_training_goes_on_is_no_stall() -> None:
    assert judge(ValidationStalls(), _rows(((2.0, 1.0, 0.9, 0.895), (2.0, 1.0, 0.8, 0.6)), 1)) == []


def test_noise_of_few_evaluations_is_no_overfitting() -> None:
    """Validation that follows training to a floor, with noise, over as many epochs as are judged by eye."""
    for seed in range(100):
        noise = np.exp(0.05 * np.random.default_rng(seed).normal(size=(2, 8)))
        curve = 0.4 + 1.9 * np.exp(-np.arange(8) / 2)
        assert (
            alarms(judge(Overfitting(), _rows(((1.1 * curve * noise[0]).tolist(), (curve * noise[1]).tolist()), 1)))
            == []
        )


def test_the_first_recorded_epoch_takes_back_evaluations_within_it() -> None:
    epochs = Epochs()
    for step, row in enumerate(
        ({"loss": 1.0, "val/loss": 9.0}, {"loss": 1.0, "val/loss": 3.0, "epoch": 1.0}, {"loss": 1.0, "val/loss": 2.0}),
        1,
    ):
        epochs = epochs.noted(StepView(step, row, {}, ()))
        assert epochs.ended_at(step) == (step < 3)
    assert (epochs.ended.validations, epochs.validation, epochs.number) == ((3.0,), 2.0, 1)
