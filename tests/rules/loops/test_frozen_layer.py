import pytest
from tests.rules.traces import judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.loops.frozen_layer import FrozenLayer
from sonde.rules.step_view import Fact


@pytest.mark.parametrize("check", ["frozen-parameter", "zero-rate"])
@pytest.mark.parametrize(("fresh", "severity"), [(0.9, Severity.WARNING), (0.1, Severity.INFO), (0.0, Severity.INFO)])
def test_only_layers_frozen_before_they_learned_are_a_warning(check: str, fresh: float, severity: Severity) -> None:
    data = {"check": check, "where": ["encoder.0.weight"], "num": 6, "value": 0.96, "fresh": fresh}
    seen = judge(FrozenLayer(), rows(10, loss=1.0), facts={2: [Fact("preflight", data)]})
    assert worst(seen) is severity
    assert seen[0][0] == 2
    assert "6 parameters are frozen" in seen[0][1].message


def test_without_the_fact_nothing_is_said() -> None:
    assert judge(FrozenLayer(), rows(300, loss=1.0)) == []
