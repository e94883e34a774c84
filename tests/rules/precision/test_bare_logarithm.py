"""NUM004 bare-logarithm."""

from sonde.core.findings import Severity
from sonde.rules.precision.bare_logarithm import BareLogarithm
from sonde.rules.step_view import Fact

from ..traces import alarms, judge, rows, worst

BARE = Fact("preflight", {"check": "log-of-probabilities", "where": [], "value": "softmax"})


def _vanish(which: str, value: float, limit: float) -> Fact:
    about = {"check": "probabilities-vanish", "where": [], "value": value, "limit": limit, "which": which}
    return Fact("preflight", about)


def test_a_bare_logarithm_is_information() -> None:
    seen = judge(BareLogarithm(), rows(20, loss=1.0), facts={2: [BARE]})
    assert [step for step, _ in seen] == list(range(2, 21))
    assert worst(seen) is Severity.INFO


def test_probabilities_that_vanish_are_a_warning_for_a_hundred_steps() -> None:
    facts = {2: [BARE], 10: [_vanish("spread", 69.0, 103.28)]}
    seen = alarms(judge(BareLogarithm(), rows(200, loss=1.0), facts=facts))
    assert (seen[0][0], seen[-1][0]) == (10, 110)
    assert "spread of outputs reached 69 at step 10, and beyond 103" in seen[0][1].message


def test_exponentials_near_infinity_are_said_as_such() -> None:
    facts = {2: [BARE], 10: [_vanish("largest", 7.2, 11.09)]}
    message = alarms(judge(BareLogarithm(), rows(20, loss=1.0), facts=facts))[0][1].message
    assert "largest output reached 7 at step 10, and exp is infinite beyond 11" in message


def test_other_losses_and_steps_without_a_finite_loss_say_nothing() -> None:
    assert judge(BareLogarithm(), rows(20, loss=1.0)) == []
    assert judge(BareLogarithm(), rows(20, loss=float("nan")), facts={2: [BARE]}) == []
