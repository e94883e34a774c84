from tests.rules.traces import falling, judge, rows

from sonde.core.findings import Severity
from sonde.rules.data.constant_labels import ConstantLabels
from sonde.rules.step_view import Fact


def test_the_fact_is_a_warning_even_though_the_loss_falls() -> None:
    fact = Fact("preflight", {"check": "constant-labels", "where": [], "value": 3})
    seen = judge(ConstantLabels(), rows(20, loss=falling(20)), facts={4: [fact]})
    assert seen[0][0] == 4
    assert seen[0][1].severity is Severity.WARNING
    assert "are 3" in seen[0][1].message


def test_without_the_fact_nothing_is_said() -> None:
    assert judge(ConstantLabels(), rows(300, loss=0.0)) == []


def test_numbers_in_batches_alone_are_an_alarm_once_the_loss_is_gone() -> None:
    given = Fact("preflight", {"check": "constant-targets", "where": [], "value": None, "is_integer": False})
    seen = judge(ConstantLabels(), rows(200, loss=[*falling(100), *[1e-4] * 100]), facts={4: [given]})
    severities = [sighting.severity for _, sighting in seen]
    assert severities[:96] == [Severity.INFO] * 96
    assert severities[-1] is Severity.WARNING
    assert "are the same" in seen[0][1].message
    seen = judge(ConstantLabels(), rows(200, loss=[0.1, -0.1] * 100), facts={4: [given]})
    assert {sighting.severity for _, sighting in seen} == {Severity.INFO}


def test_integers_that_the_loss_need_not_be_about_are_only_worth_knowing_until_it_shows_them() -> None:
    given = Fact("preflight", {"check": "constant-targets", "where": [], "value": 0, "is_integer": True})
    used = Fact("preflight", {"check": "constant-labels", "where": [], "value": 0})
    seen = judge(ConstantLabels(), rows(20, loss=falling(20)), facts={4: [given], 9: [used]})
    assert [step for step, sighting in seen if sighting.severity is Severity.INFO] == [4, 5, 6, 7, 8]
    assert [step for step, sighting in seen if sighting.severity is Severity.WARNING] == list(range(9, 21))


def test_targets_of_the_loss_itself_that_never_vary_are_an_alarm_where_validation_has_learned_nothing() -> None:
    cost = [0.0 if i % 10 == 1 else None for i in range(200)]
    losses = [*falling(100), *[1e-3] * 100]
    validation = [0.9 if i % 50 == 49 else None for i in range(200)]
    seen = judge(ConstantLabels(), rows(200, loss=losses, loss__trivial=cost, val__loss=validation))
    assert {sighting.severity for _, sighting in seen} == {Severity.INFO, Severity.WARNING}
    # Residuals that are compared with zeros: their validation falls as they do.
    falls = [0.9 * 0.1 ** (i // 50) if i % 50 == 49 else None for i in range(200)]
    for more in ({}, {"val__loss": falls}):
        seen = judge(ConstantLabels(), rows(200, loss=losses, loss__trivial=cost, **more))
        assert {sighting.severity for _, sighting in seen} == {Severity.INFO}
    # A constant that is not zero, and no validation that could tell.
    one = [0.7 if i % 10 == 1 else None for i in range(200)]
    seen = judge(ConstantLabels(), rows(200, loss=losses, loss__trivial=cost, loss__zeros=one))
    assert {sighting.severity for _, sighting in seen} == {Severity.INFO, Severity.WARNING}
    varied = [0.0 if i % 20 == 1 else 0.4 if i % 20 == 11 else None for i in range(200)]
    assert judge(ConstantLabels(), rows(200, loss=losses, loss__trivial=varied)) == []
