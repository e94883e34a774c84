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
