"""GEN004 epoch-assessment."""

from sonde.core.findings import Severity
from sonde.rules.generalisation.epoch_assessment import EpochAssessment

from ..traces import judge, rows, worst


def _rows(validations: list[float], trainings: list[float]) -> list[dict[str, float]]:
    losses = [loss for loss in trainings for _ in range(10)]
    given = [None if (i + 1) % 10 else validations[i // 10] for i in range(len(losses))]
    return rows(len(losses), loss=losses, val__loss=given)


def test_the_verdict_is_given_at_the_epoch_as_information() -> None:
    seen = judge(EpochAssessment(), _rows([3.6, 2.8, 2.6, 2.7], [3.5, 2.1, 1.2, 0.8]))
    assert seen[-1][0] == 40
    assert seen[-1][1].message.startswith("overfitting")
    assert worst(seen) is Severity.INFO


def test_healthy_epochs_are_silent() -> None:
    assert judge(EpochAssessment(), _rows([3.0, 2.0, 1.5, 1.2], [3.0, 2.0, 1.4, 1.1])) == []


def test_diverging_says_only_what_is_true_of_both_its_forms() -> None:
    for validations, trainings in (([2.1, 1.3], [2.0, 9.0]), ([2.0, 3.0], [2.0, 2.1])):
        (_, sighting), *_ = judge(EpochAssessment(), _rows(validations, trainings))
        assert sighting.message.startswith("diverging: the training loss is above its first")
