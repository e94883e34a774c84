"""LOS012 loss-swells."""

import math

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.losses.loss_swells import LossSwells

from ..traces import alarms, falling, judge, rows, worst


def _swelling(num: int, crests: tuple[int, ...], *, height: float = 2.5) -> tuple[list[float], list[float]]:
    """A learning curve on which loss and gradient norm swell over some steps, and come down again."""
    losses, norms = falling(num, noise=0.005), [1.0] * num
    for crest in crests:
        for away in range(-5, 4):
            shape = 2.0 ** -abs(away)
            losses[crest + away] += height * shape
            norms[crest + away] += 20 * shape
    return losses, norms


def test_the_second_swell_is_a_warning_on_its_way_up() -> None:
    losses, norms = _swelling(120, (60, 90))
    seen = judge(LossSwells(), rows(120, loss=losses, grad__norm=norms, update__ratio=0.2))
    assert [sighting.severity for _, sighting in seen] == [Severity.INFO, Severity.WARNING]
    assert [step for step, _ in seen] == [60, 90]  # rows are from step 1 on: one step before each crest
    assert seen[1][1].since == 60


def test_a_single_swell_and_two_far_apart_are_information() -> None:
    for crests in ((60,), (60, 150)):
        losses, norms = _swelling(200, crests)
        seen = judge(LossSwells(), rows(200, loss=losses, grad__norm=norms, update__ratio=0.2))
        assert worst(seen) is Severity.INFO


def test_swells_without_large_steps_are_the_data() -> None:
    losses, norms = _swelling(120, (60, 90))
    calm = rows(120, loss=losses, grad__norm=[1 + 0.1 * norm for norm in norms], update__ratio=0.001)
    assert alarms(judge(LossSwells(), calm)) == []


def test_a_jump_by_a_single_batch_is_no_swell() -> None:
    losses, norms = falling(200, noise=0.005), [1.0] * 200
    for at in (80, 100, 120):
        losses[at], norms[at] = 3.0, 30.0
    assert judge(LossSwells(), rows(200, loss=losses, grad__norm=norms, update__ratio=0.2)) == []


def test_noise_does_not_swell() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        losses = falling(600, end=1.0, noise=0.3, seed=seed)
        norms = np.exp(rng.normal(0, 0.5, 600)).tolist()
        assert alarms(judge(LossSwells(), rows(600, loss=losses, grad__norm=norms, update__ratio=0.2))) == []


def test_losses_below_zero_are_judged_by_what_was_gained() -> None:
    losses, norms = _swelling(120, (60, 90))
    below = [loss - 1.0 for loss in losses]
    assert alarms(judge(LossSwells(), rows(120, loss=below, grad__norm=norms, update__ratio=0.2)))[0][0] == 90


def test_without_gradients_or_with_losses_that_are_not_finite_it_abstains() -> None:
    losses, _ = _swelling(120, (60, 90))
    assert judge(LossSwells(), rows(120, loss=losses)) == []
    assert judge(LossSwells(), rows(40, loss=math.nan, grad__norm=1.0)) == []
