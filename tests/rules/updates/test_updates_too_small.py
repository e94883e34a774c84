import numpy as np

from sonde.core.findings import Severity
from sonde.rules.updates.updates_too_small import UpdatesTooSmall

from ..traces import alarms, falling, judge, rows, worst


def run(losses: list[float], **more: object) -> list[dict[str, float]]:
    table = rows(len(losses), loss=losses, grad__norm=1.0, **{"lr": 1e-5, **more})
    return [row | {f"update/ratio@{layer}.weight": 1e-5 for layer in range(4)} for row in table]


def creeping(num: int) -> list[float]:
    return list(np.linspace(2.0, 1.7, num) + 0.01 * np.random.default_rng(0).normal(size=num))


def test_a_straight_shallow_descent_is_a_warning() -> None:
    assert alarms(judge(UpdatesTooSmall(), run(creeping(300))))[0][0] == 100


def test_a_descent_that_slows_down_is_information() -> None:
    assert worst(judge(UpdatesTooSmall(), run(falling(300)))) is Severity.INFO


def test_gradients_that_disagree_are_not_the_rate_s_fault() -> None:
    assert not alarms(judge(UpdatesTooSmall(), run(creeping(300), grad__cosine=0.01)))


def test_the_ends_of_a_schedule_say_nothing() -> None:
    warmup = [1e-5 * step for step in range(300)]
    decay = [0.1, *[0.001] * 299]
    assert not judge(UpdatesTooSmall(), run(creeping(300), lr=warmup))
    assert not judge(UpdatesTooSmall(), run(creeping(300), lr=decay))


def test_it_abstains_without_updates() -> None:
    assert not judge(UpdatesTooSmall(), rows(300, loss=creeping(300), grad__norm=1.0, lr=1e-5))
