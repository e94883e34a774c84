"""WGT004 weights-shrink."""

from sonde.core.findings import Severity
from sonde.rules.weights.weights_shrink import WeightsShrink

from ..traces import falling, flat, judge, rows, worst

_SHRINKING = [None if i % 10 else 10 * 0.99**i for i in range(200)]


def test_withering_weights_under_a_loss_near_guessing_are_a_warning() -> None:
    given = rows(200, loss=flat(200, 1.3, noise=0.01), weight__norm=_SHRINKING, label__entropy=1.4)
    seen = judge(WeightsShrink(), given)
    assert worst(seen) is Severity.WARNING
    assert seen[0][1].since == 1


def test_a_loss_that_falls_makes_it_information() -> None:
    assert worst(judge(WeightsShrink(), rows(200, loss=falling(200), weight__norm=_SHRINKING))) is Severity.INFO


def test_without_weight_decay_and_without_shrinking_it_is_silent() -> None:
    given = rows(200, loss=flat(200), weight__norm=_SHRINKING, optimizer__weight_decay_at_0=0.0)
    assert judge(WeightsShrink(), given) == []
    growing = [None if i % 10 else 10 + 0.01 * i for i in range(200)]
    assert judge(WeightsShrink(), rows(200, loss=flat(200), weight__norm=growing)) == []


def test_decay_that_would_leave_nothing_is_a_warning_before_a_hundred_steps() -> None:
    losses = falling(90, start=1.4, end=1.1, noise=0.01)
    withering = [None if i % 10 else 4 + 6 * 0.9**i for i in range(90)]
    strong = rows(90, loss=losses, weight__norm=withering, optimizer__weight_decay_at_0=20.0, lr=3e-3)
    assert next(step for step, seen in judge(WeightsShrink(), strong) if seen.severity.is_alarm) == 51
    usual = rows(90, loss=losses, weight__norm=withering, optimizer__weight_decay_at_0=0.1, lr=3e-3)
    assert worst(judge(WeightsShrink(), usual)) is Severity.INFO


def test_weights_that_decay_took_away_are_a_warning_whatever_the_loss_is() -> None:
    losses = falling(90, start=1.0, end=-1.0)
    strong = {"optimizer__weight_decay_at_0": 20.0, "lr": 3e-2}
    gone = [None if i % 10 else 10 * 0.98**i for i in range(90)]
    assert worst(judge(WeightsShrink(), rows(90, loss=losses, weight__norm=gone, **strong))) is Severity.WARNING
    smaller = [None if i % 10 else 5 + 5 * 0.98**i for i in range(90)]
    assert worst(judge(WeightsShrink(), rows(90, loss=losses, weight__norm=smaller, **strong))) is Severity.INFO
