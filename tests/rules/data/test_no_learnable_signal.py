from typing import Any

import numpy as np
import pytest
from tests.rules.traces import alarms, falling, flat, judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.data.no_learnable_signal import NoLearnableSignal
from sonde.rules.step_view import Fact

LABELS = {20: [Fact("preflight", {"check": "labels", "where": [], "value": 1.79, "num": 1280})]}


def test_a_loss_that_stays_at_the_entropy_of_the_labels_is_found() -> None:
    table = rows(400, loss=flat(400, 1.8, noise=0.02), grad__norm=flat(400, 0.5), update__ratio=1e-3)
    seen = judge(NoLearnableSignal(), table, facts=LABELS)
    assert alarms(seen)[0][0] == 199
    assert "better than guessing" in seen[0][1].message


def test_without_the_labels_it_is_held_against_its_start() -> None:
    table = rows(400, loss=flat(400, 1.0, noise=0.05), grad__norm=flat(400, 0.5), update__ratio=1e-3)
    assert "its start" in judge(NoLearnableSignal(), table)[0][1].message


@pytest.mark.parametrize(
    "speaks_against",
    [
        {"update/ratio": 1e-7},  # the rate is too low
        {"update/ratio": 2e-4},  # a twelfth of the weights in 400 steps
        {"grad/cosine": 0.95},
        {"val/loss": 0.5},
    ],
)
def test_what_speaks_for_another_cause_keeps_it_silent(speaks_against: dict[str, float]) -> None:
    table = rows(400, loss=flat(400, 1.8, noise=0.02), grad__norm=flat(400, 0.5), update__ratio=1e-3)
    for row in table:
        row.update(speaks_against)
    assert judge(NoLearnableSignal(), table, facts=LABELS) == []


def test_vanished_gradients_are_another_matter() -> None:
    norms = [1.0] * 20 + [1e-6] * 380
    table = rows(400, loss=flat(400, 1.8, noise=0.02), grad__norm=norms, update__ratio=1e-3)
    assert judge(NoLearnableSignal(), table, facts=LABELS) == []


@pytest.mark.parametrize("seed", range(5))
def test_trainings_that_learn_and_short_ones_are_left_alone(seed: int) -> None:
    table = rows(600, loss=falling(600, start=1.8, end=0.4, seed=seed), grad__norm=flat(600, 0.5), update__ratio=1e-3)
    assert judge(NoLearnableSignal(), table, facts=LABELS) == []
    short = rows(150, loss=flat(150, 1.8), grad__norm=flat(150, 0.5), update__ratio=1e-3)
    assert judge(NoLearnableSignal(), short, facts=LABELS) == []
    assert judge(NoLearnableSignal(), rows(400, loss=float("nan")), facts=LABELS) == []


def test_a_slow_descent_is_no_missing_signal_and_noise_keeps_it_information() -> None:
    line = list(np.linspace(2.3, 2.22, 400) * np.array(flat(400, noise=0.01)))
    assert judge(NoLearnableSignal(), rows(400, loss=line, grad__norm=1.0, update__ratio=1e-3)) == []
    noisy = [*[1.9] * 5, *flat(205, 2.0, noise=0.25)]
    wild = rows(210, loss=noisy, grad__norm=1.0, update__ratio=1e-3)
    assert worst(judge(NoLearnableSignal(), wild)) is Severity.INFO


def test_a_start_above_what_ignoring_the_inputs_gives_may_come_down_to_it() -> None:
    line = np.concatenate([np.linspace(1.86, 1.79, 150), np.full(150, 1.79)])
    table = rows(300, loss=list(line * np.array(flat(300, noise=0.01))), grad__norm=1.0, update__ratio=1e-3)
    assert alarms(judge(NoLearnableSignal(), table, facts=LABELS))


def _looked_at(share: np.ndarray, **more: Any) -> list[dict[str, float]]:
    """Losses that are a share of what guessing costs on their own noisy targets, looked at every tenth step."""
    costs = np.random.default_rng(0).uniform(0.5, 2.0, len(share))
    looks = [value if i % 10 == 1 else None for i, value in enumerate(share.tolist())]
    series = {"loss": (share * costs).tolist(), "loss__relative": looks, **more}
    return rows(len(share), grad__norm=0.5, update__ratio=1e-3, **series)


_AT_ONE = np.concatenate([np.linspace(1.4, 1.0, 30), np.full(270, 1.0)]) * np.array(flat(300, noise=0.03))


def test_targets_whose_own_cost_of_guessing_is_known_tell_it_through_the_noise_of_their_batches() -> None:
    seen = judge(NoLearnableSignal(), _looked_at(_AT_ONE))
    assert alarms(seen)[0][0] == 100
    assert "better than guessing" in seen[0][1].message


@pytest.mark.parametrize("seed", range(5))
def test_losses_below_what_guessing_costs_are_left_alone(seed: int) -> None:
    for end in (0.85, 0.5):
        share = np.geomspace(1.0, end, 400) * np.array(flat(400, noise=0.01, seed=seed))
        assert judge(NoLearnableSignal(), _looked_at(share)) == []


def test_validation_that_gets_better_than_guessing_and_a_warmup_speak_against_it() -> None:
    assert judge(NoLearnableSignal(), _looked_at(_AT_ONE, val__loss=0.8)) == []
    warmup = [1e-5 * (i + 1) for i in range(300)]
    assert judge(NoLearnableSignal(), _looked_at(_AT_ONE, lr=warmup)) == []


def test_shares_that_scatter_are_information() -> None:
    noisy = np.array(flat(110, noise=0.25, seed=3))
    assert worst(judge(NoLearnableSignal(), _looked_at(noisy))) in (None, Severity.INFO)


def test_what_is_learned_by_heart_only_is_no_signal() -> None:
    share = np.linspace(1.0, 0.3, 300)
    guessing = [1.3 if i % 60 == 59 else None for i in range(300)]
    learned = [1.3 - i / 400 if i % 60 == 59 else None for i in range(300)]
    assert judge(NoLearnableSignal(), _looked_at(share, val__loss=guessing))
    assert not judge(NoLearnableSignal(), _looked_at(share, val__loss=learned))


def test_a_training_loss_that_falls_a_little_while_five_evaluations_stand_is_learned_by_heart() -> None:
    losses = list(np.linspace(1.4, 1.25, 300) * np.array(flat(300, noise=0.03)))
    for start, found in ((1.42, True), (1.2, False)):
        validation = [start if i % 40 == 39 else None for i in range(300)]
        table = rows(300, loss=losses, grad__norm=0.5, update__ratio=1e-3, val__loss=validation)
        assert bool(judge(NoLearnableSignal(), table)) is found
