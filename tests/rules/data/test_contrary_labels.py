"""DAT007 contrary-labels."""

from sonde.rules.data.contrary_labels import ContraryLabels

from ..traces import alarms, flat, judge, rows

EVERY = 40


def run(trainings: list[float], validations: list[float], *, start: float = 1.39) -> list[dict[str, float]]:
    losses = [start] * 5
    evaluations: list[float | None] = [None] * 5
    for training, validation in zip(trainings, validations, strict=True):
        losses += flat(EVERY, training, noise=0.03)
        evaluations += [None] * (EVERY - 1) + [validation]
    return rows(len(losses), loss=losses, val__loss=evaluations)


def test_training_that_settles_high_above_a_validation_that_gets_better_is_a_warning() -> None:
    trainings = [1.35, 1.25, 1.19, 1.15, 1.13, 1.12, 1.10, 1.10]
    validations = [1.21, 1.00, 0.91, 0.84, 0.85, 0.80, 0.79, 0.78]
    seen = alarms(judge(ContraryLabels(), run(trainings, validations)))
    assert seen
    assert 5 + 6 * EVERY <= seen[0][0] <= 5 + 8 * EVERY


def test_training_that_is_learned_by_heart_above_a_validation_that_stands_is_one_too() -> None:
    trainings = [1.22, 1.05, 1.00, 0.97, 0.95, 0.93, 0.91, 0.89, 0.87]
    validations = [0.83, 0.60, 0.54, 0.53, 0.53, 0.51, 0.52, 0.53, 0.52]
    assert alarms(judge(ContraryLabels(), run(trainings, validations)))


def test_an_easier_validation_set_is_so_from_the_start() -> None:
    trainings = [1.38, 1.20, 1.10, 1.06, 1.05, 1.04, 1.04, 1.04]
    assert judge(ContraryLabels(), run(trainings, [loss / 1.4 for loss in trainings])) == []


def test_dropout_in_a_training_that_gets_on_and_mixed_labels_are_silent() -> None:
    both = [1.30, 1.10, 0.95, 0.80, 0.70, 0.60, 0.52, 0.47]
    assert judge(ContraryLabels(), run(both, [0.7 * loss for loss in both])) == []
    mixed = [1.35, 1.25, 1.15, 1.08, 1.05, 1.04, 1.03, 1.03]
    low = [0.95, 0.60, 0.40, 0.30, 0.28, 0.27, 0.26, 0.26]
    assert judge(ContraryLabels(), run(mixed, low)) == []


def test_validation_above_training_few_evaluations_and_none_are_silent() -> None:
    trainings = [1.35, 1.25, 1.19, 1.15, 1.13, 1.12, 1.10, 1.10]
    assert judge(ContraryLabels(), run(trainings, [1.05 * loss for loss in trainings])) == []
    assert judge(ContraryLabels(), run(trainings[:4], [1.21, 1.00, 0.91, 0.84])) == []
    assert judge(ContraryLabels(), rows(400, loss=flat(400, 1.1))) == []
