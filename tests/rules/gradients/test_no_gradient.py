from sonde.core.findings import Severity
from sonde.rules.gradients.no_gradient import NoGradient
from sonde.rules.step_view import Fact

from ..traces import alarms, falling, flat, judge, rows

FIRST = {"grad/norm@head.weight": 1.0, "weight/norm@head.weight": 1.0, "weight/norm@body.weight": 1.0}
STILL = {"update/norm@body.weight": 0.0}


def run(losses: list[float]) -> list[dict[str, float]]:
    table = rows(len(losses), loss=losses)
    return [row | (FIRST if step % 10 == 0 else STILL) for step, row in enumerate(table)]


def test_it_is_known_by_the_third_step_and_an_alarm_once_training_is_stuck() -> None:
    seen = judge(NoGradient(), run(flat(120, noise=0.01)))
    assert seen[0][0] == 3
    assert seen[0][1].where == ("body.weight",)
    assert alarms(seen)[0][0] == 100


def test_it_is_information_while_the_loss_falls() -> None:
    assert {sighting.severity for _, sighting in judge(NoGradient(), run(falling(200)))} == {Severity.INFO}


def test_what_preflight_calls_frozen_is_left_out() -> None:
    frozen = {1: [Fact("preflight", {"check": "frozen-parameter", "where": ["body.weight"], "num": 1})]}
    assert not judge(NoGradient(), run(flat(120, noise=0.01)), facts=frozen)


def test_exact_zeros_at_every_look_count_too_but_not_at_the_first_only() -> None:
    zero = FIRST | {"grad/norm@body.weight": 0.0}
    assert judge(NoGradient(), [zero] * 3)[0][0] == 3
    assert not judge(NoGradient(), [zero, *[FIRST | {"grad/norm@body.weight": 0.1}] * 5])


def test_it_abstains_without_layers() -> None:
    assert not judge(NoGradient(), rows(20, loss=1.0, grad__norm=1.0))
