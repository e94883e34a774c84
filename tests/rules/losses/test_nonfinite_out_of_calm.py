"""What was calm before the loss was no number, and what was not."""

import math

from sonde.core.findings import Severity
from sonde.rules.losses.nonfinite_out_of_calm import NonfiniteOutOfCalm

from ..traces import falling, judge, rows


def test_a_loss_that_breaks_out_of_calm_is_told_once_and_as_information() -> None:
    losses = falling(100)
    losses[80:] = [math.nan] * 20
    seen = judge(NonfiniteOutOfCalm(), rows(100, loss=losses, grad__norm=1.0))
    assert [step for step, _ in seen] == [81]
    assert seen[0][1].severity is Severity.INFO


def test_a_loss_that_grew_before_is_not_out_of_calm() -> None:
    losses = falling(100)
    losses[75:80] = [3.0, 10.0, 100.0, 1e4, 1e8]
    losses[80:] = [math.inf] * 20
    assert not judge(NonfiniteOutOfCalm(), rows(100, loss=losses, grad__norm=1.0))


def test_a_gradient_that_grew_before_is_not_calm_either() -> None:
    losses, norms = falling(100), falling(100)
    norms[76:80] = [30.0, 1e3, 1e5, 1e8]
    losses[80:] = [math.nan] * 20
    assert not judge(NonfiniteOutOfCalm(), rows(100, loss=losses, grad__norm=norms))


def test_a_loss_that_is_finite_or_breaks_in_the_first_steps_says_nothing() -> None:
    assert not judge(NonfiniteOutOfCalm(), rows(100, loss=falling(100)))
    assert not judge(NonfiniteOutOfCalm(), rows(5, loss=[1.0, 1.0, math.nan, math.nan, math.nan]))
