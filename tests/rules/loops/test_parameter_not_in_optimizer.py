from tests.rules.traces import falling, judge, rows

from sonde.core.findings import Severity
from sonde.rules.loops.parameter_not_in_optimizer import ParameterNotInOptimizer
from sonde.rules.step_view import Fact

FACT = Fact(
    "preflight",
    {"check": "parameter-not-in-optimizer", "where": ["head.weight", "head.bias"], "num": 2, "value": 0.27},
)


def test_the_fact_is_a_finding_from_its_step_to_the_end_whatever_the_loss_does() -> None:
    seen = judge(ParameterNotInOptimizer(), rows(30, loss=falling(30)), facts={3: [FACT]})
    assert [step for step, _ in seen] == list(range(3, 31))
    for _, sighting in seen:
        assert sighting.severity is Severity.WARNING
        assert sighting.since == 3
        assert sighting.where == ("head.weight", "head.bias")
        assert "27% of the model" in sighting.message


def test_without_the_fact_nothing_is_said() -> None:
    others = [
        Fact("preflight", {"check": "labels", "value": 1.6}),
        Fact("not-measured", {"check": "parameter-not-in-optimizer"}),
    ]
    assert judge(ParameterNotInOptimizer(), rows(300, loss=1.0), facts={3: others}) == []
    assert judge(ParameterNotInOptimizer(), rows(300, loss=float("nan"))) == []


def test_an_optimiser_that_never_steps_is_a_warning_at_step_200_unless_it_steps_after_all() -> None:
    data = {"check": "idle-optimizer", "where": ["encoder.weight"], "num": 1, "value": 0.4, "name": "encoder"}
    facts = {20: [Fact("preflight", data)]}
    run = rows(300, lr_at_decoder=0.1)
    seen = judge(ParameterNotInOptimizer(), run, facts=facts)
    assert (seen[0][0], seen[0][1].severity, seen[0][1].since) == (200, Severity.WARNING, 20)
    assert "the optimiser `encoder` never makes a step" in seen[0][1].message
    late = [row | ({"lr@encoder": 0.1} if step == 150 else {}) for step, row in enumerate(run)]
    assert judge(ParameterNotInOptimizer(), late, facts=facts) == []
