"""What the summary says of a training as a whole."""

import numpy as np
import pytest

from sonde.rules.history.run_summary import RunSummaries, RunSummary
from sonde.rules.step_view import Layers, StepView

from ..traces import flat


def _after(losses: list[float]) -> RunSummary:
    runs = RunSummaries()
    state, run = runs.init(), RunSummary()
    for step, loss in enumerate(losses, 1):
        state, run = runs.step(state, StepView(step, {"loss": loss}, {}, ()))
    return run


@pytest.mark.parametrize("seed", range(10))
def test_what_may_have_gone_is_bounded_from_40_losses_on(seed: int) -> None:
    assert np.isnan(_after(flat(39, 1.4, noise=0.01, seed=seed)).most_gone)
    assert _after(flat(44, 1.4, noise=0.01, seed=seed)).most_gone < 0.04
    line = np.linspace(1.0, 0.8, 44) * np.array(flat(44, noise=0.01, seed=seed))
    assert _after(line.tolist()).most_gone > 0.12


def test_a_model_that_beats_guessing_or_has_most_of_the_normaliser_came_trained() -> None:
    assert RunSummary(loss_start=0.9, trivial=1.4).came_trained
    assert RunSummary(loss_start=3.0, log_z=10.0).came_trained
    assert not RunSummary(loss_start=1.4, trivial=1.4, log_z=1.5).came_trained


def test_large_logits_that_do_worse_than_guessing_were_not_trained() -> None:
    assert not RunSummary(loss_start=15.0, trivial=1.75, log_z=887.0).came_trained


def test_the_first_update_ratio_is_the_first_that_there_is() -> None:
    runs = RunSummaries()
    state, run = runs.init(), RunSummary()
    for step, ratio in enumerate((float("nan"), 0.0, 0.1, 5.0, 0.2), 1):
        state, run = runs.step(state, StepView(step, {"update/ratio": ratio, "batch/size": 2.0}, {}, ()))
    assert (run.ratio_start, run.ratio_peak, run.batch) == (0.1, 5.0, 2.0)


def test_settings_of_the_optimiser_are_the_largest_of_its_groups() -> None:
    decays = Layers(("0", "1"), np.array([0.1, 0.0]))
    views = [StepView(1, {}, {"optimizer/weight_decay": [decays]}, ()), StepView(2, {"loss": 1.0}, {}, ())]
    runs = RunSummaries()
    state, run = runs.init(), RunSummary()
    for view in views:
        state, run = runs.step(state, view)
    assert run.weight_decay == 0.1
    assert np.isnan(run.beta2)
