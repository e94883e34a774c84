from tests.rules.traces import judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.step_view import Fact
from sonde.rules.systems.watching_problem import WatchingProblem


def test_problems_and_dropped_details_are_information() -> None:
    fact = Fact("monitor-problem", {"reason": "disk full"})
    seen = judge(WatchingProblem(), rows(5, loss=1.0), facts={2: [fact]})
    assert "disk full" in seen[0][1].message
    assert worst(seen) is Severity.INFO
    seen = judge(WatchingProblem(), rows(3, monitor__dropped=1.0))
    assert "3 steps" in seen[-1][1].message


def test_a_run_without_problems_is_silent() -> None:
    assert judge(WatchingProblem(), rows(100, loss=1.0)) == []
