from tests.rules.traces import falling, judge, rows

from sonde.core.findings import Severity
from sonde.rules.loops.train_mode_in_evaluation import TrainModeInEvaluation
from sonde.rules.step_view import Fact

FACT = Fact("preflight", {"check": "train-mode-in-evaluation", "where": ["drop"], "value": 1})


def test_the_fact_is_a_finding_from_its_step_to_the_end_whatever_the_loss_does() -> None:
    seen = judge(TrainModeInEvaluation(), rows(30, loss=falling(30)), facts={3: [FACT]})
    assert [step for step, _ in seen] == list(range(3, 31))
    for _, sighting in seen:
        assert sighting.severity is Severity.WARNING
        assert sighting.since == 3
        assert sighting.where == ("drop",)
        assert "train mode" in sighting.message


def test_without_the_fact_nothing_is_said() -> None:
    others = [
        Fact("preflight", {"check": "labels", "value": 1.6}),
        Fact("not-measured", {"check": "train-mode-in-evaluation"}),
    ]
    assert judge(TrainModeInEvaluation(), rows(300, loss=1.0), facts={3: others}) == []
    assert judge(TrainModeInEvaluation(), rows(300, loss=float("nan"))) == []
