from tests.rules.traces import falling, judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.loops.targets_are_inputs import TargetsAreInputs
from sonde.rules.step_view import Fact

FACT = Fact("preflight", {"check": "targets-are-inputs", "value": 1.0, "num": 640, "line": "train.py:31"})


def test_it_is_an_alarm_once_the_model_copies() -> None:
    losses = [3.0 * 0.97**step for step in range(60)]
    seen = judge(TargetsAreInputs(), rows(60, loss=losses), facts={3: [FACT]})
    first = next(step for step, sighting in seen if sighting.severity is Severity.WARNING)
    assert 20 < first < 50
    step, sighting = seen[-1]
    assert (step, sighting.severity, sighting.since) == (60, Severity.WARNING, 3)
    assert "100% of the targets" in sighting.message
    assert "train.py:31" in sighting.message


def test_it_is_information_while_nothing_is_learned() -> None:
    assert worst(judge(TargetsAreInputs(), rows(60, loss=3.0), facts={3: [FACT]})) is Severity.INFO


def test_without_the_fact_nothing_is_said() -> None:
    others = [Fact("preflight", {"check": "labels", "value": 1.6})]
    assert judge(TargetsAreInputs(), rows(300, loss=falling(300)), facts={3: others}) == []
