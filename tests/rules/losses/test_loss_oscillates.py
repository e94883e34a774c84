"""LOS006 loss-oscillates."""

from sonde.core.findings import Severity
from sonde.rules.losses.loss_oscillates import LossOscillates

from ..traces import falling, flat, judge, rows, worst


def test_alternating_losses_that_fall_are_information() -> None:
    losses = [loss * (1.3 if i % 2 else 0.7) for i, loss in enumerate(falling(100, noise=0.01))]
    seen = judge(LossOscillates(), rows(100, loss=losses))
    assert worst(seen) is Severity.INFO
    assert seen[0][0] < 60


def test_alternating_losses_that_rise_are_a_warning() -> None:
    losses = [1.02**i * (1.3 if i % 2 else 0.7) for i in range(150)]
    assert worst(judge(LossOscillates(), rows(150, loss=losses))) is Severity.WARNING


def test_gradients_that_point_against_each_other_count() -> None:
    assert judge(LossOscillates(), rows(20, loss=falling(20), grad__cosine=-0.9))


def test_white_noise_and_learning_curves_do_not_oscillate() -> None:
    for seed in range(3):
        assert judge(LossOscillates(), rows(300, loss=flat(300, seed=seed))) == []
        assert judge(LossOscillates(), rows(300, loss=falling(300, seed=seed))) == []
