"""LOS002 loss-spike."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.losses.loss_spike import LossSpike

from ..traces import alarms, falling, flat, judge, rows, worst


def _with(losses: list[float], at: int, value: float, num: int = 1) -> list[float]:
    return [*losses[:at], *[value] * num, *losses[at + num :]]


def test_one_bad_batch_is_a_spike_at_its_step() -> None:
    seen = alarms(judge(LossSpike(), rows(300, loss=_with(falling(300), 200, 30.0), grad__norm=1.0)))
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
    assert alarms(judge(LossSpike(), rows(300, loss=_with(solved, 250, 5.0, 8))))


def test_a_fine_tuned_model_is_held_against_what_guessing_gives() -> None:
    tuned = _with(flat(300, 0.1, noise=0.1), 250, 0.3, 8)
    assert alarms(judge(LossSpike(), rows(300, loss=tuned)))
    assert alarms(judge(LossSpike(), rows(300, loss=tuned, label__entropy=1.6))) == []


def test_batches_with_an_outlier_are_information_where_the_losses_after_them_are_ordinary() -> None:
    rng = np.random.default_rng(1)
    losses = (0.2 * np.exp(rng.normal(0.0, 0.4, 300))).tolist()
    losses[:60] = np.linspace(3.0, 0.3, 60).tolist()
    for num in (1, 4):
        assert worst(judge(LossSpike(), rows(300, loss=_with(losses, 200, 9.0, num)))) is Severity.INFO
    assert alarms(judge(LossSpike(), rows(300, loss=_with(losses, 200, 9.0, 8))))[0][0] == 206


def test_one_outlier_more_among_many_is_information_for_a_while() -> None:
    losses = np.array(flat(300, 0.2, noise=0.05))
    losses[:60] = np.linspace(3.0, 0.2, 60)
    losses[130::9] = 2.0
    crowd = alarms(judge(LossSpike(), rows(300, loss=_with(losses.tolist(), 275, 9.0, 6))))
    assert not [step for step, _ in crowd if step > 270]
    losses[130::9] = 0.2
    alone = alarms(judge(LossSpike(), rows(300, loss=_with(losses.tolist(), 275, 9.0, 6))))
    assert alone[0][0] == 276
