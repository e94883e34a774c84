"""GRD015 few-steps-an-epoch."""

from sonde.core.findings import Severity
from sonde.rules.gradients.few_steps_an_epoch import FewStepsAnEpoch

from ..traces import falling, judge, rows


def _epochs(num: int, steps: int) -> list[float | None]:
    return [None if i % steps else float(steps) for i in range(1, num + 1)]


def test_epochs_of_a_few_large_batches_are_told_from_the_third_on() -> None:
    seen = judge(FewStepsAnEpoch(), rows(40, loss=falling(40), batch__samples=512.0, epoch__steps=_epochs(40, 4)))
    assert [step for step, _ in seen][:2] == [12, 16]
    assert {sighting.severity for _, sighting in seen} == {Severity.INFO}


def test_small_batches_long_epochs_and_logs_without_either_say_nothing() -> None:
    small = rows(40, loss=falling(40), batch__size=32.0, epoch__steps=_epochs(40, 4))
    long = rows(200, loss=falling(200), batch__size=512.0, epoch__steps=_epochs(200, 50))
    unknown = rows(40, loss=falling(40), epoch__steps=_epochs(40, 4))
    without = rows(40, loss=falling(40), batch__size=512.0)
    for given in (small, long, unknown, without):
        assert judge(FewStepsAnEpoch(), given) == []
