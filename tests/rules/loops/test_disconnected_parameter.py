import pytest
from tests.rules.traces import judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.loops.disconnected_parameter import DisconnectedParameter
from sonde.rules.step_view import Fact


def fact(check: str, share: float) -> Fact:
    return Fact("preflight", {"check": check, "where": ["a.weight"], "num": 1, "value": share, "line": "train.py:1"})


@pytest.mark.parametrize(
    ("check", "share", "severity"),
    [
        ("disconnected-parameter", 0.4, Severity.WARNING),
        ("disconnected-parameter", 0.006, Severity.INFO),  # such as the unused pooler of an encoder
        ("idle-parameter", 0.4, Severity.INFO),
    ],
)
def test_a_large_part_without_gradient_is_a_warning_and_a_small_or_idle_one_is_not(
    check: str, share: float, severity: Severity
) -> None:
    seen = judge(DisconnectedParameter(), rows(10, loss=1.0), facts={4: [fact(check, share)]})
    assert worst(seen) is severity
    assert seen[0][0] == 4
    assert seen[0][1].where == ("a.weight",)


def test_without_the_fact_nothing_is_said() -> None:
    assert judge(DisconnectedParameter(), rows(300, loss=1.0)) == []
