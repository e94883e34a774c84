from sonde.core.findings import Severity
from sonde.rules.gradients.gradients_vanish import GradientsVanish

from ..traces import alarms, flat, judge, rows, worst


def test_it_warns_where_the_loss_is_stuck_at_its_start() -> None:
    norms = [*flat(60), *flat(90, 0.01)]
    seen = alarms(judge(GradientsVanish(), rows(150, loss=flat(150, noise=0.01), grad__norm=norms)))
    assert seen[0][0] == 100
    assert seen[0][1].since == 61


def test_a_solved_task_may_have_tiny_gradients() -> None:
    losses = [2.0 * 0.9**step for step in range(200)]
    norms = [0.9**step for step in range(200)]
    assert not judge(GradientsVanish(), rows(200, loss=losses, grad__norm=norms))


def test_at_a_minimum_far_below_the_start_it_is_information() -> None:
    losses = [*flat(50, 2.0), *flat(200, 0.5, noise=0.01)]
    norms = [*flat(50), *flat(200, 0.01)]
    assert worst(judge(GradientsVanish(), rows(250, loss=losses, grad__norm=norms))) is Severity.INFO


def test_it_abstains_without_norms() -> None:
    assert not judge(GradientsVanish(), rows(150, loss=1.0))
