"""LOS002 loss-spike."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.losses.loss_spike import LossSpike

from ..traces import alarms, falling, flat, judge, rows, worst


def _with(losses: list[float], at: int, value: float, num: int = 1) -> list[float]:
    return [*losses[:at], *[value] * num, *losses[at + num :]]


def test_one_bad_batch_is_a_spike_at_its_step() -> None:
    seen = alarms(judge(LossSpike(), rows(300, loss=_with(falling(300), 200, 3.0), grad__norm=1.0)))
    assert seen[0][0] == 201


def test_a_spike_that_stays_is_critical() -> None:
    seen = judge(LossSpike(), rows(300, loss=_with(falling(300), 200, 2.5, 100), grad__norm=1.0))
    assert worst(seen) is Severity.CRITICAL


def test_a_learning_curve_does_not_spike() -> None:
    for seed in range(4):
        assert judge(LossSpike(), rows(400, loss=falling(400, noise=0.1, seed=seed))) == []


def test_exponential_losses_of_tiny_batches_do_not_spike() -> None:
    for seed in range(4):
        losses = np.random.default_rng(seed).exponential(size=400).tolist()
        assert alarms(judge(LossSpike(), rows(400, loss=losses))) == []


def test_heavy_tails_about_zero_are_information_only() -> None:
    losses = np.random.default_rng(0).standard_t(2, size=400).tolist()
    assert alarms(judge(LossSpike(), rows(400, loss=losses))) == []


def test_a_solved_task_cannot_spike() -> None:
    solved = [*falling(100), *flat(200, 1e-6)]
    assert judge(LossSpike(), rows(300, loss=_with(solved, 280, 1e-3))) == []


def test_a_swell_that_catches_itself_is_information() -> None:
    calm = flat(150, 0.04, noise=0.01)
    swell = [0.046, 0.11, 0.45, 1.2, 1.1, 0.3, 0.08, *flat(40, 0.04, noise=0.01)]
    seen = judge(LossSpike(), rows(197, loss=[1.0, *calm[1:], *swell]))
    assert seen
    assert alarms(seen) == []


def test_nan_is_not_its_business() -> None:
    assert judge(LossSpike(), rows(100, loss=_with(falling(100), 60, float("nan"), 40))) == []


def test_one_wrong_example_of_a_solved_task_is_information() -> None:
    solved = [*falling(100, start=2.0, end=0.01), *flat(200, 0.01, noise=0.3)]
    assert worst(judge(LossSpike(), rows(300, loss=_with(solved, 250, 0.8)))) is Severity.INFO
    assert alarms(judge(LossSpike(), rows(300, loss=_with(solved, 250, 5.0))))


def test_a_fine_tuned_model_is_held_against_what_guessing_gives() -> None:
    tuned = _with(flat(300, 0.1, noise=0.1), 250, 0.3)
    assert alarms(judge(LossSpike(), rows(300, loss=tuned)))
    assert alarms(judge(LossSpike(), rows(300, loss=tuned, label__entropy=1.6))) == []
