import numpy as np

from sonde.core.findings import Severity
from sonde.rules.gradients.always_clipped import AlwaysClipped

from ..traces import alarms, falling, flat, judge, rows, worst


def clipped(num: int, losses: list[float], factor: float) -> list[dict[str, float]]:
    return rows(num, loss=losses, clip__factor=factor, clip__limit=0.01, grad__norm=0.01 / factor)


def test_a_harsh_clip_with_a_straight_shallow_descent_is_a_warning() -> None:
    losses = (np.linspace(2.0, 1.6, 300) + 0.01 * np.random.default_rng(0).normal(size=300)).tolist()
    seen = judge(AlwaysClipped(), clipped(300, losses, 0.05))
    assert seen[0][0] == 30
    assert alarms(seen)[0][0] == 100


def test_a_harsh_clip_that_does_not_hurt_is_information() -> None:
    assert worst(judge(AlwaysClipped(), clipped(300, falling(300), 0.01))) is Severity.INFO


def test_clipping_now_and_then_is_healthy() -> None:
    factors = [0.1 if step % 5 == 0 else 1.0 for step in range(300)]
    assert not judge(AlwaysClipped(), rows(300, loss=flat(300), clip__factor=factors, clip__limit=1.0))


def test_it_abstains_where_nothing_clips() -> None:
    assert not judge(AlwaysClipped(), rows(300, loss=flat(300)))


def test_a_clip_to_a_hundredth_under_a_loss_that_stands_needs_no_hundred_steps() -> None:
    assert alarms(judge(AlwaysClipped(), clipped(120, flat(120, 1.8, noise=0.01), 0.01)))[0][0] <= 60
    assert alarms(judge(AlwaysClipped(), clipped(120, flat(120, 1.8, noise=0.01), 0.08)))[0][0] >= 100
