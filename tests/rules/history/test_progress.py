"""What the summary says of a training as a whole, and what rules make of it."""

from collections.abc import Sequence

import numpy as np
import pytest

from sonde.core.frames import Columns, Frame
from sonde.rules.history.progress import is_lost, is_slow, is_stuck
from sonde.rules.history.run_summary import RunSummaries, RunSummary
from sonde.rules.step_view import StepViews

from ..traces import Row, falling, flat, rows


def runs(table: Sequence[Row]) -> list[RunSummary]:
    maker, views, made = RunSummaries(), StepViews(), []
    state = maker.init()
    for step, row in enumerate(table, 1):
        frame = Frame(Columns("step", tuple(row)), step, 0.0, np.array(list(row.values()), np.float32))
        state, run = maker.step(state, views.take(step, [frame], ()))
        made.append(run)
    return made


def test_a_loss_that_stands_is_stuck_after_100_losses_and_with_a_sure_symptom_after_40() -> None:
    made = runs(rows(120, loss=flat(120, 2.3, noise=0.01)))
    assert next(run.step for run in made if is_stuck(run)) == 100
    assert 40 <= next(run.step for run in made if is_stuck(run, soon=True)) <= 60


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_would_hide_a_fall_makes_no_loss_stuck(seed: int) -> None:
    made = runs(rows(300, loss=flat(300, 0.2, noise=0.5, seed=seed)))
    assert not any(is_stuck(run, soon=True) for run in made)


def test_what_may_have_gone_is_small_of_a_loss_that_stands_and_large_of_one_that_falls() -> None:
    assert runs(rows(60, loss=flat(60, 2.3, noise=0.01)))[-1].most_gone < 0.03
    assert runs(rows(60, loss=falling(60)))[-1].most_gone > 0.2
    assert np.isnan(runs(rows(30, loss=flat(30)))[-1].most_gone)
    assert np.isnan(runs(rows(110, loss=flat(110)))[-1].most_gone)


def test_a_model_that_beats_guessing_from_the_start_came_trained() -> None:
    losses = flat(20, 0.5, noise=0.01)
    assert runs(rows(20, loss=losses, label__entropy=1.6))[-1].came_trained
    assert runs(rows(20, loss=losses, logits__log_z=[5.0, *[None] * 19]))[-1].came_trained
    assert not runs(rows(20, loss=losses, logits__log_z=[*[None] * 10, *[5.0] * 10]))[-1].came_trained
    assert not runs(rows(20, loss=losses, label__entropy=0.5, logits__log_z=0.6))[-1].came_trained
    assert not runs(rows(20, loss=losses))[-1].came_trained


def test_several_optimisers_have_no_common_course() -> None:
    table = rows(120, loss=flat(120, 2.3, noise=0.01))
    table[0] |= {"grad/norm_applied@G": 1.0, "grad/norm_applied@D": 1.0}
    made = runs(table)
    assert not any(run.is_alone or is_stuck(run) for run in made)
    assert runs(rows(3, loss=1.0))[-1].is_alone


def test_one_huge_loss_and_a_few_noisy_ones_do_not_lose_a_run() -> None:
    huge = [1.0, 0.9, 0.8, 0.7, 0.6, 60.0, *[0.5] * 40]
    assert not any(is_lost(run) for run in runs(rows(46, loss=huge)))
    for seed in range(4):
        noisy = runs(rows(60, loss=flat(60, noise=0.6, seed=seed)))
        assert not any(is_lost(run) for run in noisy)
    climbs = runs(rows(40, loss=[*flat(20, noise=0.02), *flat(20, 5.0)]))
    assert is_lost(climbs[-1])


def test_a_descent_that_is_over_in_500_steps_at_its_pace_is_not_slow() -> None:
    quick, shallow = np.linspace(2.2, 1.5, 120).tolist(), np.linspace(2.2, 2.0, 120).tolist()
    assert not is_slow(runs(rows(120, loss=quick))[-1])
    assert is_slow(runs(rows(120, loss=shallow))[-1])
