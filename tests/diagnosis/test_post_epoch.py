"""The evaluation after each epoch: its series and its lines."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity
from sonde.core.remedies import Remedy
from sonde.diagnosis.post_epoch import PostEpoch, PostEpochState
from sonde.diagnosis.remedies import remedies_for
from sonde.rules.generalisation.epoch_assessment import EpochAssessment
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.step_view import StepView

SLOWING = ((3.5, 2.8, 2.7, 2.68), (3.2, 2.1, 2.0, 1.98))
UNDERFITTING = ((4.6, 4.4, 4.2, 4.1), (4.5, 4.2, 4.0, 3.9))
OVERFITTING = ((3.6, 2.8, 2.6, 2.7), (3.5, 2.1, 1.2, 0.8))


def _remedies(cause: Cause) -> Sequence[Remedy]:
    return remedies_for(cause, RunSummary(lr=0.1, grad_median=2.0))


Told = list[tuple[int, dict[str, float]]]


def _rows(
    validations: Sequence[float], trainings: Sequence[float], *, steps: int = 1, more: Mapping[str, float] | None = None
) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    for epoch, (validation, training) in enumerate(zip(validations, trainings, strict=True), 1):
        rows += [{"loss": training, **(more or {})} for _ in range(steps)]
        rows[-1] |= {"val/loss": validation, "epoch": float(epoch)}
    return rows


def _run(rows: Sequence[Mapping[str, float]], evaluation: PostEpoch | None = None) -> tuple[PostEpochState, Told]:
    evaluation = evaluation or PostEpoch()
    state, told = evaluation.init(), []
    for step, row in enumerate(rows, 1):
        state, values = evaluation.step(state, StepView(step, row, {}, ()))
        if values:
            told.append((step, {tag.removeprefix("evaluation/"): value for tag, value in values.items()}))
    return state, told


@pytest.mark.parametrize("steps", [1, 20], ids=["a row an epoch", "live"])
def test_the_series_are_those_of_the_specification(steps: int) -> None:
    _, told = _run(_rows(*SLOWING, steps=steps))
    assert [step for step, _ in told] == [steps, 2 * steps, 3 * steps, 4 * steps]
    assert told[0][1] == pytest.approx({"train_val_gap": 0.3 / 3.2})
    rates = [values["improvement_rate"] for _, values in told[1:]]
    assert rates == pytest.approx([0.7 / 3.5, 0.1 / 2.8, 0.02 / 2.7])
    assert told[-1][1]["train_val_gap"] == pytest.approx(0.7 / 1.98)
    assert {values["plateau_detected"] for _, values in told[1:]} == {0.0}


def test_three_changes_below_a_hundredth_are_a_plateau() -> None:
    _, told = _run(_rows((3.0, 1.0, 0.995, 1.0, 0.996, 0.9), (3.0, 1.0, 0.99, 0.98, 0.98, 0.9)))
    assert [values.get("plateau_detected") for _, values in told] == [None, 0.0, 0.0, 0.0, 1.0, 0.0]


def test_the_gap_is_held_against_a_tenth_of_the_first_validation_where_training_is_nothing() -> None:
    _, told = _run(_rows((2.0, 0.1), (2.0, 1e-9)))
    assert told[-1][1]["train_val_gap"] == pytest.approx(0.1 / 0.2)


@pytest.mark.parametrize(
    ("losses", "verdict", "said"),
    [
        (
            SLOWING,
            "slowing",
            [
                "improved by 0.74%, less than 1%",
                "35% above the training loss",
                "lower the learning rate from 0.1 to 0.05",
            ],
        ),
        (UNDERFITTING, "underfitting", ["losses have come down little", "one step larger"]),
        (
            OVERFITTING,
            "overfitting",
            ["got worse by 3.8%", "240% above the training loss", "keep the checkpoint with the best validation"],
        ),
    ],
)
def test_the_three_scenarios_are_told_with_issues_and_suggestions(
    losses: tuple[Sequence[float], Sequence[float]], verdict: str, said: list[str]
) -> None:
    lines = PostEpoch().report(_run(_rows(*losses))[0], _remedies)
    assert lines[0].startswith(f"epoch 4: {verdict};")
    assert all(any(part in line for line in lines[1:]) for part in said), lines


def test_a_healthy_epoch_is_one_line_and_none_is_none() -> None:
    assert PostEpoch().report(PostEpoch().init(), _remedies) == []
    assert PostEpoch().report(_run(_rows((2.0,), (2.1,)))[0], _remedies) == [
        "epoch 1: validation loss 2, training loss 2.1, gap -4.8%"
    ]
    assert PostEpoch().report(_run(_rows((2.0, 1.5), (2.1, 1.5)))[0], _remedies) == [
        "epoch 2: healthy; validation loss 1.5 (25% better, good), training loss 1.5, gap 0%; learning rate fine"
    ]


@pytest.mark.parametrize(
    ("validation", "band"),
    [
        (1.99, "0.5% better, poor"),
        (1.95, "2.5% better, acceptable"),
        (1.8, "10% better, good"),
        (2.1, "5% worse, poor"),
    ],
)
def test_an_improvement_is_told_with_its_band(validation: float, band: str) -> None:
    assert f"({band})" in PostEpoch().report(_run(_rows((2.0, validation), (2.0, 1.9)))[0], _remedies)[0]


def test_the_band_of_good_progress_is_a_setting() -> None:
    evaluation = PostEpoch(rule=EpochAssessment(good_improvement=0.02))
    assert "(2.5% better, good)" in evaluation.report(_run(_rows((2.0, 1.95), (2.0, 1.9)), evaluation)[0], _remedies)[0]


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([2.0] * 40, ["; learning rate too low", "raise the learning rate from 0.1 to 0.5"]),
        (
            [2.0] * 5 + [8.0] * 20 + [3.0] * 15,
            ["; learning rate too high", "lower the learning rate from 0.1 to 0.01", "clip the gradient norm at 2"],
        ),
        (list(np.linspace(2.0, 1.0, 40)), ["; learning rate fine"]),
        ([2.0] * 10, []),
    ],
    ids=["still", "spiked", "falling", "too few"],
)
def test_the_learning_rate_is_judged_after_the_first_epoch_already(losses: list[float], said: list[str]) -> None:
    rows = [{"loss": loss, "lr": 0.1} for loss in losses]
    rows[-1] |= {"val/loss": 2.0, "epoch": 1.0}
    lines = PostEpoch().report(_run(rows)[0], _remedies)
    assert len(lines) == max(len(said), 1)
    assert all(part in line for part, line in zip(said, lines, strict=False))
    assert ("learning rate" in lines[0]) == bool(said)


@pytest.mark.parametrize(
    ("losses", "more", "rate"),
    [
        (((2.0, 1.999), (2.0, 1.995)), {"lr": 1e-6}, "too low"),
        (((2.0, 3.0), (2.0, 2.5)), {"lr": 1.0}, "too high"),
        (((2.0, 1.985), (2.0, 1.97)), {"update/ratio": 0.2}, "too high"),
        (((2.0, 1.985), (2.0, 1.97)), {"update/ratio": 1e-8}, "too low"),
        (((2.0, 1.0), (2.0, 1.0)), {"update/ratio": 0.2}, "fine"),
        (((2.0, 1.9), (2.0, 1.9)), {"update/ratio": 1e-3}, "fine"),
    ],
)
def test_the_learning_rate_is_validated_by_losses_and_updates(
    losses: tuple[Sequence[float], Sequence[float]], more: Mapping[str, float], rate: str
) -> None:
    lines = PostEpoch().report(_run(_rows(*losses, more=more))[0], _remedies)
    assert lines[0].endswith(f"; learning rate {rate}")
    assert any("the learning rate" in line for line in lines[1:]) == (rate != "fine")


def test_a_rate_at_the_end_of_its_schedule_is_never_too_low() -> None:
    rows = _rows((2.0, 1.0, 0.999), (2.0, 1.0, 0.999), more={"update/ratio": 1e-9})
    for row, lr in zip(rows, (0.1, 0.1, 0.001), strict=True):
        row["lr"] = lr
    assert PostEpoch().report(_run(rows)[0], _remedies)[0].endswith("learning rate fine")


def test_the_learning_rate_is_validated_after_the_epochs_that_were_given_and_all_later_ones() -> None:
    evaluation = PostEpoch(rule=EpochAssessment(rate_epochs=(2, 5)))
    rows = _rows([2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.9], [2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.9])
    judged = []
    state = evaluation.init()
    for epoch, row in enumerate(rows, 1):
        state, _ = evaluation.step(state, StepView(epoch, row, {}, ()))
        judged.append("learning rate" in evaluation.report(state, _remedies)[0])
    assert judged == [False, True, False, False, True, True, True]


def test_a_long_run_is_held_against_its_very_first_epoch() -> None:
    losses = [2.0, 1.5, 1.0, *[0.5] * 60]
    lines = PostEpoch().report(_run(_rows(losses, losses))[0], _remedies)
    assert lines[0] == (
        "epoch 63: plateau; validation loss 0.5 (0% better, poor), training loss 0.5, gap 0%; learning rate fine"
    )


def test_thresholds_are_the_rules() -> None:
    rule = EpochAssessment(least_improvement=0.05, widest_gap=0.5, patience=2)
    state, told = _run(_rows(*SLOWING), PostEpoch(rule=rule))
    assert told[-1][1]["plateau_detected"] == 1.0
    lines = PostEpoch(rule=rule).report(state, _remedies)
    assert lines[0].startswith("epoch 4: plateau")
    assert "less than 5% in each of the last 2 epochs" in lines[1]
    assert not any("above the training" in line for line in lines)


def test_several_evaluations_in_an_epoch_count_once_by_the_last_of_them() -> None:
    rows = _rows((2.0, 1.0, 0.5), (2.0, 1.0, 0.5), steps=10)
    for place in range(4, 30, 10):
        rows[place]["val/loss"] = 9.0
    _, told = _run(rows)
    # Before the first `epoch` an evaluation cannot be told from one: it is taken back afterwards.
    assert [step for step, _ in told] == [5, 10, 20, 30]
    assert "improvement_rate" not in told[1][1]
    assert [values["improvement_rate"] for _, values in told[2:]] == [0.5, 0.5]


def test_an_epoch_may_end_after_its_evaluation_and_one_without_is_left_out() -> None:
    rows = [{"loss": 1.0, "val/loss": 2.0}, {"loss": 1.0, "epoch": 1.0}, {"loss": 1.0, "epoch": 2.0}]
    rows += [{"loss": 1.0, "val/loss": 1.0}, {"loss": 1.0, "epoch": 3.0}]
    state, told = _run(rows)
    assert [step for step, _ in told] == [1, 2, 5]
    assert told[-1][1]["improvement_rate"] == 0.5
    assert state.epochs.number == 3


def test_without_epochs_every_evaluation_is_one() -> None:
    rows = [{"loss": 1.0}, {"loss": 1.0, "val/loss": 2.0}, {"loss": 1.0}, {"loss": 1.0, "val/loss": 1.5}]
    state, told = _run(rows)
    assert [step for step, _ in told] == [2, 4]
    assert PostEpoch().report(state, _remedies)[0].startswith("epoch 2: ")


def test_values_that_are_not_finite_and_losses_about_zero_are_borne() -> None:
    state, told = _run(_rows((1.0, math.nan, math.inf, 0.9), (1.0, math.nan, 0.9, 0.8)))
    assert [step for step, _ in told] == [1, 4]
    state, told = _run(_rows((-1.0, -1.5, 0.0, -0.5), (-1.0, -1.2, 0.0, 0.1)))
    assert all(np.isfinite(value) for _, values in told for value in values.values())
    assert len(PostEpoch().report(state, _remedies)) == 1


@pytest.mark.parametrize("losses", [SLOWING, UNDERFITTING, OVERFITTING])
def test_while_an_alarm_is_open_only_the_numbers_are_told_and_where_to_look(
    losses: tuple[Sequence[float], Sequence[float]],
) -> None:
    """Two voices contradict each other: one line said to lower the rate, the next to raise it."""
    alarm = Finding(
        code="LOS003",
        name="loss-diverges",
        severity=Severity.CRITICAL,
        first_step=12,
        last_step=40,
        open=True,
        message="the loss rose from 2 to 40",
    )
    lines = PostEpoch().report(_run(_rows(*losses))[0], _remedies, [alarm])
    assert lines[0].startswith("epoch 4: validation ")
    assert "learning rate" not in lines[0]
    assert lines[1:] == ["  see critical: cause not known, since step 12: LOS003 loss-diverges"]


@pytest.mark.parametrize("losses", [SLOWING, UNDERFITTING, OVERFITTING])
def test_what_to_try_is_what_the_remedies_of_the_cause_say(
    losses: tuple[Sequence[float], Sequence[float]],
) -> None:
    tried = [line.removeprefix("  try: ") for line in PostEpoch().report(_run(_rows(*losses))[0], _remedies)[1:]]
    known = {remedy.text for cause in Cause for remedy in _remedies(cause)}
    assert [line for line in tried if not line.startswith("  issue: ")]
    assert {line for line in tried if not line.startswith("  issue: ")} <= known
