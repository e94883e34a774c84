from tests.rules.traces import alarms, falling, judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.loops.summed_loss import SummedLoss
from sonde.rules.step_view import Fact

FACTS = {2: [Fact("preflight", {"check": "summed-loss", "line": "train.py:5", "value": "nll"})]}


def test_a_sum_that_learns_well_is_information() -> None:
    seen = judge(SummedLoss(), rows(300, loss=falling(300, start=115.0, end=20.0)), facts=FACTS)
    assert seen[0][0] == 2
    assert worst(seen) is Severity.INFO


def test_a_sum_that_blows_up_is_a_warning() -> None:
    climbing = [100.0 + 10 * step for step in range(100)]
    seen = judge(SummedLoss(), rows(100, loss=climbing), facts=FACTS)
    assert alarms(seen)
    assert "train.py:5" in alarms(seen)[0][1].message


def test_without_the_fact_nothing_is_said() -> None:
    assert judge(SummedLoss(), rows(300, loss=1000.0)) == []


def test_adam_does_not_mind_the_scale() -> None:
    climbing = [100.0 + 10 * step for step in range(100)]
    assert judge(SummedLoss(), rows(100, loss=climbing, optimizer__beta2_at_0=0.999), facts=FACTS) == []
